"""The files that host and recipe exchange: `job.json` in; `metrics.jsonl` and `result.json` out.

Host and recipe share no code and no process: whatever reads the one file and writes the two others
is a recipe. The JSON Schemas of the three are published in `substrate/schemas/`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_File):
    """What a run may use. Counted in rollouts, so that a run is reproducible."""

    rollouts: int = Field(
        ge=1,
        description="Completions the recipe may sample, all in all, but for measurements that "
        "nothing in its run depends on.",
    )
    tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens after which it begins no further step; null: no bound.",
    )


class AdapterShape(_File):
    """The LoRA adapter that a trial delivers."""

    rank: int = Field(ge=1, description="Rank r of the two LoRA factors.")
    alpha: float = Field(gt=0, description="LoRA alpha: the update is alpha / rank * B @ A.")
    target_modules: list[str] = Field(
        min_length=1,
        description="Names (last path component) of the modules that may be adapted.",
    )


class Job(_File):
    """`out/job.json`: the orders of one run. Paths are relative to the fork's root."""

    schema_version: Literal[1] = 1
    recipe: str = Field(description="The program to run, such as `recipes/rlvr.py`.")
    seed: int = Field(ge=0, lt=2**63, description="The one source of random numbers of this run.")
    budget: Budget = Field(description="Rollouts that the run may use.")
    seconds: float = Field(gt=0, description="Wall time after which the recipe should wrap up.")
    threads: int = Field(ge=1, description="CPU threads; fixed, since results depend on it.")
    device: str = Field(description="`cpu`, or `cuda:N` of a leased GPU.")
    base: str = Field(description="Folder of the base model.")
    target: str = Field(description="The target set: labelled problems that may be trained on.")
    adapter: AdapterShape = Field(description="The shape that the delivered adapter must have.")
    checkpoint: str | None = Field(
        default=None,
        description="Folder of a checkpoint of this same run to go on from.",
    )
    smoke: bool = Field(default=False, description="Two steps only: does the recipe run at all?")


class Result(_File):
    """`out/result.json`: what the recipe says of its run. Claims; nothing here is a score."""

    schema_version: Literal[1] = 1
    state: Literal["finished", "stopped", "diverged", "failed"] = Field(
        description="`finished`: budget used up; `stopped`: by time or SIGTERM, adapter usable; "
        "`diverged`: a loss was not finite; `failed`: see `error`."
    )
    rollouts: int = Field(ge=0, description="Completions sampled.")
    tokens: int = Field(ge=0, description="Tokens sampled.")
    adapter: str | None = Field(description="Folder of the adapter, relative to the fork's root.")
    checkpoints: list[str] = Field(
        default_factory=list, description="Folders of checkpoints, oldest first."
    )
    data_sha256: dict[str, Sha256] = Field(
        default_factory=dict,
        description="Hash of every file of training data that was read.",
    )
    error: str | None = Field(default=None, description="What went wrong, for `failed`.")


class MetricsRow(BaseModel):
    """One line of `out/metrics.jsonl`. Further keys are the recipe's own; values are JSON."""

    model_config = ConfigDict(extra="allow", frozen=True)
    step: int = Field(ge=0, description="Optimiser step, from 0.")
    rollouts: int = Field(ge=0, description="Rollouts used so far.")
    loss: float | None = Field(default=None, description="Training loss; null if not finite.")


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schemas by file name, as they are published."""
    return {
        "job.schema.json": Job.model_json_schema(),
        "result.schema.json": Result.model_json_schema(),
        "metrics-row.schema.json": MetricsRow.model_json_schema(),
    }
