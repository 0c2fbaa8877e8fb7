"""An exam: fixed problems that members attempt at intervals, so often that pass@k can be told.

Ratings measure no progress, and rewards are of tasks that change; an exam's problems stay. Where a
member has a higher pass@1 than its base, and no higher pass@k for a large k, training has sharpened
what the base could do and added nothing (Yue et al., arXiv 2504.13837).

The attempts are outside a run's budget: nobody learns from them, or is chosen by them.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from training import world
from training.pass_at import mean_pass_at
from training.table import Table


def exam(
    table: Table,
    places: Sequence[int],
    problems: Sequence[dict[str, Any]],
    *,
    attempts: int,
    seed: int,
) -> dict[str, Any]:
    """What members, at these places of the population, make of labelled problems, as JSON.

    `pass_at` has for each k a list with the mean of each member; `agreement` is the share of
    problems to which two members have the same first answer, over all pairs of members.
    """
    wanted = [(place, p["prompt"]) for place in places for p in problems for _ in range(attempts)]
    texts = table.write(wanted, seed=seed, counted=False)
    answers = [text.text for text in texts]
    right: list[list[int]] = []  # of each member, at each problem
    first: list[list[str]] = []
    for start in range(0, len(answers), len(problems) * attempts):
        its = [answers[start + n * attempts :][:attempts] for n in range(len(problems))]
        right.append(
            [
                sum(world.reward(problem, answer) > 0 for answer in some)
                for problem, some in zip(problems, its, strict=True)
            ]
        )
        first.append([some[0] for some in its])
    means = [mean_pass_at(attempts, some) for some in right]
    same = [
        one == other for pair in combinations(first, 2) for one, other in zip(*pair, strict=True)
    ]
    return {
        "problems": len(problems),
        "attempts": attempts,
        "tokens": sum(len(text.logprobs) for text in texts),
        "pass_at": {k: [mean[k] for mean in means] for k in means[0]},
        "agreement": fmean(same) if same else None,
    }
