"""The collector: a round's rows become its results, numbers and words by code."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from policies.evidence import Direction, Round, noise_model, round_of, spread, verdicts
from policies.policy import NoiseModel, SearchPolicy
from policies.report import Results, SlotResult, Spread, Verdict


def choose_looks(
    dev_by_slot: Mapping[int, float | None],
    *,
    looks: int,
    seed: int,
    direction: Direction,
) -> list[int]:
    """The slots whose external score is obtained, in order: at most `looks`.

    The anchor, the best two by dev, then the rest at random by `seed`: whether dev and external
    part ways shows only on pairs that dev did not select. A slot without a finite dev score has
    no adapter to look at.
    """
    sign = -1 if direction == "maximise" else 1
    scored = {
        slot: sign * dev
        for slot, dev in sorted(dev_by_slot.items())
        if dev is not None and math.isfinite(dev)
    }
    anchor = [slot for slot in scored if slot == 0]
    others = sorted((slot for slot in scored if slot != 0), key=lambda slot: scored[slot])
    rest = sorted(others[2:])
    random.Random(seed).shuffle(rest)
    return [*anchor, *others[:2], *rest][: max(0, looks)]


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
    """The results of round `number`, run under `policy`, after the rounds of `history`.

    `slots` has one row for each slot, in order. The same rows give the same results.
    """
    rounds = [*history, round_of(number, policy, slots)]
    base, noise, found = spread(rounds), noise_model(rounds), verdicts(rounds, direction)
    sentences = [
        _trials(number, policy, slots, recipe),
        _standing(base, noise),
        *_effects(found),
        _looks(looks, found),
        *_events(slots),
    ]
    return Results(
        substrate_sha256=substrate_sha256,
        constitution_sha256=constitution_sha256,
        policy_version=policy.version,
        policy_sha256=policy.digest(),
        recipe=recipe,
        slots=list(slots),
        looks=list(looks),
        spread=base,
        noise=noise,
        verdicts=found,
        dead_ends=[end.title for end in policy.dead_ends],
        narrative=" ".join(sentences)[:8000],
    )


def _trials(number: int, policy: SearchPolicy, slots: Sequence[SlotResult], recipe: str) -> str:
    kinds = Counter(slot.kind for slot in slots)
    outcomes = Counter(slot.outcome for slot in slots)
    return (
        f"Round {number} ran {len(slots)} trials of recipe {recipe} under policy "
        f"{policy.version}: {_counts(kinds)}. Outcomes: {_counts(outcomes)}."
    )


def _standing(base: Spread, noise: NoiseModel) -> str:
    if base.mean is None or base.low is None or base.high is None:
        return "The standing recipe has no score, so that nothing can be compared."
    anchor = "was not scored" if base.dev is None else f"scored {base.dev:.4f} on dev"
    said = (
        f"The anchor {anchor}; {base.n} runs of the standing recipe average {base.mean:.4f}, "
        f"from {base.low:.4f} to {base.high:.4f}."
    )
    if noise.sigma is None or noise.threshold is None:
        return f"{said} The noise of one trial is unknown."
    source = (
        f"over {noise.degrees} degrees of freedom"
        if noise.degrees
        else "by the number of problems alone, without the noise between seeds"
    )
    return (
        f"{said} One trial varies by {noise.sigma:.4f} {source}: an effect under "
        f"{noise.threshold:.4f} settles nothing."
    )


def _effects(found: Sequence[Verdict]) -> list[str]:
    said = []
    for word in ("better", "worse"):
        which = [
            f"slot {item.slot} on {item.axis} by {item.effect:+.4f} "
            f"({item.low:+.4f} to {item.high:+.4f})"
            for item in found
            if item.verdict == word
            and item.effect is not None
            and item.low is not None
            and item.high is not None
        ]
        if which:
            said.append(f"{word.capitalize()} than the standing recipe: {_first(which)}.")
    unresolved = [item for item in found if item.verdict == "unresolved"]
    if unresolved:
        said.append(f"Unresolved: {len(unresolved)} of {len(found)} trials with an axis.")
    return said


def _looks(looks: Sequence[int], found: Sequence[Verdict]) -> str:
    if not looks:
        return "No external score was obtained."
    effects = [
        f"slot {item.slot} {item.external_effect:+.4f} from the anchor"
        for item in found
        if item.external_effect is not None
    ]
    slots = ", ".join(map(str, looks))
    return f"External scores were asked for slots {slots}" + (
        f": {_first(effects)}." if effects else "; none can be compared with the anchor's."
    )


def _events(slots: Sequence[SlotResult]) -> list[str]:
    events = [f"slot {slot.slot} {name}" for slot in slots for name in slot.integrity]
    return [f"Integrity events: {_first(events)}."] if events else []


def _counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counter.items())


def _first(parts: Sequence[str], most: int = 12) -> str:
    rest = len(parts) - most
    return ", ".join(parts[:most]) + (f" and {rest} more" if rest > 0 else "")
