"""A draft before the law: the draft, its parent, and the facts that it is held to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from policies.draft import Draft, Path, Violation, violation
from policies.policy import Promotion, SearchPolicy
from policies.rows import Rows


@dataclass(frozen=True)
class CampaignFacts:
    """What the clauses must know of the campaign, besides the draft and its parent."""

    substrate_sha256: str  # pinned when the campaign started
    judge_sha256: str
    constitution_sha256: str
    found_substrate_sha256: str  # as found now
    found_judge_sha256: str
    found_constitution_sha256: str
    width: int  # slots in a round, the anchor included
    looks_per_round: int  # the campaign's cap on external scores in one round
    looks_left: int  # what is left of its cap on all of them
    rows: Rows  # every row that may be cited
    sealed: tuple[str, ...]  # globs that the substrate's manifest seals
    direction: Literal["maximise", "minimise"] = "maximise"  # of the external score
    held_out: frozenset[int] = frozenset()  # grams of the held-out problems: `policies/leaks.py`


@dataclass(frozen=True)
class Case:
    """A draft that is a policy, and everything that it is judged by."""

    draft: Draft  # as it is quoted: without what C13 forbids
    policy: SearchPolicy
    parent: SearchPolicy
    facts: CampaignFacts

    def breach(self, clause: str, path: Path, reason: str) -> Violation:
        """A violation that quotes what the draft has at `path`."""
        return violation(clause, self.draft, path, reason)

    def promotions(self) -> list[tuple[int, Promotion]]:
        """What the draft promotes and its parent does not have, by place in the provenance."""
        known = self.parent.standing_recipe.provenance
        provenance = self.policy.standing_recipe.provenance
        return [(i, item) for i, item in enumerate(provenance) if item not in known]


Check = Callable[[Case], Iterable[Violation]]
