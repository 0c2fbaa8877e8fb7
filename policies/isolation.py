"""Isolation in reports: the banner over results that had no walls, or not all the same."""

from collections.abc import Iterable

from policies.report import RoundReport

WALLS = ("bubblewrap", "landlock")  # levels behind which a recipe reaches nothing but its fork


def isolation_banner(reports: Iterable[RoundReport]) -> str:
    """What a reader has to know before comparing these rounds' scores; "" where it is nothing.

    A round names each level that one of its trials had, divided by semicolons.
    """
    levels = {
        level for report in reports for level in report.account.isolation.split("; ") if level
    }
    if not levels <= set(WALLS):
        return (
            "NO ISOLATION: trials ran without walls, as the user of the controller. Whatever they "
            "ran could read the judge's problems, write these rows and reach the network: do not "
            "take their scores for earned."
        )
    if len(levels) > 1:
        return (
            "ISOLATION DIFFERS: trials ran behind walls of different kinds, "
            f"{' and '.join(sorted(levels))}. Their scores are not compared on equal terms."
        )
    return ""
