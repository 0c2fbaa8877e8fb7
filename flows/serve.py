"""Serves the deployments of `seedbed up`, against the server in PREFECT_API_URL.

`python -m flows.serve` is the process that does. A run of a deployment is its child, which loads
the flow by its module name, so that it does not matter from which folder this one was started.
"""

import asyncio
from typing import Any

from prefect import Flow, aserve
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from flows.campaign import campaign, export, resume
from flows.house import open_house
from flows.keeping import calibrate, verify
from flows.publish import publish_outbox

CAMPAIGN = """\
Start a campaign: **Run → Custom run** shows its plan as a form. **Schedules** takes a plan too, and
every time one fires is a campaign of its own.

After each round the run's *Artifacts* tab has the round report, the scores and the policy diff.
[All artifacts](/v2/artifacts) lists them by key, `CAMPAIGN-index` first. What was recorded stays in
the ledger: `seedbed report`, `seedbed policy diff`.
"""
RESUME = """\
Go on with a campaign that was stopped or whose process died, after its last recorded trial. Its id
is in the run's result, in its artifacts' keys, and in `seedbed report`.
"""
EXPORT = """\
End a campaign whose rounds are done: its candidate is run on fresh seeds beside the recipe that the
campaign began with, its lockbox is opened **once**, and the adapter is written with a model card,
which is the artifact `CAMPAIGN-card`.
"""
CALIBRATE = """\
Run a substrate's unmodified recipe on fresh seeds, and the probes that must not beat it. Campaigns
on that snapshot, recipe and budget that start afterwards know the noise from round 1.
"""
VERIFY = """\
Check everything that the ledger vouches for: chain, anchor, substrates, adapters, reports. The run
fails with the first thing that was tampered with.
"""


async def main() -> None:
    ledger = open_house().ledger
    for row in ledger.campaigns():
        await publish_outbox(ledger, row.id)  # what a campaign could not publish when it ran
    """Register the deployments and run what is scheduled of them, until SIGTERM."""
    await aserve(
        await _deployment(campaign, CAMPAIGN),
        await _deployment(resume, RESUME),
        await _deployment(export, EXPORT),
        await _deployment(calibrate, CALIBRATE),
        await _deployment(verify, VERIFY),
        # Schedules outlive `seedbed down`: they fire again after the next `seedbed up`.
        pause_on_shutdown=False,
        print_starting_message=False,
    )


async def _deployment(served: Flow[..., Any], description: str) -> RunnerDeployment:
    deployment = await served.ato_deployment(
        served.name,
        description=description,
        tags=["seedbed"],
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    # It comes with an empty list of schedules, which would remove those that people added.
    deployment.model_fields_set.discard("schedules")
    return deployment


if __name__ == "__main__":
    asyncio.run(main())
