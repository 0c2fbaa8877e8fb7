"""The lineage of a policy: every version, who wrote it after which round, and what it changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from policies.diff import diff_policies, headline
from policies.policy import SearchPolicy
from policies.tables import Policy, sha256_of


@dataclass(frozen=True)
class Version:
    """One version of a campaign's policy, and how it follows the one before."""

    version: int
    sha256: str
    parent: str | None
    author: str
    round: int | None  # whose report led to it
    created_at: datetime
    policy: SearchPolicy
    headline: tuple[str, ...]  # what changed, a line for each part of the policy
    fault: str | None  # why it does not follow from the one before

    def data(self) -> dict[str, Any]:
        """The version as JSON values, without the policy itself."""
        names = ("version", "sha256", "parent", "author", "round", "fault")
        return {name: vars(self)[name] for name in names} | {
            "created_at": self.created_at.isoformat(),
            "headline": list(self.headline),
            "claims": len(self.policy.claims),
        }


def read_lineage(rows: Iterable[Policy]) -> list[Version]:
    """All versions in order, from the rows of one campaign."""
    versions: list[Version] = []
    for row in rows:
        policy = SearchPolicy.model_validate_json(row.body)
        before = versions[-1] if versions else None
        changes = diff_policies(before.policy, policy) if before else []
        versions.append(
            Version(
                version=row.version,
                sha256=row.sha256,
                parent=row.parent,
                author=row.author,
                round=row.round,
                created_at=row.created_at,
                policy=policy,
                headline=tuple(headline(changes)),
                fault=_fault(row, policy, before),
            )
        )
    return versions


def _fault(row: Policy, policy: SearchPolicy, before: Version | None) -> str | None:
    number, parent = (before.version + 1, before.sha256) if before else (1, None)
    for what, wanted, found in (
        ("version", number, row.version),
        ("version in the policy", row.version, policy.version),
        ("parent", parent, row.parent),
        ("parent in the policy", row.parent, policy.parent),
        ("digest of the policy", row.sha256, sha256_of(row.body)),
    ):
        if wanted != found:
            return f"{what}: wanted {wanted}, found {found}"
    return None
