"""Settled verdicts: those that say something about a program, asked for until there are some."""

from collections.abc import Callable

from training.verdict import Verdict

ATTEMPTS = 3  # each is the executor's own last resort, a run with the whole machine to itself


class NoVerdict(RuntimeError):
    """The jail has nothing to say of a program, time and again: something is wrong around it."""


def settled(ask: Callable[[], list[Verdict]]) -> list[Verdict]:
    """What `ask` returns, asked again while some of it is `infrastructure`. Raises NoVerdict.

    To go on without a verdict would be to reward or punish a model for the machine's state.
    """
    doubtful: list[Verdict] = []
    for _ in range(ATTEMPTS):
        verdicts = ask()
        doubtful = [verdict for verdict in verdicts if verdict.kind == "infrastructure"]
        if not doubtful:
            return verdicts
    raise NoVerdict(
        f"wanted a verdict on a program, found none in {ATTEMPTS} attempts "
        f"({doubtful[0].error}); free memory and CPUs of this machine, then go on from the "
        "last checkpoint"
    )
