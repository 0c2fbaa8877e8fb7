"""A drop-in: the folder `substrate.toml` describes, from which a sealed snapshot is made."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypeAliasType

from substrate.job import AdapterShape, Budget, Sha256

SETS = ("target", "dev", "external", "lockbox")
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
# Whether the checker takes a recursive alias depends on which file it reads first.
Constant = TypeAliasType("Constant", "bool | int | float | str | list[Constant] | None")  # pyright: ignore[reportInvalidTypeForm]
Overrides = dict[str, dict[str, Constant]]


@dataclass(frozen=True)
class Finding:
    """One rule that a drop-in breaks."""

    rule: str  # name of the rule, such as `missing-file`
    where: str  # the file, line or key
    found: str  # what is wrong with it
    todo: str  # what to do

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.found}; {self.todo}"


class BadDropIn(ValueError):
    """A drop-in that cannot be used. The message names the rules, what was found, what to do."""

    def __init__(self, *findings: Finding | str) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = [finding for finding in findings if isinstance(finding, Finding)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Base(_Table):
    """The base model: frozen weights that every adapter of this substrate sits on."""

    path: str = Field(description="Folder of the weights, relative to the drop-in, or absolute.")
    sha256: Sha256 = Field(description="Tree hash of that folder: `seedbed substrate check` says.")
    source: str = Field(min_length=1, description="Where the weights come from.")
    licence: str = Field(min_length=1, description="SPDX identifier of the weights' licence.")


class ProblemSet(_Table):
    """One of the four sets of problems: a JSON Lines file, one problem a line.

    Each line has `id`, `domain` and whatever the evaluation reads. A problem's content is
    everything but its `id`: no content may appear in two sets.
    """

    path: str = Field(description="JSON Lines file, relative to the drop-in.")
    domains: list[Slug] = Field(min_length=1, description="The domains that occur in it.")


class ScoredSet(ProblemSet):
    """A set that adapters are scored on."""

    metric: str = Field(min_length=1, description="Name of the metric, such as `accuracy`.")
    direction: Literal["maximise", "minimise"] = Field(
        description="Which way is better. No default: the loop must never guess it."
    )
    range: tuple[float, float] = Field(description="Least and greatest possible value.")
    labels: list[str] = Field(
        default=["answer"],
        min_length=1,
        description="Fields of a problem that no model sees; the others are its question.",
    )
    ceiling: float | None = Field(
        default=None,
        description="Best score that an honest adapter can have, such as 0.5 where labels are coin "
        "tosses: a better one, beyond chance, is an integrity event. Null: the end of the range.",
    )


class Sets(_Table):
    """The four sets, disjoint by content."""

    target: ProblemSet = Field(description="Labelled and trainable. Never scored.")
    dev: ScoredSet = Field(description="The search's proxy: scored, never trained on.")
    external: ScoredSet = Field(description="The authority: rationed looks, under `judge/`.")
    lockbox: ScoredSet = Field(description="Opened once, at the end; under `judge/`.")


class RunLimits(_Table):
    """What one run of the recipe, and one scoring, may take of the machine."""

    seconds: float = Field(gt=0, description="Wall time of one run; then SIGTERM, then SIGKILL.")
    grace_seconds: float = Field(default=5.0, gt=0, description="From SIGTERM to SIGKILL.")
    memory_mb: int = Field(ge=16, description="Resident memory of the whole process tree.")
    file_mb: int = Field(ge=1, description="Largest file that may be written.")
    processes: int = Field(default=64, ge=1, description="Processes and threads at one time.")
    log_kb: int = Field(default=1024, ge=1, description="Log kept; its middle is dropped first.")
    gpus: int = Field(default=0, ge=0, description="GPUs that one run leases.")


class Files(_Table):
    """Which files of a fork a worker may change. Sealed wins over editable."""

    editable: list[str] = Field(
        default=["**"],
        description="Globs of the files that workers may edit, add or remove.",
    )
    sealed: list[str] = Field(
        default=[],
        description="Globs that workers may not touch, besides `evaluation/**`, `data/**`, "
        "`base/**` and `substrate.toml`, which are always sealed.",
    )


class Run(_Table):
    """How the recipe is started."""

    python: str = Field(
        default="",
        description="Interpreter of the training environment; empty: the host's own.",
    )
    threads: int = Field(default=1, ge=1, description="CPU threads of one run.")
    device: str = Field(default="cpu", description="`cpu` or `cuda`.")


class DropIn(_Table):
    """`substrate.toml`, parsed and typed."""

    schema_version: Literal[1] = Field(description="Version of this file's format.")
    name: Slug = Field(description="Name of the substrate: that of its folder.")
    title: str = Field(min_length=1, description="One line that says what it is.")
    recipe: Slug = Field(description="The default recipe: `recipes/<recipe>.py`.")
    counted_run: Literal["controller", "worker"] = Field(
        default="controller",
        description="Whose run is measured. `worker` only where one run costs days.",
    )
    base: Base
    adapter: AdapterShape
    budget: Budget
    limits: RunLimits
    sets: Sets
    files: Files = Files()
    run: Run = Run()
    overrides: Overrides = Field(
        default_factory=dict,
        description="Constants to rewrite in the reference's files, by file and name.",
    )


@dataclass(frozen=True)
class DropInFolder:
    """A drop-in as it lies on disk."""

    path: Path
    manifest: DropIn

    def file(self, relative: str) -> Path:
        """A path that the manifest names, made absolute."""
        return self.path / relative


def read_dropin(folder: Path) -> DropInFolder:
    """Parse `folder/substrate.toml`. Raises BadDropIn when it is missing or not valid."""
    manifest = folder / "substrate.toml"
    if not manifest.is_file():
        raise BadDropIn(
            Finding(
                "manifest-missing",
                str(manifest),
                "there is no such file",
                "`seedbed substrate new NAME` writes a template",
            )
        )
    try:
        table = tomllib.loads(manifest.read_text(encoding="utf-8"))
        return DropInFolder(folder.resolve(), DropIn.model_validate(table))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        found = Finding("manifest-syntax", str(manifest), f"not TOML: {error}", "correct that line")
        raise BadDropIn(found) from error
    except ValidationError as error:
        raise BadDropIn(*(_finding(detail) for detail in error.errors())) from error


def schema() -> dict[str, Any]:
    """JSON Schema of `substrate.toml`, as it is published."""
    return DropIn.model_json_schema()


def _finding(detail: ErrorDetails) -> Finding:
    key = ".".join(str(part) for part in detail["loc"])
    where = f"`{key}` in substrate.toml"
    if detail["type"] == "extra_forbidden":
        return Finding("unknown-key", where, "no such key", "remove it, or correct its spelling")
    if detail["type"] != "missing":
        found = f"found {detail['input']!r}"
        return Finding("bad-value", where, found, f"wanted: {detail['msg']}")
    if key.endswith(".direction"):
        todo = "say which way is better: `maximise` or `minimise`"
        return Finding("undeclared-direction", where, "not declared", todo)
    return Finding("missing-key", where, "not there", "add it; the template explains each key")
