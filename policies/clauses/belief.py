"""C1, C6, C9, C11 and C14: what is believed, and on what evidence."""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from statistics import fmean

from policies.canonical import canonical_json
from policies.case import Case
from policies.draft import Path, Violation
from policies.noise import quantile
from policies.policy import Constant, DeadEnd, Edit, Promotion, StandingRecipe
from policies.report import Decoupling
from policies.rows import TOLERANCE, Rows, Trial, row_names

# Chance that noise on external alone takes back a promotion that does no harm there. The reviser
# is stricter.
OVERRULED = 0.01

LOOKS = 2  # a round: an effect on external is a difference from the anchor's score


def c1_external_is_the_authority(case: Case) -> Iterator[Violation]:
    """C1: external is what the search is after, believes first and asks, and it overrules dev.

    What reads as the parent has it may stand.
    """
    policy, parent = case.policy, case.parent
    if policy.evidence_ranking != parent.evidence_ranking:
        first = policy.evidence_ranking[0] if policy.evidence_ranking else ""
        if not _EXTERNAL.search(first) or _PROXY.search(first) or _DENIED.search(first):
            reason = "the first kind of evidence is the external score, and no other beside it"
            yield case.breach("C1", ("evidence_ranking",), reason)
    if policy.objective != parent.objective:
        goal = _EXTERNAL.search(policy.objective)
        if goal is None or _PROXY_FIRST.search(policy.objective[: goal.start()]):
            reason = "the objective is the external score, and names it first"
            yield case.breach("C1", ("objective",), reason)
        elif any(way.search(policy.objective) for way in _against(case.facts.direction)):
            reason = f"the substrate's direction is to {case.facts.direction} the external score"
            yield case.breach("C1", ("objective",), reason)
    least = min(LOOKS, parent.budget.looks, case.facts.looks_per_round, case.facts.looks_left)
    if policy.budget.looks < least:
        reason = f"external is asked: {least} looks a round at least"
        yield case.breach("C1", ("budget", "looks"), reason)
    for i, promotion in case.promotions():
        if (said := _overruled(promotion, case.facts.rows)) is not None:
            path = ("standing_recipe", "provenance", i)
            yield case.breach("C1", path, f"external overrules what dev says for it: {said}")


def c6_no_threshold_is_lowered(case: Case) -> Iterator[Violation]:
    """C6: the noise is not below the computed one, nor what stands below the bar it had to pass."""
    policy, rows = case.policy, case.facts.rows
    if rows.newest is not None:
        computed, said = rows.newest.results.noise.model_dump(), policy.noise.model_dump()
        held = case.parent.noise.model_dump()
        for name in ("sigma", "threshold", "external_sigma"):
            least, found, before = computed[name], said[name], held[name]
            if least is None and found is not None and (before is None or found < before):
                reason = (
                    f"the evidence knows no {name} yet, and a policy claims no less than before"
                )
                yield case.breach("C6", ("noise", name), reason)
            if least is not None and (found is None or found < least - TOLERANCE):
                reason = f"the evidence computes {name} {least:.6f}, and a policy has no less"
                yield case.breach("C6", ("noise", name), reason)
        for name in ("degrees", "external_degrees", "calibration"):
            if said[name] > computed[name]:
                reason = f"the evidence has {name} {computed[name]}, and a policy claims no more"
                yield case.breach("C6", ("noise", name), reason)
    before, now = case.parent.noise.threshold, policy.noise.threshold
    seen = _seen(case)
    if seen and before is not None and (now is None or now < before - TOLERANCE):
        reason = f"the threshold was {before:.6f} when {seen[0]} was seen, which is not settled yet"
        yield case.breach("C6", ("noise", "threshold"), reason)
    for i, promotion in case.promotions():
        for found in rows.confirmations(promotion.axis, promotion.edit):
            if _same_trials(found.rows, promotion.rows) and not found.is_confirmed:
                bar = "unknown" if found.bar is None else f"{found.bar:.6f}"
                reason = f"it is not confirmed: its bar was {bar}"
                yield case.breach("C6", ("standing_recipe", "provenance", i, "effect"), reason)


def c9_claims_cite_rows_that_say_so(case: Case) -> Iterator[Violation]:
    """C9: what is cited exists, a claim finds in its rows what they hold, and so does a promotion.

    The words of a claim are for a reader. Its findings, the effect of a promotion or of a dead
    end, and the constants of the standing recipe are compared with the rows.
    """
    rows = case.facts.rows
    for path, row in _cited(case):
        if row not in rows:
            yield case.breach("C9", path, f"no row `{row}` is in this campaign")
    for i, claim in enumerate(case.policy.claims):
        if not claim.findings and claim not in case.parent.claims:
            reason = "a claim says in `findings` what at least one of its rows holds"
            yield case.breach("C9", ("claims", i, "findings"), reason)
        for j, finding in enumerate(claim.findings):
            path = ("claims", i, "findings", j)
            if finding.row not in claim.rows:
                yield case.breach("C9", path, f"claim `{claim.id}` does not cite `{finding.row}`")
            elif finding.row in rows and not rows.holds(finding):
                held = {one.what: one.value for one in rows.findings(finding.row)}
                yield case.breach("C9", path, f"`{finding.row}` holds {canonical_json(held)}")
    known = {end.id: end for end in case.parent.dead_ends}
    for i, end in enumerate(case.policy.dead_ends):
        said = _unlike(end, rows) if end.id not in known else _moved(known[end.id], end, rows)
        if said is not None:
            yield case.breach("C9", ("dead_ends", i, "effect"), said)
    for i, promotion in case.promotions():
        if (said := _unconfirmed(promotion, rows)) is not None:
            yield case.breach("C9", ("standing_recipe", "provenance", i), said)
    yield from _unexplained(case)


def c11_a_decoupled_proxy_does_not_rank(case: Case) -> Iterator[Violation]:
    """C11: where dev misleads it is not trusted, brings no candidate, and external is looked at."""
    policy, parent, newest = case.policy, case.parent, case.facts.rows.newest
    entries = {} if newest is None else {e.domain: e for e in newest.results.decoupling}
    misleading = [name for name, entry in entries.items() if entry.verdict == "decoupled"]
    for name in misleading:
        if policy.trust.get(name, "trusted") == "trusted":
            reason = f"dev has come apart from external in `{name}`: {_apart(entries[name])}"
            yield case.breach("C11", ("trust", name), f"{reason}; it is suspect or inverted")
    for name, trust in parent.trust.items():
        regained = trust != "trusted" and policy.trust.get(name, "trusted") == "trusted"
        if regained and name not in misleading:
            found = entries[name].verdict if name in entries else "no verdict"
            if found != "tracking":
                reason = f"it was {trust}, and is trusted again once dev is seen to track: {found}"
                yield case.breach("C11", ("trust", name), reason)
    facts = case.facts
    untrusted = {name for name, trust in policy.trust.items() if trust != "trusted"}
    proxies = {*misleading, *untrusted}
    wanted = min(parent.budget.looks, facts.looks_per_round, facts.looks_left)
    if proxies and policy.budget.looks < wanted:
        reason = f"while dev misleads, external is looked at: {wanted} looks a round at least"
        yield case.breach("C11", ("budget", "looks"), reason)
    for i, replicate in enumerate(policy.replicates):
        trial = facts.rows.trial(replicate.origin)
        if replicate in parent.replicates or trial is None:
            continue
        if name := _only_by_a_misleading_score(trial, proxies):
            reason = f"nothing speaks for it but its dev score in `{name}`, which misleads"
            yield case.breach("C11", ("replicates", i, "origin"), reason)
    for i, promotion in case.promotions():
        trials = [facts.rows.trial(row) for row in row_names(promotion.rows)]
        said = [_only_by_a_misleading_score(t, proxies) for t in trials if t]
        if said and all(said):
            reason = f"nothing speaks for it but dev in {sorted(set(map(str, said)))}"
            yield case.breach("C11", ("standing_recipe", "provenance", i), reason)


def c14_one_window_of_evidence(case: Case) -> Iterator[Violation]:
    """C14: it names all reports so far as its window, and they are of one substrate and one law."""
    facts, rows = case.facts, case.facts.rows
    window = rows.window()
    if case.policy.window != window:
        wanted = None if window is None else window.model_dump(mode="json")
        reason = f"the decision rests on all rounds so far: {canonical_json(wanted)}"
        yield case.breach("C14", ("window",), reason)
    for number, report in rows.reports.items():
        pins = (
            ("substrate", facts.substrate_sha256, report.results.substrate_sha256),
            ("constitution", facts.constitution_sha256, report.results.constitution_sha256),
        )
        for what, pinned, found in pins:
            if pinned != found:
                reason = f"round {number} ran under another {what}: wanted {pinned}, found {found}"
                yield Violation("C14", "", reason)
    compared: list[tuple[Path, Sequence[str]]] = [(("noise", "rows"), case.policy.noise.rows)]
    compared += [
        (("standing_recipe", "provenance", i, "rows"), promotion.rows)
        for i, promotion in case.promotions()
    ]
    for path, cited in compared:
        trials = filter(None, map(rows.trial, cited))
        versions = {trial.slot.dev.metric_version for trial in trials if trial.slot.dev}
        if len(versions) > 1:
            reason = f"these rows are of {len(versions)} versions of the metric: {sorted(versions)}"
            yield case.breach("C14", path, reason)


_EXTERNAL = re.compile(r"(?i)\bexternal\b")
_PROXY = re.compile(r"(?i)\b(dev|proxy|internal)\b")
_DENIED = re.compile(r"(?i)\b(not|no|never|ignore|without|except)\b")
_PROXY_FIRST = re.compile(
    r"(?i)\b(raise|increase|maximi[sz]e|improve|lower|reduce|minimi[sz]e|decrease)\b"
    r"(\s+\w+){0,2}\s+(dev|proxy|internal)\b"
)
_NEGLECT = "ignore|neglect|disregard|forget|hurt|harm|worsen"
_WORSE = {
    "maximise": (
        "lower|reduce|minimi[sz]e|decrease|drop|diminish|shrink|cut|sink",
        "down|low|lower|lowest|fall|drop|sink|shrink|small|smaller|worse|worst",
    ),
    "minimise": (
        "raise|increase|maximi[sz]e|grow|lift|boost",
        "up|high|higher|highest|rise|grow|climb|large|larger|worse|worst",
    ),
}


def _against(direction: str) -> tuple[re.Pattern[str], ...]:
    """Words that send the external score the wrong way: `minimise the external`, `external down`.

    Behind the score only words of its own clause count: `external, and lower dev` is about dev.
    """
    before, behind = _WORSE[direction]
    own = r"(\s+(?!(and|but|not|never|while|without|even|where|or)\b)\w+){0,3}\s+"
    return (
        re.compile(rf"(?i)\b({before}|{_NEGLECT})\b(\W+\w+){{0,3}}\W+external\b"),
        re.compile(rf"(?i)\bexternal\b{own}({behind})\b"),
    )


def _overruled(promotion: Promotion, rows: Rows) -> str | None:
    """What the looks at an edit's trials say, where it is worse than the anchors beyond noise."""
    seen = [
        (trial.verdict.external_effect, trial.verdict.external_error)
        for trial in rows.trials(promotion.axis)
        if trial.slot.edit == promotion.edit and trial.verdict is not None
    ]
    looks = [(effect, error) for effect, error in seen if effect is not None and error is not None]
    if not looks or rows.newest is None:
        return None
    mean = fmean(effect for effect, _ in looks)
    error = math.hypot(*(error for _, error in looks)) / len(looks)
    if mean >= -quantile(rows.newest.results.noise.external_degrees, OVERRULED) * error:
        return None
    return f"{mean:+.4f} over {len(looks)} looks, with a standard error of {error:.4f}"


def _seen(case: Case) -> list[str]:
    """Candidates of the parent that the draft runs again or promotes, by their origin."""
    kept = [(item.axis, item.edit) for item in case.policy.replicates]
    kept += [(item.axis, item.edit) for _, item in case.promotions()]
    return [item.origin for item in case.parent.replicates if (item.axis, item.edit) in kept]


def _cited(case: Case) -> Iterator[tuple[Path, str]]:
    """Every row that a draft cites. Dead ends of the parent are C7's, origins are C4's."""
    policy = case.policy
    known = {end.id for end in case.parent.dead_ends}
    lists: list[tuple[Path, Sequence[str]]] = [(("noise", "rows"), policy.noise.rows)]
    lists += [(("claims", i, "rows"), claim.rows) for i, claim in enumerate(policy.claims)]
    lists += [(("axes", i, "evidence"), axis.evidence) for i, axis in enumerate(policy.axes)]
    lists += [
        (("standing_recipe", "provenance", i, "rows"), promotion.rows)
        for i, promotion in enumerate(policy.standing_recipe.provenance)
    ]
    lists += [
        (("dead_ends", i, "rows"), end.rows)
        for i, end in enumerate(policy.dead_ends)
        if end.id not in known
    ]
    return ((((*path, j), row)) for path, cited in lists for j, row in enumerate(cited))


def _unlike(end: DeadEnd, rows: Rows) -> str | None:
    """How the effect of a dead end is not that of its rows."""
    trials = [rows.trial(row) for row in end.rows if row in rows]
    if any(trial is None or trial.slot.axis != end.axis for trial in trials):
        return f"its rows are trials of its axis `{end.axis}`"
    effects = [t.verdict.effect for t in trials if t and t.verdict and t.verdict.effect is not None]
    if not effects:
        return None if end.effect is None else "none of its rows has an effect: it must be null"
    low, high = min(effects) - TOLERANCE, max(effects) + TOLERANCE
    if end.effect is not None and low <= end.effect <= high:
        return None
    return f"the effects of its rows lie between {min(effects):.4f} and {max(effects):.4f}"


def _moved(old: DeadEnd, new: DeadEnd, rows: Rows) -> str | None:
    """How the effect of a dead end to which trials were added is neither as it was nor theirs."""
    added = set(row_names(new.rows)) - set(row_names(old.rows))
    if new.effect == old.effect or not added or any(row not in rows for row in new.rows):
        return None  # what was not to be changed at all is C7's
    trials = [rows.trial(row) for row in row_names(new.rows)]
    effects = [t.verdict.effect for t in trials if t and t.verdict and t.verdict.effect is not None]
    mean = fmean(effects) if effects else None
    if mean is None or new.effect is None:
        return None if mean is new.effect else f"the mean effect of its rows is {mean}"
    return None if abs(mean - new.effect) <= TOLERANCE else f"its rows have the mean {mean:.4f}"


def _unconfirmed(promotion: Promotion, rows: Rows) -> str | None:
    """How a promotion is not what a report says of the fresh runs of its edit."""
    newest = rows.confirmations(promotion.axis, promotion.edit)[-1:]
    if not newest or not _same_trials(newest[0].rows, promotion.rows):
        return "no report counts these rows as all fresh runs of this edit on this axis"
    channels = (newest[0].effect, newest[0].external_effect)
    effects = [effect for effect in channels if effect is not None]
    if any(abs(effect - promotion.effect) <= TOLERANCE for effect in effects):
        return None
    return f"the report has the effect {canonical_json(effects)}"


def _unexplained(case: Case) -> Iterator[Violation]:
    """What stands in the recipe and no promotion stands for, and what of one does not stand.

    A constant changes by a promotion that is new, or falls back to the last that is left where the
    promotion that set it was taken out.
    """
    recipe, before = case.policy.standing_recipe, case.parent.standing_recipe
    left = recipe.provenance
    merged = [(i, promotion.edit) for i, promotion in case.promotions()]
    gone = [item.edit for item in before.provenance if item not in left]
    orphan = "its promotion was taken out of the provenance: what that merged goes with it"
    reason = "what is new in the standing recipe is what a promotion in its provenance merged"
    for file, constants in recipe.overrides.items():
        for name, value in constants.items():
            path = ("standing_recipe", "overrides", file, name)
            stood = _sets(Edit(overrides=before.overrides), file, name, value)
            setters = [item.edit for item in left if name in item.edit.overrides.get(file, {})]
            explained = bool(setters) and _sets(setters[-1], file, name, value)
            was_set = any(name in edit.overrides.get(file, {}) for edit in gone)
            is_new = any(name in edit.overrides.get(file, {}) for _, edit in merged)
            if not stood and not (explained and (is_new or was_set)):
                yield case.breach("C9", path, reason)
            elif any(_sets(edit, file, name, value) for edit in gone) and not explained:
                yield case.breach("C9", path, orphan)
    for i, patch in enumerate(recipe.patches):
        path = ("standing_recipe", "patches", i)
        is_new = patch in [edit.patch for _, edit in merged]
        if recipe.patches.index(patch) < i or (patch not in before.patches and not is_new):
            yield case.breach("C9", path, reason)
        elif patch in [edit.patch for edit in gone] and patch not in [e.edit.patch for e in left]:
            yield case.breach("C9", path, orphan)
    for i, edit in merged:
        later = [item.edit for item in left[i + 1 :]]
        if (missing := _unmerged(edit, later, recipe)) is not None:
            said = f"a promotion is merged whole: `{missing}` of it is not in the standing recipe"
            yield case.breach("C9", ("standing_recipe", "provenance", i, "edit"), said)


def _unmerged(edit: Edit, later: Sequence[Edit], recipe: StandingRecipe) -> str | None:
    """The first part of a promoted edit that the recipe lacks, and that none later has set anew."""
    stands = Edit(overrides=recipe.overrides)
    for file, constants in edit.overrides.items():
        for name, value in constants.items():
            is_set_anew = any(name in other.overrides.get(file, {}) for other in later)
            if not is_set_anew and not _sets(stands, file, name, value):
                return name
    return edit.patch if edit.patch is not None and edit.patch not in recipe.patches else None


def _sets(edit: Edit, file: str, name: str, value: Constant) -> bool:
    constants = edit.overrides.get(file, {})
    return name in constants and _same(constants[name], value)


def _same(one: Constant, other: Constant) -> bool:
    return canonical_json(one) == canonical_json(other)


def _same_trials(one: Sequence[str], other: Sequence[str]) -> bool:
    return set(row_names(one)) == set(row_names(other))


def _apart(entry: Decoupling) -> str:
    if entry.dev_change is None or entry.external_change is None:
        return "the report says so"
    return f"dev {entry.dev_change:+.4f}, external {entry.external_change:+.4f}"


def _only_by_a_misleading_score(trial: Trial, misleading: Collection[str]) -> str | None:
    """The misleading domain whose dev score is all that an edit raises, if there is one."""
    verdict = trial.verdict
    if verdict is None or not misleading or (verdict.external_effect or 0) > 0:
        return None
    parts = verdict.domains
    whole = sum(part.effect * part.n for part in parts.values()) if parts else verdict.effect
    if "overall" in misleading and (whole or 0) > 0:
        return "overall"
    raised = {name for name, part in parts.items() if part.effect > 0}
    found = sorted(raised.intersection(misleading))
    return found[0] if found and raised.issubset(misleading) else None
