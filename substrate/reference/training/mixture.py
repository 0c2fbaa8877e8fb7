"""Which problems are practised: draws from a target set in given proportions."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

Problem = dict[str, Any]


def draw(
    problems: Sequence[Problem],
    dice: random.Random,
    *,
    depth_weights: Sequence[float],
    domain_weights: Sequence[tuple[str, float]] = (),
    format_weights: Sequence[tuple[str, float]] = (),
    rehearsal: float = 0.0,
    rehearsal_depth: int = 0,
) -> Iterator[Problem]:
    """Problems without end. A domain, format and depth is drawn by the product of the three
    weights, then one of its problems, which comes again only after all others of its kind.

    `depth_weights` are those of depth 1, 2, ...; deeper problems are left out. A domain or format
    without a weight has 1. A share `rehearsal` of the draws is from depths up to `rehearsal_depth`
    instead, each depth alike. A problem that says nothing of its depth has depth 1.

    Raises ValueError when the weights leave no problem, for one below 0, and for one of a domain or
    format that no problem has.
    """
    kinds: dict[tuple[str, str, int], list[Problem]] = {}
    for problem in problems:
        kind = (problem["domain"], problem.get("format", ""), problem.get("depth", 1))
        kinds.setdefault(kind, []).append(problem)
    names = sorted(kinds)
    for place, weights in enumerate((domain_weights, format_weights)):
        unknown = {name for name, _ in weights} - {kind[place] for kind in names}
        if unknown or any(weight < 0 for _, weight in weights):
            raise ValueError(
                f"wanted weights of at least 0 for {sorted({kind[place] for kind in names})}, "
                f"found {list(weights)}"
            )
    if min(depth_weights, default=0) < 0:
        raise ValueError(f"wanted depth weights of at least 0, found {list(depth_weights)}")
    depths, domains = dict(enumerate(depth_weights, start=1)), dict(domain_weights)
    formats = dict(format_weights)
    practice, shallow = [], []
    for domain, form, depth in names:
        weight = domains.get(domain, 1.0) * formats.get(form, 1.0)
        practice.append(weight * depths.get(depth, 0.0))
        shallow.append(weight * (depth <= rehearsal_depth))
    if sum(practice) <= 0 or (rehearsal > 0 and sum(shallow) <= 0):
        raise ValueError(
            "wanted weights that leave problems to practise and to rehearse, found none; the "
            f"target set has depths {sorted({depth for _, _, depth in names})}: raise a weight"
        )
    decks = {kind: _shuffled(kinds[kind], dice) for kind in names}
    while True:
        weights = shallow if dice.random() < rehearsal else practice
        yield next(decks[dice.choices(names, weights)[0]])


def _shuffled(problems: list[Problem], dice: random.Random) -> Iterator[Problem]:
    """The problems, round after round, each in a new order."""
    while True:
        yield from dice.sample(problems, len(problems))
