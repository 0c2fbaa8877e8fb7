"""The window of evidence of one revision: every trial so far, and what is said of it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policies.canonical import canonical_json
from policies.evidence import OVERALL
from policies.policy import Claim, DeadEnd, Edit, Replicate, SearchPolicy, StandingRecipe
from policies.report import RoundReport, SlotResult, Verdict

# What a policy grows by has bounds: it has to fit in 64 KiB after any number of rounds.
CLAIMS = 24
DEAD_ENDS = 48


@dataclass(frozen=True)
class Trial:
    """One trial that has an axis, with what its round's report says of it."""

    round: int
    slot: SlotResult
    verdict: Verdict

    @property
    def row(self) -> str:
        return f"r{self.round}/s{self.slot.slot}"


@dataclass(frozen=True)
class Window:
    """The policy in force, the report of its round, and the trials of all rounds in order."""

    policy: SearchPolicy
    report: RoundReport
    trials: tuple[Trial, ...]

    def is_new(self, trial: Trial) -> bool:
        return trial.round == self.report.round

    @property
    def misleading_axes(self) -> frozenset[str]:
        """The axes on which this round found dev decoupled from external."""
        return frozenset(
            test.axis
            for test in self.report.results.decoupling
            if test.verdict == "decoupled" and test.axis is not None
        )

    def explorations(self, axis: str, *, after: int = 0) -> list[Trial]:
        """Explorations of an axis after that round, but for those that infrastructure lost."""
        return [
            trial
            for trial in self.trials
            if trial.slot.axis == axis
            and trial.slot.kind == "explore"
            and trial.slot.outcome != "infrastructure"
            and trial.round > after
        ]

    def replicates(self, candidate: Replicate) -> list[Trial]:
        """The candidate's replicates in this round, scored or not."""
        planned = self.policy.assignments(len(self.report.results.slots))
        here = {item.slot for item in planned if item.origin == candidate}
        return [trial for trial in self.trials if self.is_new(trial) and trial.slot.slot in here]

    def standard_error(self, runs: int) -> float | None:
        """Of the mean effect of that many runs: of their mean and the standing recipe's."""
        sigma, standing = self.report.results.noise.sigma, self.report.results.spread.n
        if sigma is None or standing == 0:
            return None
        return sigma * math.sqrt(1 / runs + 1 / standing)


@dataclass
class Notes:
    """What a revision says of itself, collected on its way."""

    claims: list[Claim] = field(default_factory=list)
    dead_ends: list[DeadEnd] = field(default_factory=list)

    def claim(self, text: str, rows: Iterable[str]) -> None:
        number = f"c{len(self.claims) + 1}"
        self.claims.append(Claim(id=number, text=text[:500], rows=list(dict.fromkeys(rows))))


def read_window(
    policy: SearchPolicy, report: RoundReport, history: Sequence[RoundReport]
) -> Window:
    """The window of `report`'s round; `history` in any order, with or without `report`.

    Verdicts of earlier rounds are counted again without the domains that `report` ignores: no dev
    score of theirs takes part in a decision (C11).
    """
    reports = {past.round: past for past in [*history, report]}
    ignored, bar = report.results.ignored, report.results.noise.threshold
    trials = []
    for number in sorted(reports):
        results = reports[number].results
        verdicts = {verdict.slot: verdict for verdict in results.verdicts}
        if ignored and number != report.round:
            verdicts = {
                slot: counted_again(verdict, ignored, bar) for slot, verdict in verdicts.items()
            }
        trials += [
            Trial(number, slot, verdicts[slot.slot])
            for slot in results.slots
            if slot.slot in verdicts
        ]
    return Window(policy, report, tuple(trials))


def counted_again(verdict: Verdict, ignored: Sequence[str], bar: float | None) -> Verdict:
    """The verdict without the effects of ignored domains, at the present threshold."""
    kept = [part for name, part in verdict.domains.items() if name not in ignored]
    problems = sum(part.n for part in kept)
    if not problems or OVERALL in ignored or bar is None or verdict.effect is None:
        unknown = {"effect": None, "low": None, "high": None, "verdict": "unresolved"}
        return verdict.model_copy(update=unknown)
    effect = math.fsum(part.effect * part.n for part in kept) / problems
    word = "better" if effect > bar else "worse" if effect < -bar else "unresolved"
    return verdict.model_copy(
        update={"effect": effect, "low": effect - bar, "high": effect + bar, "verdict": word}
    )


def last_change(standing: StandingRecipe, axis: str | None = None) -> int:
    """The last round that promoted something, or something of that axis; 0 for none."""
    return max(
        (
            int(row.partition("/")[0].removeprefix("r"))
            for promotion in standing.provenance
            if axis in (None, promotion.axis)
            for row in promotion.rows
        ),
        default=0,
    )


def spell(edit: Edit) -> str:
    """An edit in a few words, such as `LEARNING_RATE = 0.003 in recipes/sft.py`."""
    parts = [
        f"{name} = {canonical_json(value)} in {file}"
        for file, values in sorted(edit.overrides.items())
        for name, value in sorted(values.items())
    ]
    if edit.patch is not None:
        parts.append(f"patch {edit.patch[:12]}")
    words = ", ".join(parts)
    return words if len(words) <= 160 else f"{words[:157]}..."
