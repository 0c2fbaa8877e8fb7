"""An inquest into one step of a generator and a solver: what was asked, and what scores go with."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from training.influence import Influence, cosine
from training.match import Text
from training.pass_at import mean_pass_at
from training.passage import Passage
from training.posed import Posed
from training.probe import rank_correlation
from training.questions import Question, Reason


def inquest(
    facts_of: Callable[[Question], Mapping[str, Any]],
    passages: Sequence[Passage],
    asked: Sequence[Passage],
    found: Sequence[Question | Reason],
    questions: Sequence[Question],
    posed: Sequence[Posed],
    scores: dict[str, float],
    measured: Influence | None,
) -> dict[str, Any]:
    """Metrics of a step, by name; a mean over nothing is null, a group without anything is absent.
    `facts_of` is what a questionbook knows of a question.

    Scores are those of questions that were solved sometimes: others have none. `valid_by_kind` and
    `score_by_kind`, `..._topic` and `..._depth` are means by what is known of documents and
    questions, which nobody was told.
    """
    facts = {question.id: facts_of(question) for question in questions}
    kinds = {passage.id: passage.kind for passage in passages}
    grades = [one.grades for one in posed]
    rates = [its.count("right") / len(its) for its in grades]
    lengths = {q.id: _mean(_lengths(one.attempts)) for q, one in zip(questions, posed, strict=True)}
    malformed = {
        question.id: its.count("malformed") / len(its)
        for question, its in zip(questions, grades, strict=True)
    }
    rate_of = dict(zip((question.id for question in questions), rates, strict=True))
    scored = [question for question in questions if question.id in scores]
    values = [scores[question.id] for question in scored]
    raw = cosine(measured).tolist()[: len(values)] if measured is not None and values else []
    spreads = [rate_of[question.id] * (1 - rate_of[question.id]) for question in scored]
    keys = [facts[q.id]["key_right"] for q in questions if "key_right" in facts[q.id]]
    pairs = zip(asked, found, strict=True)
    return {
        "solve_rates": {
            "none": sum(rate == 0 for rate in rates),
            "some": sum(0 < rate < 1 for rate in rates),
            "all": sum(rate == 1 for rate in rates),
        },
        "solve_rate": _mean(rates),
        "pass_at": _passes(grades),
        "malformed": _mean([float(g == "malformed") for its in grades for g in its]),
        "key_right": _mean(keys),
        "question_depth": _mean([f["depth"] for f in facts.values() if "depth" in f]),
        "useful_depth": _mean([facts[q.id]["depth"] for q in scored if "depth" in facts[q.id]]),
        "score": {
            "mean": _mean(values),
            "deviation": pstdev(values) if values else None,
            "least": min(values, default=None),
            "most": max(values, default=None),
            "positive": _mean([float(value > 0) for value in values]),
            "with_cosine": rank_correlation(values, raw),
            "with_variance": rank_correlation(values, spreads),
            "with_malformed": rank_correlation(values, [malformed[q.id] for q in scored]),
            "with_length": rank_correlation(values, [lengths[q.id] or 0.0 for q in scored]),
            "within_document": _mean(_deviations(scored, values)),
        },
        "lengths": None
        if measured is None
        else {
            "questions": measured.lengths_Q.mean().item(),
            "steps": measured.step_lengths_Q.mean().item(),
            "target": measured.target_length,
        },
        "valid_by_kind": _by((p.kind, float(isinstance(one, Question))) for p, one in pairs),
        "some_by_kind": _by((kinds[q.document], float(0 < rate_of[q.id] < 1)) for q in questions),
        "score_by_kind": _by((kinds[q.document], scores[q.id]) for q in scored),
        "score_by_topic": _by((str(facts[q.id].get("topic")), scores[q.id]) for q in scored),
        "score_by_depth": _by((str(facts[q.id].get("depth")), scores[q.id]) for q in scored),
        "score_by_key": _by((str(facts[q.id].get("key_right")), scores[q.id]) for q in scored),
    }


def manner(texts: Sequence[Text], max_tokens: int) -> dict[str, float | None]:
    """How completions were written: tokens of one, the share that was cut off, nats a token, and
    the share that begins with the most frequent first word: near 1 where all are written alike.
    """
    lengths = _lengths(texts)
    tokens = sum(lengths)
    openers = Counter(text.text.split(maxsplit=1)[0] for text in texts if text.text.strip())
    return {
        "opener": max(openers.values()) / len(texts) if openers else None,
        "tokens": _mean(lengths),
        "cut_off": _mean([float(length >= max_tokens) for length in lengths]),
        "surprisal": -sum(sum(text.logprobs) for text in texts) / tokens if tokens else None,
    }


def _passes(grades: Sequence[Sequence[str]]) -> dict[str, float]:
    """The mean of pass@k over questions with all attempts, of which soundings leave some out: those
    questions are solved always or never, and count as such.
    """
    most = max(map(len, grades), default=0)
    right = [round(most * its.count("right") / len(its)) for its in grades]
    return mean_pass_at(most, right)


def _lengths(texts: Sequence[Text]) -> list[float]:
    return [float(len(text.logprobs)) for text in texts]


def _deviations(scored: Sequence[Question], values: Sequence[float]) -> list[float]:
    """Those of the scores of each document that has several."""
    groups: dict[str, list[float]] = defaultdict(list)
    for question, value in zip(scored, values, strict=True):
        groups[question.document].append(value)
    return [pstdev(group) for group in groups.values() if len(group) > 1]


def _by(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Means by label."""
    groups: dict[str, list[float]] = defaultdict(list)
    for label, value in pairs:
        groups[label].append(value)
    return {label: fmean(groups[label]) for label in sorted(groups)}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
