"""The rows of a campaign as its reports hold them: looked up by reference, attested, in a window.

r3                 a round: its noise, and whether dev tracks external
r3/s2              a trial: its outcome, and what its round's report says of it
r3/s2/dev          a score over a whole set, `r3/s2/dev/overall` too
r3/s2/dev/strings  a score in one domain
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from policies.canonical import digest
from policies.evidence import OVERALL
from policies.policy import Claim, Edit, EvidenceWindow, Finding, SearchPolicy
from policies.report import Confirmation, RoundReport, SetScore, SlotResult, Verdict

FINDINGS = 4  # most rows of one claim that are attested: a policy has to fit in 64 KiB
TOLERANCE = 5.1e-5  # reports print four decimals: a number that was read there is that number


@dataclass(frozen=True)
class Place:
    """A reference taken apart; what it does not name is None."""

    round: int
    slot: int | None = None
    problem_set: str | None = None
    domain: str | None = None


@dataclass(frozen=True)
class Trial:
    """A trial in its round, with what the report says of it."""

    round: int
    slot: SlotResult
    verdict: Verdict | None

    @property
    def row(self) -> str:
        return f"r{self.round}/s{self.slot.slot}"


def place_of(row: str) -> Place:
    """A reference that `policies.policy.RowRef` allows, taken apart."""
    number, *rest = row.split("/", 3)
    slot = int(rest[0][1:]) if rest else None
    return Place(int(number[1:]), slot, *rest[1:])


class Rows:
    """The rows of one campaign, from the reports of all its rounds so far."""

    def __init__(self, reports: Iterable[RoundReport]) -> None:
        self.reports = {report.round: report for report in sorted(reports, key=lambda r: r.round)}
        self._trials: dict[int, dict[int, Trial]] = {}
        for number, report in self.reports.items():
            verdicts = {verdict.slot: verdict for verdict in report.results.verdicts}
            self._trials[number] = {
                slot.slot: Trial(number, slot, verdicts.get(slot.slot))
                for slot in report.results.slots
            }

    @property
    def newest(self) -> RoundReport | None:
        return self.reports[max(self.reports)] if self.reports else None

    def __contains__(self, row: str) -> bool:
        place = place_of(row)
        if place.slot is None:
            return place.round in self.reports
        if (trial := self.trial(row)) is None:
            return False
        return place.problem_set is None or _score_at(trial.slot, place) is not None

    def trial(self, row: str) -> Trial | None:
        """The trial that a row belongs to; None for a round, and for what does not exist."""
        place = place_of(row)
        return None if place.slot is None else self._trials.get(place.round, {}).get(place.slot)

    def trials(self, axis: str | None = None) -> Iterator[Trial]:
        """The trials of an axis, or all of them, in order."""
        for trials in self._trials.values():
            for trial in trials.values():
                if axis is None or trial.slot.axis == axis:
                    yield trial

    def confirmations(self, axis: str, edit: Edit) -> list[Confirmation]:
        """What the reports say of the fresh runs of an edit, oldest first."""
        return [
            found
            for report in self.reports.values()
            for found in report.results.confirmations
            if (found.axis, found.edit) == (axis, edit)
        ]

    @cached_property
    def patches(self) -> frozenset[str]:
        """The stored diffs that trials of this campaign are made of."""
        patches = (trial.slot.edit.patch for trial in self.trials())
        return frozenset(patch for patch in patches if patch is not None)

    def window(self) -> EvidenceWindow | None:
        """The window of a decision on all of it; None before the first report."""
        if not self.reports:
            return None
        sha256 = digest([report.results_digest() for report in self.reports.values()])
        return EvidenceWindow(first=min(self.reports), last=max(self.reports), sha256=sha256)

    def findings(self, row: str) -> list[Finding]:
        """Everything that can be found in a row, as a claim would say it; [] if there is none."""
        return [Finding(row=row, what=what, value=value) for what, value in self._held(row)]

    def holds(self, finding: Finding) -> bool:
        """Whether a row holds what is said of it."""
        for found in self.findings(finding.row):
            if found.what == finding.what:
                said, held = finding.value, found.value
                if isinstance(said, str) or isinstance(held, str) or said is None or held is None:
                    return said == held
                return abs(said - held) <= TOLERANCE
        return False

    def attested(self, policy: SearchPolicy) -> SearchPolicy:
        """A policy that names its window, with claims that say what their rows hold."""
        claims = [self._attest(claim) for claim in policy.claims]
        return policy.model_copy(update={"claims": claims, "window": self.window()})

    def _attest(self, claim: Claim) -> Claim:
        found = [self.findings(row)[-1:] for row in claim.rows[:FINDINGS] if row in self]
        return claim.model_copy(update={"findings": [one for each in found for one in each]})

    def _held(self, row: str) -> Iterator[tuple[str, float | str | None]]:
        """What a row holds by name, what speaks for itself last."""
        place = place_of(row)
        if row not in self:
            return
        results = self.reports[place.round].results
        trial = self.trial(row)
        if trial is None:
            for entry in results.decoupling:
                yield f"tracking of {entry.domain}", entry.verdict
            yield "sigma", results.noise.sigma
            yield "threshold", results.noise.threshold
            return
        if place.problem_set is None:
            if trial.verdict is not None:
                yield "external effect", trial.verdict.external_effect
                yield "effect", trial.verdict.effect
                yield "verdict", trial.verdict.verdict
            yield "outcome", trial.slot.outcome
            return
        if trial.verdict is not None and place.problem_set == "dev":
            if place.domain in (None, OVERALL):
                yield "verdict", trial.verdict.verdict
                yield "effect", trial.verdict.effect
            elif place.domain in trial.verdict.domains:
                yield "effect", trial.verdict.domains[place.domain].effect
        yield "score", _score_at(trial.slot, place)


def row_names(rows: Sequence[str]) -> list[str]:
    """The trials that rows belong to, each once and in order; a round stands for itself."""
    return list(dict.fromkeys("/".join(row.split("/", 2)[:2]) for row in rows))


def _score_at(slot: SlotResult, place: Place) -> float | None:
    score: SetScore | None = slot.dev if place.problem_set == "dev" else slot.external
    if score is None:
        return None
    if place.domain in (None, OVERALL):
        return score.value
    domain = score.domains.get(place.domain)
    return domain.value if domain else None
