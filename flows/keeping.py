"""Keeping: the flows that calibrate substrates and verify what is on record."""

from prefect import flow

from flows.calibrate import RUNS, Summary, calibrations_of, find_subject
from flows.calibrate import calibrate as measure_baseline
from flows.house import open_house
from flows.verify import verify as checks_of
from policies.baseline import faults
from policies.escape import visible


class Tampered(RuntimeError):
    """Something is not as it was recorded. The message names the first such thing."""


class BadBaseline(RuntimeError):
    """A degenerate probe beats the baseline, or there is none. The message names the rules."""


@flow(name="calibrate")
async def calibrate(
    substrate: str, recipe: str = "", rollouts: int = 0, runs: int = RUNS
) -> list[Summary]:
    """Measure the baseline and the noise of a substrate's unmodified recipe.

    Args:
        substrate: Name of a drop-in, or a path to one.
        recipe: Recipe to run; empty: the substrate's default.
        rollouts: Rollouts of a run; 0: what the substrate declares.
        runs: Seeds on which the recipe is run.
    """
    house = open_house()
    subject = find_subject(house, substrate, recipe, rollouts)
    rows = await measure_baseline(house, subject, runs=runs)
    if found := faults(rows, subject.snapshot.manifest.sets.dev.direction):
        raise BadBaseline("\n".join(found))
    return calibrations_of(house, subject.snapshot.manifest.name)


@flow(name="verify")
def verify(campaign_id: str = "") -> list[str]:
    """Check everything that the ledger vouches for.

    Args:
        campaign_id: Only what belongs to this campaign; empty: all of them.
    """
    said = []
    for check in checks_of(campaign_id or None):
        said.append(visible(f"{check.state}: {check.what}: {check.found}"))
        if check.state == "tampered":
            raise Tampered(said[-1])
    return said
