"""A census of one step: what was written, how it was solved, and what the tasks were like."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from training.archive import Archive
from training.match import Played, Proposal, Text
from training.teaching import Marked


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
        "teacher_reward": _mean([m.reward for m in marks if m.batch[0] == "teacher"]),
        "student_reward": _mean([m.reward for m in marks if m.batch[0] == "student"]),
        "malformed": grades["malformed"] / len(attempts) if attempts else None,
        "teacher_entropy": _surprisal(written),
        "student_entropy": _surprisal(attempts),
        "proposal_tokens": _mean([len(text.logprobs) for text in written]),
        "attempt_tokens": _mean([len(text.logprobs) for text in attempts]),
        "complexity": {
            name: _mean([task[name] for task in tasks if task[name] is not None])
            for name in (tasks[0] if tasks else ())
        },
        "coverage": archive.coverage(),
    }


def _surprisal(texts: Sequence[Text]) -> float | None:
    """Mean of -log p over the sampled tokens, which estimates the entropy, in nats."""
    return _mean([-logprob for text in texts for logprob in text.logprobs])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
