"""The mendable: errors that a user can do something about, as a message and an exit code."""

import sys


def explain(error: Exception) -> tuple[str, int] | None:
    """Message and exit code for what a user can mend; None for a bug of ours."""
    from pydantic import ValidationError

    from agents.journal import ReplayDiverged
    from agents.line import NoLine
    from agents.messages import ProviderFailure
    from agents.model import UnknownModel
    from agents.worker import UnknownWorker
    from flows.clean_run import RunFailed
    from flows.compare import BadComparison
    from flows.dossier import BadPlace
    from flows.exchanges import ExchangeDamaged
    from flows.export import ExportFailed
    from flows.finale import CampaignUnfinished, NothingToExport
    from flows.foreground import Interrupted
    from flows.house import BadHome
    from flows.lease import Busy, LeaseLost
    from flows.roles import BadRole
    from flows.start import BadPlan
    from policies.constitution import ConstitutionChanged
    from policies.database import UnknownSchema
    from policies.ledger import NotInLedger
    from policies.prices import BadPrices
    from policies.rollback import BadRollback
    from policies.why import NothingSaid
    from substrate.dropin import BadDropIn
    from substrate.isolation import NoWalls
    from substrate.store import NoSnapshot, SnapshotDamaged

    if isinstance(error, ExceptionGroup):
        explained = [explain(inner) for inner in error.exceptions]
        return explained[0] if all(explained) else None
    if isinstance(error, Interrupted):
        return str(error), 130
    if isinstance(error, ValidationError) and error.title == "Plan":
        faults = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return "the plan is not valid: " + "; ".join(faults), 2
    refused = (BadDropIn, BadPlan, UnknownWorker, NotInLedger, Busy, LeaseLost)
    refused = (*refused, BadRole, BadPrices, NoLine, NoWalls, ProviderFailure, UnknownModel)
    refused = (*refused, BadRollback, NothingSaid, RunFailed, CampaignUnfinished)
    refused = (*refused, BadComparison, BadPlace, ReplayDiverged, ExchangeDamaged)
    damaged = (
        ExportFailed,
        NothingToExport,
        BadHome,
        NoSnapshot,
        SnapshotDamaged,
        UnknownSchema,
        ConstitutionChanged,
    )
    if isinstance(error, (*refused, *damaged)):
        return str(error), 2
    if "prefect" in sys.modules:
        from prefect.exceptions import CancelledRun

        from flows.server import ServerFailed

        if isinstance(error, CancelledRun):
            return str(error), 3
        if isinstance(error, ServerFailed):
            return str(error), 2
    return None
