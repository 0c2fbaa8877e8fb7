"""Testimony: why the trials of a round ended and what their workers wrote, as quoted data."""

from agents.quotation import quote
from policies.report import RoundReport

MOST_WORDS = 1200  # characters of each trial's


def testimony(report: RoundReport) -> str:
    """A section of a prompt. What it says is not evidence: numbers are in the report alone."""
    said = {slot.slot: f"{slot.reason}\n{slot.notes}".strip() for slot in report.account.slots}
    words = [
        quote(text, f"r{report.round}/s{slot}", most=MOST_WORDS)
        for slot, text in said.items()
        if text
    ]
    head = "# Why trials ended, and what workers wrote"
    return "\n\n".join([head, *(words or ["nothing"])])
