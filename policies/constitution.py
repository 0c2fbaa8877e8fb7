"""The constitution: its text, pinned by hash, and what code finds in a draft that breaks it.

Each clause has one check in `policies/clauses/`. Code sees the draft, its parent and the reports of
the campaign; what a stored patch does, and whether words mean what rows say, only a reader sees.
"""

import hashlib
import pathlib

from policies.case import CampaignFacts, Case, Check
from policies.clauses.belief import (
    c1_external_is_the_authority,
    c6_no_threshold_is_lowered,
    c9_claims_cite_rows_that_say_so,
    c11_a_decoupled_proxy_does_not_rank,
    c14_one_window_of_evidence,
)
from policies.clauses.content import c12_is_small_well_formed_and_new, c13_gives_nothing_away
from policies.clauses.reach import (
    c2_writes_only_the_next_policy,
    c3_what_measures_does_not_move,
    c5_promotes_only_the_policy,
    c8_asks_for_no_more_than_the_caps,
)
from policies.clauses.search import (
    c4_one_anchor_and_two_axes,
    c7_dead_ends_only_grow,
    c10_a_plateau_retires_its_axis,
)
from policies.draft import Draft, Violation, foreign_keys, malformed, read_draft
from policies.leaks import strike_out
from policies.policy import SearchPolicy

CLAUSES: tuple[Check, ...] = (
    c1_external_is_the_authority,
    c2_writes_only_the_next_policy,
    c3_what_measures_does_not_move,
    c4_one_anchor_and_two_axes,
    c5_promotes_only_the_policy,
    c6_no_threshold_is_lowered,
    c7_dead_ends_only_grow,
    c8_asks_for_no_more_than_the_caps,
    c9_claims_cite_rows_that_say_so,
    c10_a_plateau_retires_its_axis,
    c11_a_decoupled_proxy_does_not_rank,
    c12_is_small_well_formed_and_new,
    c13_gives_nothing_away,
    c14_one_window_of_evidence,
)


class ConstitutionChanged(RuntimeError):
    """The constitution is not the one that the campaign was started under."""


def constitution_text() -> str:
    """The text of the law, with line endings as on Unix."""
    return pathlib.Path(__file__).with_name("constitution.md").read_text(encoding="utf-8")


def constitution_sha256() -> str:
    """sha256 (hex) of `constitution_text()`: what a campaign pins."""
    return hashlib.sha256(constitution_text().encode()).hexdigest()


def hold_constitution(campaign: str, pinned: str) -> None:
    """Raises ConstitutionChanged where the text is not the pinned one."""
    if (found := constitution_sha256()) != pinned:
        raise ConstitutionChanged(
            f"{campaign} was started under constitution {pinned[:12]}, found {found[:12]} in "
            "policies/constitution.md; put the text back, or start another campaign"
        )


def review(draft: Draft, parent: SearchPolicy, facts: CampaignFacts) -> list[Violation]:
    """All violations of `draft`, a complete policy as JSON values, by clause; [] is lawful.

    A draft that is no valid policy is judged by C12 and by its keys (C2) alone: the other clauses
    speak of a policy.
    """
    if faults := [*foreign_keys(draft), *malformed(draft)]:
        return faults
    case = Case(strike_out(draft, facts.held_out), read_draft(draft), parent, facts)
    return [breach for check in CLAUSES for breach in check(case)]
