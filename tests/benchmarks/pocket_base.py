"""What the shipped pocket base can do, by depth and domain."""

import json
import subprocess
import sys
from typing import Any

from tests.benchmarks._pocket import POCKET

PROBLEMS = 40  # for each domain and depth
HALF = POCKET / "pretraining" / "half_length"

WHAT = (
    "Strict accuracy of the pocket base on deduce problems that pretraining never saw, by depth 1 "
    f"to 8, {PROBLEMS} problems for each domain and depth: greedy, mean of 8 samples at "
    "temperature 1, pass@8, and greedy with the first line of the trace given. Then, from the "
    "evaluation kept beside their logs, two bases of other seeds pretrained half as long."
)


def run() -> dict[str, Any]:
    program = str(POCKET / "pretraining" / "evaluate.py")
    command = [sys.executable, program, "--problems", str(PROBLEMS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = {}
    for kind, table in json.loads(done.stdout)["deduce"].items():
        figures |= {f"{kind}, {domain}": _shown(depths) for domain, depths in table.items()}
    for path in sorted(HALF.glob("*/evaluation.json")):
        deduce = json.loads(path.read_text(encoding="utf-8"))["deduce"]
        for kind in ("greedy", "pass@8"):
            figures[f"{kind}, all, half length, {path.parent.name}"] = _shown(deduce[kind]["all"])
    return figures


def _shown(depths: dict[str, float]) -> str:
    return " ".join(f"{value:.2f}" for value in depths.values())
