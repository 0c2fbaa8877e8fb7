"""How a trial ended: the closed set of outcomes, one of which every trial record carries."""

from enum import StrEnum


class Outcome(StrEnum):
    """The end of one trial. A missing score is null beside its outcome, never 0.

    `infrastructure` is missing data and is retried; every other outcome is a result.
    """

    EVALUATED = "evaluated"
    NO_CHANGE = "no_change"
    INVALID_ADAPTER = "invalid_adapter"
    TAMPERED = "tampered"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    DIVERGED = "diverged"
    OVER_BUDGET = "over_budget"
    REFUSED = "refused"
    INFRASTRUCTURE = "infrastructure"
