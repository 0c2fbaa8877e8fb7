"""A reading: a program and its inputs, parsed and compiled in the jail, as bytes that can be run.

One interpreter of each lane only reads. It never forks a program's process, so what it has parsed
is in none; and the texts of models meet a parser, which is C code, nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from training.canonical import Malformed
from training.interpreter import Interpreter, Reply, ask
from training.messages import OddMessage, Result, join, split
from training.verdict import Verdict, bad_ending, result_verdict


@dataclass(frozen=True)
class Reading:
    """What the jail made of a program and its inputs. Its bytes are for the jail alone."""

    refusal: Verdict | None  # of the program; then there is no more
    code: bytes = b""
    doubtful: bool = False  # it may look at hashes or addresses
    calls: tuple[bytes | Verdict, ...] = ()  # for each input its arguments, or why it has none


def read_texts(reader: Interpreter, program: str, inputs: Sequence[str]) -> Reading:
    """Read a program and its inputs. What says nothing about it refuses it as `infrastructure`."""
    texts = [("program", program), *(("input", text) for text in inputs)]
    results, ending = _read(reader, texts)
    if ending is None:
        return _reading(results)
    # One of the texts ended the process that read it: each is read in one of its own.
    results, ending = _read(reader, texts[:1], careful=True)
    if ending is not None:
        return Reading(ending)
    for text in texts[1:]:
        one, ending = _read(reader, [text], careful=True)
        results += one if ending is None else [("bad_input", f"{ending.error}".encode())]
    return _reading(results)


def read_answer(reader: Interpreter, text: str) -> Verdict:
    """`ok` with the value that a text is the literal of, or `bad_answer`."""
    results, ending = _read(reader, [("answer", text)])
    if ending is None:
        try:
            return result_verdict(*results[0], cpu_s=0.0)
        except (Malformed, OddMessage) as error:
            ending = Verdict("infrastructure", error=str(error)[:200])
    # However a text breaks the parser, it is the text's fault.
    kind = "infrastructure" if ending.kind == "infrastructure" else "bad_answer"
    return Verdict(kind, error=ending.error)


def _reading(results: list[Result]) -> Reading:
    (kind, code), *calls = results
    if kind not in ("ok", "doubtful"):
        return Reading(result_verdict(kind, code, 0.0))
    return Reading(
        None,
        code,
        kind == "doubtful",
        tuple(data if kind == "ok" else result_verdict(kind, data, 0.0) for kind, data in calls),
    )


def _read(
    reader: Interpreter, texts: Sequence[tuple[str, str]], *, careful: bool = False
) -> tuple[list[Result], Verdict | None]:
    """The results, or how the process that read came to a bad end."""
    message = join([(kind, text.encode("utf-8", "surrogatepass")) for kind, text in texts])
    replies = ask([(reader, ("read", message))], careful=careful)
    if replies is None:
        return [], Verdict("infrastructure", error="no answer from the jail")
    ending = bad_ending(replies[0])
    return ([], ending) if ending is not None else (_results(replies[0]), None)


def _results(reply: Reply) -> list[Result]:
    return split(reply.message)
