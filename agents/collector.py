"""The collector: a round's rows become its results, numbers and words by code."""

import random
from collections.abc import Mapping, Sequence

from policies.evidence import Direction, Round, noise_model, round_of, spread, verdicts
from policies.policy import SearchPolicy
from policies.report import Results, SlotResult


def choose_looks(
    dev_by_slot: Mapping[int, float | None],
    *,
    looks: int,
    seed: int,
    direction: Direction,
) -> list[int]:
    """The slots whose external score is obtained, in order: at most `looks`.

    The anchor, the best two by dev, then the rest at random by `seed`: whether dev and external
    part ways shows only on pairs that dev did not select. Slots without a dev score have no
    adapter to look at.
    """
    scored = {slot: dev for slot, dev in sorted(dev_by_slot.items()) if dev is not None}
    sign = 1 if direction == "maximise" else -1
    others = sorted((slot for slot in scored if slot != 0), key=lambda slot: -sign * scored[slot])
    rest = sorted(others[2:])
    random.Random(seed).shuffle(rest)
    return [*(slot for slot in scored if slot == 0), *others[:2], *rest][:looks]


def collect(
    *,
    number: int,
    policy: SearchPolicy,
    slots: Sequence[SlotResult],
    looks: Sequence[int],
    history: Sequence[Round],
    direction: Direction,
    substrate_sha256: str,
    constitution_sha256: str,
    recipe: str,
) -> Results:
    """The results of round `number`, run under `policy`, after the rounds of `history`."""
    rounds = [*history, round_of(number, policy, slots)]
    return Results(
        substrate_sha256=substrate_sha256,
        constitution_sha256=constitution_sha256,
        policy_version=policy.version,
        policy_sha256=policy.digest(),
        recipe=recipe,
        slots=list(slots),
        looks=list(looks),
        spread=spread(rounds),
        noise=noise_model(rounds),
        verdicts=verdicts(rounds, direction),
        dead_ends=[end.title for end in policy.dead_ends],
        narrative="",
    )
