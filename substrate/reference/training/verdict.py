"""The verdict: what is said of a program or an answer, one of a closed set of kinds."""

from dataclasses import dataclass
from typing import Literal

from training.canonical import Malformed, Value, decode
from training.interpreter import Reply
from training.messages import OddMessage, split

Kind = Literal[
    "ok",  # it returned a value, twice the same
    "correct",  # an answer that is right
    "wrong",  # an answer that is a value, and another one
    "exception",  # `error` is the class's name
    "exit",  # SystemExit
    "timeout",  # of CPU time
    "memory_limit",
    "output_limit",  # of the value's size, or of what it printed
    "unserializable_output",  # what it returned is not a value
    "nondeterministic",  # two interpreters disagree
    "banned_import",
    "banned_construct",
    "syntax_error",
    "no_entry_point",
    "bad_input",  # not literal arguments
    "bad_answer",  # not a literal
    "sandbox_violation",  # a system call that no pure program makes
    "crash",  # of the interpreter itself
    "abnormal_exit",  # ended without a message
    "protocol_violation",  # a message that is not one
    "too_long",  # source over its cap, not parsed
    "infrastructure",  # says nothing about the program: drop the sample, count it, never reward it
]

# What a program's process may say of a result by its message.
_CLAIMS: dict[str, Kind] = {
    "ok": "ok",
    "exception": "exception",
    "exit": "exit",
    "memory_limit": "memory_limit",
    "output_limit": "output_limit",
    "unserializable_output": "unserializable_output",
    "banned_import": "banned_import",
    "banned_construct": "banned_construct",
    "syntax_error": "syntax_error",
    "no_entry_point": "no_entry_point",
    "bad_input": "bad_input",
    "bad_answer": "bad_answer",
}

# Signals that end a program's process, and what that says. Others are not of its making.
_ENDINGS: dict[int, Kind] = {
    -31: "sandbox_violation",  # SIGSYS
    -27: "timeout",  # SIGPROF, of the timer
    -24: "timeout",  # SIGXCPU
    -25: "output_limit",  # SIGXFSZ: stdout and stderr
    **dict.fromkeys((-4, -5, -6, -7, -8, -11), "crash"),  # ILL, TRAP, ABRT, BUS, FPE, SEGV
}
_CUT_SHORT, _OUT_OF_MEMORY = 72, 71  # exit codes of training/zygote.py

# Of two runs that end differently, one of these ends is the verdict of both, the first before the
# others: a limit that one run met and the other just missed is no difference in the program.
_BEFORE_ALL: tuple[Kind, ...] = (
    *("infrastructure", "sandbox_violation", "protocol_violation", "crash", "abnormal_exit"),
    *("banned_import", "banned_construct", "timeout", "memory_limit", "output_limit"),
)


@dataclass(frozen=True)
class Verdict:
    """What is said of one program on one input, or of one answer."""

    kind: Kind
    value: Value | None = None  # what the program returned
    error: str | None = None  # the class of its exception, or a reason for people
    cpu_s: float = 0.0  # of the program's process, batch included; the slower interpreter's


def bad_ending(reply: Reply) -> Verdict | None:
    """The verdict on a process that did not come to its message; None if it did."""
    kind = _ENDINGS.get(reply.status)
    if reply.late:
        return Verdict("infrastructure", error="no end in its wall time", cpu_s=reply.cpu_s)
    if reply.flooded:
        return Verdict("protocol_violation", error="too long a message", cpu_s=reply.cpu_s)
    if kind is not None:
        return Verdict(kind, error=f"signal {-reply.status}", cpu_s=reply.cpu_s)
    if reply.status < 0:
        error = f"killed by signal {-reply.status}"
        return Verdict("infrastructure", error=error, cpu_s=reply.cpu_s)
    if reply.status == _OUT_OF_MEMORY:
        return Verdict("memory_limit", error="MemoryError", cpu_s=reply.cpu_s)
    if not reply.honest and not reply.message:
        return Verdict("abnormal_exit", error=f"exit code {reply.status}", cpu_s=reply.cpu_s)
    if not reply.honest or reply.status not in (0, _CUT_SHORT):
        return Verdict("protocol_violation", error="an odd message", cpu_s=reply.cpu_s)
    return None


def read_run(reply: Reply, count: int) -> list[Verdict] | None:
    """What one interpreter says of `count` inputs, which it ran in one process.

    None if that process came to no good end before the last input: each has to be run alone then.
    """
    verdict = bad_ending(reply)
    if verdict is None:
        try:
            results = split(reply.message)
            if len(results) != count:
                raise OddMessage(f"wanted {count} results, found {len(results)}")
            verdicts = [result_verdict(kind, data, reply.cpu_s) for kind, data in results]
            return None if reply.status == _CUT_SHORT and count > 1 else verdicts
        except (Malformed, OddMessage) as error:
            verdict = Verdict("protocol_violation", error=str(error)[:200], cpu_s=reply.cpu_s)
    return [verdict] if count == 1 else None


def result_verdict(claim: str, data: bytes, cpu_s: float) -> Verdict:
    """The verdict of one result. Raises OddMessage or Malformed for what is none."""
    if claim not in _CLAIMS:
        raise OddMessage(f"wanted a kind of result, found {claim!r}")
    if claim == "ok":
        return Verdict("ok", decode(data), None, cpu_s)
    return Verdict(_CLAIMS[claim], None, data.decode("utf-8", "replace")[:300], cpu_s)


def agree(verdicts: list[Verdict]) -> Verdict:
    """The one verdict of runs of the same program on the same input in different interpreters."""
    first = verdicts[0]
    cpu_s = max(verdict.cpu_s for verdict in verdicts)
    for kind in _BEFORE_ALL:
        for verdict in verdicts:
            if verdict.kind == kind:
                return Verdict(kind, verdict.value, verdict.error, cpu_s)
    if any(_essence(verdict) != _essence(first) for verdict in verdicts):
        said = dict.fromkeys(_told(verdict) for verdict in verdicts)
        return Verdict("nondeterministic", error=" or ".join(said)[:200], cpu_s=cpu_s)
    return Verdict(first.kind, first.value, first.error, cpu_s)


def _essence(verdict: Verdict) -> tuple[str, bytes | str | None]:
    if verdict.value is not None:
        return verdict.kind, verdict.value.canonical
    return verdict.kind, verdict.error if verdict.kind == "exception" else None


def _told(verdict: Verdict) -> str:
    return verdict.value.text if verdict.value is not None else verdict.error or verdict.kind
