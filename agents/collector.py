"""The collector: a round's rows become its results, numbers and words by code."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import zip_longest

from policies.confirmation import confirmations
from policies.decoupling import decoupling, misleading
from policies.evidence import (
    Calibration,
    Direction,
    Record,
    Round,
    counted,
    ignored_domains,
    noise_model,
    round_of,
    spread,
    verdicts,
)
from policies.integrity import flagged_effect
from policies.policy import NoiseModel, SearchPolicy
from policies.report import (
    Confirmation,
    Decoupling,
    Results,
    SetScore,
    SlotResult,
    Spread,
    Verdict,
)

CANDIDATES = 2  # runs of candidates that a round looks at


def choose_looks(
    scores: Mapping[int, SetScore | None],
    *,
    policy: SearchPolicy,
    looks: int,
    seed: int,
    direction: Direction,
) -> list[int]:
    """The slots of a round whose external score is obtained, in order: at most `looks`.

    The anchor, CANDIDATES runs of candidates, one of each before a second of one, then exploration:
    the best by dev, two of them where there is no candidate, and the rest at random by `seed`.
    Whether dev and external part ways shows on pairs that dev did not select, and a candidate's
    fresh runs are such pairs too. Dev is counted as `policy` trusts it; where nothing of it is
    trusted, exploration is looked at by chance. A slot without a finite dev score has no adapter to
    look at.
    """
    sign = -1 if direction == "maximise" else 1
    ignored = ignored_domains(policy.trust)
    scored = {
        slot: counted(score, ignored)
        for slot, score in sorted(scores.items())
        if score is not None and math.isfinite(score.value)
    }
    candidates: dict[str, list[int]] = defaultdict(list)
    for item in policy.assignments(len(scores)):
        if item.origin is not None and item.slot in scored:
            candidates[item.origin.model_dump_json()].append(item.slot)
    turns = zip_longest(*candidates.values())
    anchor = [slot for slot in scored if slot == 0]
    runs = [slot for turn in turns for slot in turn if slot is not None][:CANDIDATES]
    ranks = {slot: sign * dev for slot, dev in scored.items() if dev is not None}
    best = sorted((slot for slot in ranks if slot not in {0, *runs}), key=lambda slot: ranks[slot])
    best = best[: max(1, CANDIDATES - len(runs))]
    rest = [slot for slot in scored if slot not in {0, *runs, *best}]
    random.Random(seed).shuffle(rest)
    return [*anchor, *runs, *best, *rest][: max(0, looks)]


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
    calibration: Sequence[Calibration] = (),
) -> Results:
    """The results of round `number`, run under `policy`, after the rounds of `history`.

    `slots` has one row for each slot, in order; `calibration` has runs of the unmodified recipe
    from before round 1. The same rows give the same results. What the decoupling test finds in this
    round counts in its verdicts already.
    """
    rounds = (*history, round_of(number, policy, slots))
    before = Record(rounds, direction, tuple(calibration), ignored_domains(policy.trust))
    decoupled = decoupling(before)
    ignored = misleading(decoupled, before.ignored)
    record = before if ignored == before.ignored else replace(before, ignored=ignored)
    base, noise = spread(record), noise_model(record)
    found, confirmed = verdicts(record, noise, base), confirmations(record, noise)
    sentences = [
        _trials(number, policy, slots, recipe),
        _standing(base, noise),
        *_effects(found),
        *_confirmed(confirmed),
        _looks(looks, found),
        *_decoupled(decoupled, record.ignored),
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
        confirmations=confirmed,
        decoupling=decoupled,
        ignored=sorted(record.ignored),
        flagged=flagged_effect(slots, mean=base.mean, sign=record.sign, counted=record.dev),
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


def _confirmed(found: Sequence[Confirmation]) -> list[str]:
    said = [
        f"{item.runs} fresh runs on {item.axis} average {item.effect:+.4f}, bar {item.bar:.4f}"
        + (" (confirmed)" if item.is_confirmed else "")
        for item in found
        if item.effect is not None and item.bar is not None
    ]
    return [f"Replicated edits: {_first(said)}."] if said else []


def _decoupled(found: Sequence[Decoupling], ignored: Set[str]) -> list[str]:
    said = [
        f"{item.domain} (probability {item.probability:.2g}, on "
        f"{item.axis or 'the standing recipe'})"
        for item in found
        if item.verdict == "decoupled"
    ]
    alarm = [f"Dev is decoupled from external in {_first(said)}."] if said else []
    left = [f"No verdict counts dev in {_first(sorted(ignored))}."] if ignored else []
    return alarm + left


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
