"""The house: the ledger and the store of one installation, opened once per process."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flows.plan import Plan
from flows.settings import Settings
from policies.anchor import drop_anchor
from policies.database import UNREADABLE, is_there
from policies.ledger import Ledger
from policies.policy import SearchPolicy
from policies.report import RoundReport
from policies.tables import Campaign
from substrate.store import Judge, Snapshot, Store


class BadHome(RuntimeError):
    """The home folder cannot be used."""


@dataclass(frozen=True)
class House:
    """What every part of a campaign works with."""

    settings: Settings
    ledger: Ledger
    store: Store

    def campaign(self, campaign_id: str) -> Campaign:
        return self.ledger.campaign(campaign_id)

    def plan(self, campaign_id: str) -> Plan:
        return Plan.model_validate_json(self.campaign(campaign_id).plan)

    def snapshot(self, campaign_id: str) -> Snapshot:
        return self.store.open(self.campaign(campaign_id).substrate_sha256)

    def judge(self, campaign_id: str) -> Judge:
        return self.store.open_judge(self.campaign(campaign_id).judge_sha256)

    def policy(self, campaign_id: str, version: int | None = None) -> SearchPolicy:
        """That version of the campaign's policy; without a version, the one that stands."""
        return SearchPolicy.model_validate_json(self.ledger.policy(campaign_id, version).body)

    def policy_of_round(self, campaign_id: str, number: int) -> SearchPolicy:
        return self.policy(campaign_id, self.ledger.round(campaign_id, number).policy_version)

    def reports(self, campaign_id: str) -> list[RoundReport]:
        """The campaign's round reports, oldest first."""
        rows = self.ledger.reports(campaign_id)
        return [RoundReport.model_validate_json(row.body) for row in rows]

    def trial_folder(self, campaign_id: str, number: int, slot: int) -> Path:
        """Where the log and the metrics of a trial's counted run are kept."""
        return self.settings.artifacts / campaign_id / f"r{number}" / f"s{slot}"

    def drop_anchor(self) -> None:
        """Write the ledger's head to the anchor: what came before can then not be rewritten."""
        drop_anchor(self.ledger, self.settings.anchor)

    @property
    def adapters(self) -> Path:
        """Sealed adapters, each in a folder named by its hash."""
        return self.settings.artifacts / "adapters"


def open_house() -> House:
    """The house that the environment names. Creates its folders and migrates its database.

    Raises BadHome where there can be no such folder or no connection,
    policies.database.UnknownSchema.
    """
    settings = Settings()
    return _opened(settings.home, settings.database_url)


def open_existing_house() -> House:
    """The same, where there is a ledger that can be read. Raises BadHome, and makes nothing."""
    settings = Settings()
    if not is_there(settings.url):
        raise BadHome(
            f"wanted a ledger in {settings.folder}, found none; see to SEEDBED_HOME, or start a "
            "campaign with `seedbed run`"
        )
    return open_house()


@cache
def _opened(home: Path, database_url: str) -> House:
    settings = Settings(home=home, database_url=database_url)
    for folder in (settings.store, settings.forks, settings.artifacts, settings.prefect_home):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadHome(
                f"wanted a folder for everything that Seedbed keeps at {settings.folder}, found: "
                f"{error}; set SEEDBED_HOME to a folder that you may write"
            ) from error
    try:
        ledger = Ledger(settings.url)
    except (UNREADABLE, OSError) as error:
        found = error.orig if isinstance(error, UNREADABLE) else error
        raise BadHome(
            f"wanted to read the ledger of {settings.folder}, found: {found}; see to its server, "
            "or to the disk, since SQLite has to write beside the file that it reads, and to "
            "SEEDBED_DATABASE_URL"
        ) from error
    return House(settings, ledger, Store(settings.store))
