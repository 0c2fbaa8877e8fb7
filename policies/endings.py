"""The end of a campaign in words and numbers: its verdict, and the scores of its fresh runs."""

from collections.abc import Mapping, Sequence

from policies.baseline import baseline
from policies.cells import Block, Cell, Code, Paragraph, Said, Strong, Table
from policies.final import Effect
from policies.report import SetScore
from policies.tables import Arm, FinalRun

ARMS: tuple[Arm, ...] = ("candidate", "baseline")


def end_verdict(runs: Sequence[FinalRun], external: Effect | None) -> Cell:
    """Whether the candidate is confirmed on fresh seeds, by its external score."""
    if not any(run.arm == "baseline" for run in runs):
        return (
            Strong("No gain was found:"),
            " the campaign promoted nothing, and this is the recipe that it began with.",
        )
    if external is None:
        said = " candidate and baseline cannot be compared on external."
        return (Strong("Not confirmed:"), said)
    said = f"{external.effect:+.4f} on external ({external.low:+.4f} to {external.high:+.4f})"
    if external.is_confirmed:
        against = f" {said} against the recipe that it began with."
        return (Strong("Confirmed on fresh seeds:"), against)
    chance = f" {said}; the interval does not exclude no gain."
    return (Strong("Not confirmed on fresh seeds:"), chance)


def end_scores(runs: Sequence[FinalRun], lockbox: Mapping[Arm, SetScore]) -> Table:
    """Means over the fresh runs with their spread; the lockbox is of the exported adapter alone."""
    rows: list[tuple[Cell, ...]] = []
    for arm in ARMS:
        own = [run for run in runs if run.arm == arm]
        texts = {
            "dev": [run.dev for run in own if run.dev],
            "external": [run.external for run in own if run.external],
        }
        for name, found in texts.items():
            scores = [SetScore.model_validate_json(text) for text in found]
            base = baseline([score.value for score in scores])
            if base is not None:
                sigma = "unknown" if base.sigma is None else f"{base.sigma:.4f}"
                cells = (f"{base.mean:.4f}", sigma, str(base.n), str(scores[0].n))
                rows.append((arm, name, *cells, Code(scores[0].metric)))
        if arm in lockbox:
            score = lockbox[arm]
            cells = (f"{score.value:.4f}", "one run", "1", str(score.n))
            rows.append((arm, "lockbox", *cells, Code(score.metric)))
    return Table(("recipe", "set", "score", "sigma of a run", "runs", "problems", "metric"), rows)


def lockbox_blocks(lockbox: Mapping[Arm, SetScore]) -> list[Block]:
    """What an opened lockbox says of each domain."""
    if not lockbox:
        no_score = "The lockbox was opened and no score came of it: it is not opened again."
        return [Paragraph([no_score])]
    domains = [
        (arm, Said(domain), f"{part.value:.4f}", str(part.n))
        for arm in ARMS
        if arm in lockbox
        for domain, part in sorted(lockbox[arm].domains.items())
    ]
    return [Table(("recipe", "lockbox, domain", "score", "problems"), domains)]
