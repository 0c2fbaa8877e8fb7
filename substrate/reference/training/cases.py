"""Cases: the programs and answers of a file, to be judged one by one (training/executor.py).

A file is a JSON list of objects, or JSON Lines. A case has a `name` (its number where it has none),
a `task` (`run` where it has none), the texts of its task, and whatever else its author keeps there.
"""

import json
from pathlib import Path
from typing import Any

# The texts that a case of each task needs.
TEXTS = {
    "run": ("program", "input"),
    "predict_output": ("program", "input", "answer"),
    "predict_input": ("program", "answer"),  # and `gold`, or else `input`
    "predict_program": ("program",),  # and `pairs`
}


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases of a file. Raises OSError, and ValueError with what is wrong where."""
    text = path.read_text(encoding="utf-8-sig")
    try:
        cases = _parse(text)
    except RecursionError:
        raise ValueError("wanted cases, found JSON that is nested too deep; mend it") from None
    if not cases:
        raise ValueError("wanted at least one case, found none; write a JSON list or JSON Lines")
    for number, case in enumerate(cases):
        if not isinstance(case, dict):
            raise ValueError(f"wanted case {number} to be an object, found {case!r:.100}")
        case.setdefault("name", str(number))
        _check(case, f"case {number} ({case['name']!r:.100})")
    return cases


def _parse(text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        return json.loads(text)
    cases = []
    # Not `splitlines`: a text in JSON may hold some of the characters that end a line for Python.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                cases.append(json.loads(line))
            except json.JSONDecodeError as error:
                reason = f"{error.msg} at character {error.pos}"
                raise ValueError(f"wanted JSON in line {number}, found {reason}") from None
    return cases


def _check(case: dict[str, Any], which: str) -> None:
    task = case.setdefault("task", "run")
    if not isinstance(task, str) or task not in TEXTS:
        raise ValueError(f"wanted a task of {sorted(TEXTS)} in {which}, found {task!r:.100}")
    gold = ("gold" if "gold" in case else "input",) if task == "predict_input" else ()
    for key in (*TEXTS[task], *gold):
        if not isinstance(case.get(key), str):
            raise ValueError(
                f"wanted a text as {key!r} of {which}, task {task}, found {case.get(key)!r:.100}"
            )
    if task == "predict_program" and not _are_pairs(case.get("pairs")):
        raise ValueError(f"wanted pairs [[input, value], ...] of texts in {which}")


def _are_pairs(found: object) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(text, str) for text in pair)
            for pair in found
        )
    )
