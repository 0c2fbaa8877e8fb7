"""Trust in dev after an alarm: what misleads, what the search asks for, and what it takes back."""

from collections.abc import Sequence
from statistics import fmean

from agents.window import Notes, Trial, Window, spell
from policies.evidence import OVERALL
from policies.noise import quantile, threshold
from policies.policy import Overrides, Promotion, SearchPolicy, StandingRecipe, Trust
from policies.report import Decoupling

INVERTED = 0.05  # chance that noise makes external seem to fall where dev rises
KEPT = 0.05  # chance that noise keeps a promotion that does nothing where dev is trusted

_ASKED = " Dev misleads in "


def trust_after(window: Window, notes: Notes) -> dict[str, Trust]:
    """The policy's trust after the round's decoupling test.

    Where dev is decoupled, trust is `inverted` if external falls beyond noise as dev rises, else
    `suspect`. It comes back when dev is seen to track again, on edits that were not chosen by it.
    """
    trust = dict(window.policy.trust)
    for test in window.report.results.decoupling:
        lost = trust.get(test.domain, "trusted") != "trusted"
        if lost and test.verdict == "tracking":
            trust[test.domain] = "trusted"
            notes.claim(f"Dev is trusted again in {test.domain}: external follows.", test.rows)
        if test.verdict != "decoupled" or trust.get(test.domain) == "inverted":
            continue
        word: Trust = "inverted" if _falls(test, window) else "suspect"
        if trust.get(test.domain) == word:
            continue
        trust[test.domain] = word
        where = "overall" if test.domain == OVERALL else f"in {test.domain}"
        notes.claim(
            f"Dev is {word} {where}: it rose by {test.dev_change:+.4f} and external by "
            f"{test.external_change:+.4f} (probability {test.probability:.2g} if it tracked).",
            test.rows,
        )
    return trust


def asked_for(policy: SearchPolicy, trust: dict[str, Trust]) -> tuple[str, list[str]]:
    """Objective and ranking of evidence, which say what is sought where dev misleads (C11)."""
    lost = sorted(name for name, word in trust.items() if word != "trusted")
    if not lost:
        return policy.objective, policy.evidence_ranking
    where = ", ".join("all domains" if name == OVERALL else name for name in lost)
    said = (
        f"{_ASKED}{where}: it ranks nothing there. Wanted are edits that improve external, and "
        "edits that lower dev there and hold it elsewhere."
    )
    plain = policy.objective.partition(_ASKED)[0]
    ranking = [name for name in policy.evidence_ranking if not name.startswith("dev")]
    if OVERALL not in lost:
        ranking.append(f"dev without {where}")
    return f"{plain[: 2000 - len(said)]}{said}"[:2000], ranking


def withdraw(window: Window, notes: Notes) -> StandingRecipe:
    """The standing recipe without promotions that only dev as it was trusted before speaks for.

    Asked once for each alarm, of every promotion: whether the runs that confirmed it were better
    where dev is still trusted, or, where none of it is, on external.
    """
    standing, results = window.policy.standing_recipe, window.report.results
    before = {name for name, word in window.policy.trust.items() if word != "trusted"}
    if set(results.ignored) <= before:
        return standing
    trials = {trial.row: trial for trial in window.trials}
    gone = []
    for promotion in standing.provenance:
        runs = [trials[row] for row in _trials(promotion) if row in trials]
        effect, bar = _effect(runs, window)
        if runs and (effect is None or effect <= bar):
            gone.append(promotion)
            said = "unknown" if effect is None else f"{effect:+.4f}, bar {bar:.4f}"
            notes.claim(
                f"{spell(promotion.edit)} is withdrawn: without dev in "
                f"{', '.join(results.ignored)} its effect is {said}.",
                promotion.rows,
            )
    return without(standing, gone)


def without(standing: StandingRecipe, gone: Sequence[Promotion]) -> StandingRecipe:
    """The standing recipe without some of its promotions.

    A constant that one of them set takes the value of the latest that is left, or the recipe's own.
    """
    if not gone:
        return standing
    overrides: Overrides = {file: dict(values) for file, values in standing.overrides.items()}
    for promotion in gone:
        for file, values in promotion.edit.overrides.items():
            for name in values:
                overrides.get(file, {}).pop(name, None)
    kept = [promotion for promotion in standing.provenance if promotion not in gone]
    for promotion in kept:
        for file, values in promotion.edit.overrides.items():
            overrides.setdefault(file, {}).update(values)
    patches = {promotion.edit.patch for promotion in gone}
    return StandingRecipe(
        overrides={file: values for file, values in overrides.items() if values},
        patches=[patch for patch in standing.patches if patch not in patches],
        provenance=kept,
    )


def _falls(test: Decoupling, window: Window) -> bool:
    change, error = test.external_change, test.external_error
    if change is None or error is None:
        return False
    return change < -quantile(window.report.results.noise.external_degrees, INVERTED) * error


def _trials(promotion: Promotion) -> list[str]:
    return list(dict.fromkeys("/".join(row.split("/")[:2]) for row in promotion.rows))


def _effect(runs: Sequence[Trial], window: Window) -> tuple[float | None, float]:
    """The mean effect of some runs where dev is trusted, else on external, and its bar."""
    noise, base = window.report.results.noise, window.report.results.spread
    effects = [run.verdict.effect for run in runs if run.verdict.effect is not None]
    bar = (
        threshold(noise, runs=len(effects), standing=base.n, comparisons=1, level=KEPT)
        if (effects)
        else None
    )
    if bar is not None:
        return fmean(effects), bar
    looks = [run.verdict.external_effect for run in runs if run.verdict.external_effect is not None]
    return (fmean(looks), 0.0) if looks else (None, 0.0)
