"""The search policy: what the campaign believes and will try next, and the one thing promoted."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypeAliasType

from policies.canonical import canonical_json, digest

SCHEMA_VERSION = 1

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# A named alias, since pydantic cannot follow a plain one that names itself.
Constant = TypeAliasType("Constant", "bool | int | float | str | list[Constant] | None")  # pyright: ignore[reportInvalidTypeForm]
Overrides = dict[str, dict[str, Constant]]
RowRef = Annotated[
    str,
    Field(
        # One spelling for a row: two could be taken for two rows.
        pattern=r"^r[1-9][0-9]{0,8}(/s(0|[1-9][0-9]{0,8})(/(dev|external)(/[a-z0-9._-]+)?)?)?$",
        description="A row of this campaign: `r3` a round, `r3/s2` a trial, `r3/s2/dev/strings` "
        "a score of one domain.",
    ),
]
Trust = Literal["trusted", "suspect", "inverted"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NumberKnob(_Part):
    """A numeric constant of a recipe and the range to draw it from."""

    kind: Literal["float", "int"]
    file: str = Field(description="File of the fork, such as `recipes/populora.py`.")
    constant: str = Field(description="Top-level constant in that file.")
    low: float = Field(description="Least value, included.")
    high: float = Field(description="Greatest value, included.")
    scale: Literal["linear", "log"] = Field(default="linear", description="How values are spread.")

    @model_validator(mode="after")
    def _range_is_one(self) -> "NumberKnob":
        if self.low > self.high:
            raise ValueError(f"low must not exceed high: found {self.low} > {self.high}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"a log scale needs low > 0: found {self.low}")
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"a range has a finite width: found {self.low} to {self.high}")
        if self.kind == "int" and max(-self.low, self.high) >= 2**63:
            raise ValueError(f"integers fit in 64 bits: found {self.low} to {self.high}")
        return self


class ChoiceKnob(_Part):
    """A constant of a recipe and the values it may take."""

    kind: Literal["choice"]
    file: str = Field(description="File of the fork, such as `recipes/populora.py`.")
    constant: str = Field(description="Top-level constant in that file.")
    choices: list[Constant] = Field(min_length=1, description="Values it may take.")


Knob = Annotated[NumberKnob | ChoiceKnob, Field(discriminator="kind")]


class Axis(_Part):
    """One direction of search: a hypothesis and the knobs that test it."""

    id: Slug = Field(description="Name of the axis, kept for the whole campaign.")
    title: str = Field(max_length=120, description="A few words.")
    hypothesis: str = Field(max_length=2000, description="What is expected to help, and why.")
    knobs: list[Knob] = Field(min_length=1, description="What may be changed.")
    status: Literal["active", "retired"] = Field(default="active")
    evidence: list[RowRef] = Field(default=[], description="Rows that speak to it.")


class Edit(_Part):
    """A change of a recipe: constants rewritten, and what constants cannot say as a patch."""

    overrides: Overrides = Field(default={}, description="Constants by file and name.")
    patch: Sha256 | None = Field(default=None, description="Stored unified diff, by hash.")

    def __eq__(self, other: object) -> bool:
        """Equal as JSON: 1, 1.0 and true are three constants, though equal to Python."""
        if not isinstance(other, Edit) or not super().__eq__(other):
            return False
        return canonical_json(self.overrides) == canonical_json(other.overrides)

    def is_empty(self) -> bool:
        return not any(self.overrides.values()) and self.patch is None


class Promotion(_Part):
    """Why a part of the standing recipe stands."""

    axis: Slug = Field(description="The axis that found it.")
    edit: Edit = Field(description="What was merged.")
    effect: float = Field(description="Mean dev effect of its replicates over the anchor.")
    rows: list[RowRef] = Field(min_length=1, description="The trials that confirmed it.")


class StandingRecipe(_Part):
    """The accumulated instructions that every fork starts from, applied to the clean snapshot.

    Patches are applied first, in order; overrides after them.
    """

    overrides: Overrides = Field(default={}, description="Constants by file and name.")
    patches: list[Sha256] = Field(default=[], description="Stored unified diffs, in order.")
    provenance: list[Promotion] = Field(default=[], description="One entry per promotion.")


class Replicate(_Part):
    """A stored edit to be run again on a fresh seed, by the controller, without an agent."""

    axis: Slug = Field(description="The axis that the edit came from.")
    edit: Edit = Field(description="The edit, relative to the standing recipe.")
    origin: RowRef = Field(description="The trial that first tried it.")


class NoiseModel(_Part):
    """How far two trials of one recipe differ by chance."""

    sigma: float | None = Field(
        default=None,
        ge=0,
        description="Standard deviation of one trial's dev score; null: unknown",
    )
    degrees: int = Field(default=0, ge=0, description="Degrees of freedom behind sigma.")
    external_sigma: float | None = Field(
        default=None, ge=0, description="The same of its external score; null: unknown."
    )
    external_degrees: int = Field(
        default=0, ge=0, description="Degrees of freedom behind external_sigma."
    )
    calibration: int = Field(
        default=0, ge=0, description="Runs from before round 1 that sigma was computed from, too."
    )
    threshold: float | None = Field(
        default=None,
        ge=0,
        description="Effect on dev below which nothing is concluded.",
    )
    rows: list[RowRef] = Field(default=[], description="The trials that it was computed from.")


class DeadEnd(_Part):
    """Something that was tried and is not worth trying again."""

    id: Slug = Field(description="Name, unique in the campaign.")
    axis: Slug = Field(description="The axis that it belongs to.")
    title: str = Field(max_length=200, description="What not to do, in a few words.")
    effect: float | None = Field(description="Mean effect on dev, null where nothing was scored.")
    rows: list[RowRef] = Field(min_length=1, description="The trials that showed it.")


class BudgetSplit(_Part):
    """How a round's slots and looks are spent."""

    replicates: int = Field(default=4, ge=0, description="Most slots given to replicates.")
    looks: int = Field(default=4, ge=0, description="External scores to obtain in a round.")


class Finding(_Part):
    """What a claim found in one row: a program can look whether the row says so."""

    row: RowRef
    what: str = Field(
        max_length=80,
        description="Of a score: `score`, `effect`, `verdict`; of a trial: `outcome`, `verdict`, "
        "`effect`, `external effect`; of a round: `sigma`, `threshold`, `tracking of DOMAIN`.",
    )
    value: float | str | None = Field(description="As the report has it, to four decimals.")


class Claim(_Part):
    """A statement with the rows that say so."""

    id: Slug
    text: str = Field(max_length=500)
    rows: list[RowRef] = Field(min_length=1, description="Rows of this campaign that say so.")
    findings: list[Finding] = Field(
        default=[], description="What these rows hold; a new claim needs one at least."
    )


class EvidenceWindow(_Part):
    """The reports that a decision rests on: those of all rounds from `first` to `last`."""

    first: int = Field(ge=1, description="First round.")
    last: int = Field(ge=1, description="Last round.")
    sha256: Sha256 = Field(description="Digest of the list of the digests of their results.")


class SearchPolicy(_Part):
    """One version of the search policy. Holds nothing of one campaign but row references."""

    schema_version: Literal[1] = 1
    version: int = Field(ge=1, description="1 for the seed policy, then one more each revision.")
    parent: Sha256 | None = Field(description="Digest of the version before it; null for the seed.")
    objective: str = Field(max_length=2000, description="What the search is after.")
    evidence_ranking: list[str] = Field(description="Kinds of evidence, strongest first.")
    trust: dict[str, Trust] = Field(
        default={},
        description="Trust in dev by domain, `overall` for all of it; trusted where none is named. "
        "Nothing is ranked by a dev score that is suspect (external does not follow it) or "
        "inverted (external falls as it rises).",
    )
    axes: list[Axis] = Field(min_length=1, description="In the order in which they get slots.")
    replicates: list[Replicate] = Field(default=[], description="Edits to run again, in order.")
    standing_recipe: StandingRecipe = StandingRecipe()
    noise: NoiseModel = NoiseModel()
    dead_ends: list[DeadEnd] = Field(default=[])
    budget: BudgetSplit = BudgetSplit()
    claims: list[Claim] = Field(default=[], description="What this revision rests on.")
    window: EvidenceWindow | None = Field(
        default=None, description="The evidence that this version rests on; null for the seed."
    )
    rationale: str = Field(default="", max_length=8000, description="Why it says what it says.")
    unchanged_because: str | None = Field(
        default=None,
        max_length=500,
        description="Set when nothing but the version changed.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> "SearchPolicy":
        for what, names in (
            ("axis", [axis.id for axis in self.axes]),
            ("dead end", [end.id for end in self.dead_ends]),
            ("claim", [claim.id for claim in self.claims]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"every {what} needs an id of its own: found twice {twice}")
        return self

    def data(self) -> dict[str, Any]:
        """The policy as JSON values."""
        return self.model_dump(mode="json")

    def text(self) -> str:
        """The policy as canonical JSON: what is stored, and what the digest is taken of."""
        return canonical_json(self.data())

    def digest(self) -> str:
        return digest(self.data())

    def active_axes(self) -> list[Axis]:
        return [axis for axis in self.axes if axis.status == "active"]

    def assignments(self, width: int) -> list["Assignment"]:
        """One assignment per slot: the anchor, then replicates, then one per active axis.

        Replicates get at most `budget.replicates` slots and always leave two for axes where there
        are two. Slots that no axis is left for re-run the standing recipe itself: they narrow
        the noise model.
        """
        axes = self.active_axes()
        room = max(0, width - 1 - min(2, len(axes)))
        replicates = self.replicates[: min(room, self.budget.replicates)]
        explored = axes[: width - 1 - len(replicates)]
        plan = [Assignment(slot=0, kind="anchor")]
        plan += [
            Assignment(
                slot,
                "replicate",
                axis=self.axis(item.axis),
                edit=item.edit,
                origin=item,
            )
            for slot, item in enumerate(replicates, start=1)
        ]
        plan += [
            Assignment(slot, "explore", axis=axis)
            for slot, axis in enumerate(explored, start=len(plan))
        ]
        plan += [Assignment(slot, "replicate", edit=Edit()) for slot in range(len(plan), width)]
        return plan

    def axis(self, axis_id: str) -> Axis:
        """The axis of that name. Raises KeyError with the names there are."""
        for axis in self.axes:
            if axis.id == axis_id:
                return axis
        raise KeyError(f"no axis {axis_id!r} in policy; there are {[a.id for a in self.axes]}")

    def brief(self, axis: Axis) -> "Brief":
        """All that a worker is told: never claims, trust, evidence, scores or siblings."""
        return Brief(
            axis=axis.title,
            hypothesis=axis.hypothesis,
            knobs=tuple(axis.knobs),
            standing_overrides=self.standing_recipe.overrides,
            dead_ends=tuple(end.title for end in self.dead_ends),
        )


@dataclass(frozen=True)
class Assignment:
    """What one slot does in one round."""

    slot: int
    kind: Literal["anchor", "explore", "replicate"]
    axis: Axis | None = None
    edit: Edit | None = None
    origin: Replicate | None = None


@dataclass(frozen=True)
class Brief:
    """A worker's brief."""

    axis: str
    hypothesis: str
    knobs: tuple[NumberKnob | ChoiceKnob, ...]
    standing_overrides: Overrides
    dead_ends: tuple[str, ...]
