"""The dossier: everything on record of one campaign, for the page that a person audits it by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.drawings import Direction
from policies.final import Effect
from policies.lineage import Version
from policies.policy import Claim, Promotion
from policies.purse import Spent
from policies.rejection import Rejection
from policies.report import Confirmation, RoundReport, SetScore
from policies.rows import Rows, row_names
from policies.tables import Arm, Campaign, Candidate, FinalRun, Opening, Round, Trial


@dataclass(frozen=True)
class End:
    """What there is of a campaign's end. Each part may be missing: it is made step by step."""

    candidate: Candidate | None = None
    runs: Sequence[FinalRun] = ()
    external: Effect | None = None  # of the candidate, against what the campaign began with
    opening: Opening | None = None
    lockbox: Mapping[Arm, SetScore] | None = None
    files: Mapping[str, str] | None = None  # sha256 of what was exported, by path


@dataclass(frozen=True)
class Unfinished:
    """A round that has no report yet, with the trials that ended."""

    round: Round
    trials: Sequence[Trial]


@dataclass(frozen=True)
class Dossier:
    """One campaign."""

    campaign: Campaign
    state: str  # as `seedbed report --list` says it
    paused: str  # the cap at which it paused, if it did
    rounds: int  # of the plan
    direction: Direction
    reports: Sequence[RoundReport]  # by round
    unfinished: Sequence[Unfinished]
    lineage: Sequence[Version]
    rejections: Sequence[Rejection]
    spent: Sequence[Spent]
    end: End


@dataclass(frozen=True)
class Promoted:
    """A promotion: the version that made it, the one that took it back, and what they rest on."""

    promotion: Promotion
    since: Version
    until: Version | None  # the first version without it; None where it stands
    confirmation: Confirmation | None  # what the last report before it says of its fresh runs
    claims: Sequence[Claim]


def promoted(lineage: Sequence[Version], reports: Sequence[RoundReport]) -> list[Promoted]:
    """Every promotion of a campaign, in the order in which they were made."""
    rows = Rows(reports)
    found = []
    for i, version in enumerate(lineage):
        before = lineage[i - 1].policy.standing_recipe.provenance if i else []
        for promotion in version.policy.standing_recipe.provenance:
            if promotion in before:
                continue
            later = lineage[i + 1 :]
            until = next((v for v in later if promotion not in _standing(v)), None)
            trials = set(row_names(promotion.rows))
            claims = [
                claim
                for each in (version, until)
                if each is not None
                for claim in each.policy.claims
                if trials & set(row_names(claim.rows))
            ]
            known = [
                confirmation
                for report in rows.reports.values()
                if version.round is None or report.round <= version.round
                for confirmation in report.results.confirmations
                if (confirmation.axis, confirmation.edit) == (promotion.axis, promotion.edit)
            ]
            last = known[-1] if known else None
            found.append(Promoted(promotion, version, until, last, claims))
    return found


def _standing(version: Version) -> list[Promotion]:
    return version.policy.standing_recipe.provenance
