"""The examination's entry point: checks one adapter, then has it answer the questions of one set.

The host starts it from the pristine snapshot, in a fresh process, as `python -I -B
evaluation/score.py`, with the orders as JSON on stdin: `base` and `adapter` (folders), `questions`
(a JSON Lines file: problems without their labels), `rank`, `alpha`, `target_modules` and
`base_sha256`. The reply is the file `score.json` in the working folder, one of

    {"outcome": "evaluated", "engine": "...", "answers": ["...", ...]}
    {"outcome": "invalid_adapter", "reason": "..."}
    {"outcome": "no_change", "reason": "..."}

with one answer per question, in the file's order. What they are worth, `evaluation/grade.py` says,
in another process: where the model runs, no label is.

Whatever else happens, an exception above all, is a failure of the scorer and never a score.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # -I leaves the snapshot out

from evaluation.adapter import BadAdapter, Unbound, check


def main() -> None:
    reply = score(json.load(sys.stdin))
    Path("score.json").write_text(json.dumps(reply, allow_nan=False), encoding="utf-8")


def score(orders: dict[str, Any]) -> dict[str, Any]:
    """The reply. Raises what `solve` raises, and ValueError for a wrong count of answers."""
    adapter = Path(orders["adapter"])
    shape = {key: orders[key] for key in ("rank", "alpha", "target_modules", "base_sha256")}
    try:
        if check(adapter, **shape) == 0:
            reason = "the adapter's update B @ A is zero in every module"
            return {"outcome": "no_change", "reason": reason}
        # Only here: the real engine takes seconds to import, for which a bad adapter need not wait.
        from evaluation.solve import ENGINE, solve

        lines = Path(orders["questions"]).read_bytes().splitlines()
        questions = [json.loads(line) for line in lines if line.strip()]
        answers = solve(Path(orders["base"]), adapter, questions)
    except BadAdapter as error:
        return {"outcome": "invalid_adapter", "reason": str(error)}
    except Unbound as error:
        return {"outcome": "no_change", "reason": f"unbound: {error}"}
    if len(answers) != len(questions):
        raise ValueError(
            f"wanted one answer to each of {len(questions)} questions, found {len(answers)}: "
            "solve.py must return them all"
        )
    return {"outcome": "evaluated", "engine": ENGINE, "answers": answers}


if __name__ == "__main__":
    main()
