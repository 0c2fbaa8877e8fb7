"""The settings of one installation: where state lives. All of it comes from the environment."""

from pathlib import Path

from platformdirs import user_config_path, user_data_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read from `SEEDBED_HOME`, `SEEDBED_DATABASE_URL` and `SEEDBED_KEYS`."""

    model_config = SettingsConfigDict(env_prefix="SEEDBED_", frozen=True)

    home: Path = Field(
        default_factory=lambda: user_data_path("seedbed"),
        description="Folder of everything that Seedbed keeps: database, snapshots, artifacts.",
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL of the database; empty: SQLite in the home folder."
    )

    keys: Path = Field(
        default_factory=lambda: user_config_path("seedbed") / "keys",
        description="File with the keys of providers, which its owner alone may read.",
    )

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{self.folder / 'seedbed.db'}"

    @property
    def folder(self) -> Path:
        return self.home.expanduser().absolute()

    @property
    def anchor(self) -> Path:
        """Heads of the ledger's hash chain; see `policies/anchor.py`."""
        return self.folder / "ledger.anchor"

    @property
    def store(self) -> Path:
        """Sealed snapshots and judges."""
        return self.folder / "store"

    @property
    def forks(self) -> Path:
        """Forks of running trials; empty when nothing runs."""
        return self.folder / "forks"

    @property
    def artifacts(self) -> Path:
        """Adapters by hash, and the logs and metrics of every trial."""
        return self.folder / "artifacts"

    @property
    def exchanges(self) -> Path:
        """What agents and models said to each other, redacted, by digest."""
        return self.artifacts / "exchanges"

    @property
    def prices(self) -> Path:
        """The user's own prices of models; see `policies/prices.toml`."""
        return self.folder / "prices.toml"

    @property
    def prefect_home(self) -> Path:
        """Prefect's own state, so that what `seedbed run` published is there after `seedbed up`."""
        return self.folder / "prefect"
