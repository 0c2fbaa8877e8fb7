"""The door that a draft comes in by: bytes of whoever revised, and the ruling on them.

Whatever the bytes are, the answer is a ruling: a lawful policy, or violations by clause. What is
kept of the reply has nothing in it that C13 forbids.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from policies.canonical import canonical_json
from policies.case import CampaignFacts
from policies.constitution import review
from policies.draft import MAX_BYTES, Draft, Violation, parse_draft, read_draft
from policies.leaks import strike_out
from policies.policy import SearchPolicy

MOST_KEPT = 2000  # bytes of a reply that cannot be kept as a draft
MOST_VIOLATIONS = 50  # of one reply; of the others only how many there are is kept
MOST_SAID = 500  # characters of a reason


@dataclass(frozen=True)
class Ruling:
    """What the constitution says of one reply. `policy` is None unless it is lawful."""

    reply_sha256: str
    policy: SearchPolicy | None
    violations: tuple[Violation, ...]
    kept: Any  # the draft as JSON values, or the beginning of what is none

    def refused(self, *violations: Violation) -> "Ruling":
        """The same reply with violations that only the substrate shows."""
        return Ruling(self.reply_sha256, None, (*self.violations, *violations), self.kept)


def rule(reply: bytes, parent: SearchPolicy, facts: CampaignFacts) -> Ruling:
    """Hold a reply to the constitution as the policy after `parent`."""
    sha256, draft = hashlib.sha256(reply).hexdigest(), parse_draft(reply)
    violations = [draft] if isinstance(draft, Violation) else review(draft, parent, facts)
    if not violations and not isinstance(draft, Violation):
        return Ruling(sha256, read_draft(draft), (), draft)
    shown = tuple(_shown(found, facts) for found in violations[:MOST_VIOLATIONS])
    if more := violations[MOST_VIOLATIONS:]:
        broken = ", ".join(dict.fromkeys(found.clause for found in more))
        shown += (Violation(more[0].clause, "", f"{len(more)} more are not listed, of {broken}"),)
    return Ruling(sha256, None, shown, _kept(reply, draft, facts))


def _shown(found: Violation, facts: CampaignFacts) -> Violation:
    quote, reason = (strike_out(text, facts.held_out) for text in (found.quote, found.reason))
    return Violation(found.clause, quote, reason[:MOST_SAID])


def _kept(reply: bytes, draft: Draft | Violation, facts: CampaignFacts) -> Any:
    """The draft without what leaks, or where it cannot be stored, the beginning of the reply."""
    if not isinstance(draft, Violation) and len(reply) <= 2 * MAX_BYTES:
        try:
            struck = strike_out(draft, facts.held_out)
            if "\\u0000" not in canonical_json(struck).encode().decode():
                return struck
        except (ValueError, RecursionError):  # NaN, half a character, or nested without end
            pass
    start = json.dumps(reply[:MOST_KEPT].decode("utf-8", "replace"))
    return strike_out(start, facts.held_out)
