"""A watch over what a worker asks its tools for: attempts to tamper, seen before they are tried.

The jail is what keeps them from anything. What is seen here is told of the trial.
"""

from collections.abc import Iterator

from agents.worker import Workplace
from policies.tampering import COMMANDED, added_text, attempts_in

MOST = 20  # attempts of one trial that are told of


def watch_command(workplace: Workplace, command: str) -> None:
    """See what a shell command reaches for. Reading libraries and asking for packages is honest."""
    found = attempts_in(command, _own(workplace), kinds=COMMANDED)
    _tell(workplace, "in a command", found)


def watch_path(workplace: Workplace, path: str) -> None:
    """See what is asked to be listed, read or searched."""
    _tell(workplace, "in a path", attempts_in(path, _own(workplace), kinds=COMMANDED))


def watch_edit(workplace: Workplace, path: str, before: str, after: str) -> None:
    """See what the new lines of a file reach for, even if they are taken back later."""
    old = set(before.splitlines())
    new = "\n".join(line for line in after.splitlines() if line not in old)
    _tell(workplace, f"in an edit of {path}", attempts_in(new, _own(workplace)))


def watch_patch(workplace: Workplace, diff: str) -> None:
    """See what the lines reach for that a diff adds."""
    _tell(workplace, "in a patch", attempts_in(added_text(diff), _own(workplace)))


def _own(workplace: Workplace) -> Iterator[str]:
    """The fork, which the worker may name."""
    root = workplace.fork.root
    yield from dict.fromkeys((str(root.absolute()), str(root.resolve())))


def _tell(workplace: Workplace, where: str, found: list[str]) -> None:
    for attempt in found:
        said = f"{where}: {attempt}"
        if said not in workplace.attempts and len(workplace.attempts) < MOST:
            workplace.attempts.append(said)
