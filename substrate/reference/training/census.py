"""A census of one step: what was written, how it was solved, and what the tasks were like."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from statistics import fmean, pstdev
from typing import Any

from training.archive import Archive
from training.codetasks import Task
from training.match import Played, Proposal, Text
from training.pass_at import mean_pass_at
from training.teaching import Marked

Kind = tuple[str, str, int, int, str]


def census(
    proposals: Sequence[Proposal],
    played: Sequence[Played],
    marks: Sequence[Marked],
    archive: Archive,
    *,
    base: int,
) -> dict[str, Any]:
    """Metrics of a step, by name; a mean over nothing is null. Those of proposals and
    of complexity leave out the base's own, which is at the place `base` and never changes.
    """
    own = [proposal for proposal in proposals if proposal.order.author != base]
    of_own = [task for task in played if task.proposal.order.author != base]
    rates = [task.solve_rate for task in played]
    attempts = [text for task in played for text in task.attempts]
    written = [proposal.written for proposal in own]
    grades = Counter(grade for task in played for grade in task.grades)
    tasks = [asdict(task.task.complexity) for task in of_own]
    return {
        "proposals": dict(sorted(Counter(proposal.reason for proposal in own).items())),
        "solve_rates": {
            "none": sum(rate == 0 for rate in rates),
            "some": sum(0 < rate < 1 for rate in rates),
            "all": sum(rate == 1 for rate in rates),
        },
        "solve_rate": _mean(rates),
        "pass_at": _passes(played),
        "teacher_reward": _mean([m.reward for m in marks if m.batch[0] == "teacher"]),
        "student_reward": _mean([m.reward for m in marks if m.batch[0] == "student"]),
        "malformed": grades["malformed"] / len(attempts) if attempts else None,
        "teacher_entropy": _surprisal(written),
        "student_entropy": _surprisal(attempts),
        "proposal_tokens": _mean([len(text.logprobs) for text in written]),
        "attempt_tokens": _mean([len(text.logprobs) for text in attempts]),
        "types": _by_type(own, played, marks),
        "complexity": {
            name: _mean([task[name] for task in tasks if task[name] is not None])
            for name in (tasks[0] if tasks else ())
        },
        "coverage": archive.coverage(),
        "coverage_by_author": {
            str(author): cells
            for author, cells in archive.coverage_by_author().items()
            if author != base
        },
        "overlap": archive.overlap({proposal.order.author for proposal in own}),
        "likeness": likeness(own),
    }


def likeness(proposals: Sequence[Proposal]) -> dict[str, float | None]:
    """How likely two tasks are of one kind, by one author and by two: Simpson's index (Nature 163,
    1949), whose estimates do not depend on how many tasks there are. A kind is a type, a domain, a
    syntax tree's depth, a cyclomatic complexity and a type of output. The more kinds authors write,
    the lower both; where authors differ, the second is the lower one.
    """
    kinds: dict[int, Counter[Kind]] = {}
    for proposal in proposals:
        if proposal.task is not None:
            kinds.setdefault(proposal.order.author, Counter())[_kind(proposal.task)] += 1
    pairs = sum(some.total() * (some.total() - 1) for some in kinds.values())
    alike = sum(count * (count - 1) for some in kinds.values() for count in some.values())
    mixed, mixed_alike = 0, 0
    for one, other in combinations(kinds.values(), 2):
        mixed += one.total() * other.total()
        mixed_alike += sum(count * other[kind] for kind, count in one.items())
    return {
        "of_one": alike / pairs if pairs else None,
        "of_two": mixed_alike / mixed if mixed else None,
    }


def _kind(task: Task) -> Kind:
    complexity = task.complexity
    return task.type, task.domain, complexity.depth, complexity.cyclomatic, task.returns


def _passes(played: Sequence[Played]) -> dict[str, float]:
    """The mean of pass@k over tasks, which have all as many attempts."""
    right = [task.grades.count("right") for task in played]
    return mean_pass_at(len(played[0].grades), right) if played else {}


def _by_type(
    own: Sequence[Proposal], played: Sequence[Played], marks: Sequence[Marked]
) -> dict[str, dict[str, dict[str, Any]]]:
    """By role and by type of task: how many texts there are, what came of them (reasons of
    proposals, grades of attempts), their rewards' mean and deviation, surprisal and tokens.
    """
    texts: dict[tuple[str, str], list[Text]] = {}
    came_of: dict[tuple[str, str], Counter[str]] = {}
    for proposal in own:
        key = "teacher", proposal.order.type
        texts.setdefault(key, []).append(proposal.written)
        came_of.setdefault(key, Counter())[proposal.reason] += 1
    for task in played:
        key = "student", task.task.type
        texts.setdefault(key, []).extend(task.attempts)
        came_of.setdefault(key, Counter()).update(task.grades)
    rewards: Mapping[int, float] = {id(mark.text): mark.reward for mark in marks}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (role, type), some in sorted(texts.items()):
        paid = [rewards[id(text)] for text in some if id(text) in rewards]
        found.setdefault(role, {})[type] = {
            "texts": len(some),
            "came_of": dict(sorted(came_of[role, type].items())),
            "reward": _mean(paid),
            "deviation": pstdev(paid) if paid else None,
            "entropy": _surprisal(some),
            "tokens": _mean([len(text.logprobs) for text in some]),
        }
    return found


def _surprisal(texts: Sequence[Text]) -> float | None:
    """Mean of -log p over the sampled tokens, which estimates the entropy, in nats."""
    return _mean([-logprob for text in texts for logprob in text.logprobs])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
