"""What one and the same completion of every problem is worth: a metric that it wins is no metric.

The host starts it as it starts `evaluation/score.py`, with `problems` (a JSON Lines file) and
`completion` as JSON on stdin, and gets the same reply. An evaluation with rules of its own, beside
those of `training/world.py`, has a `blind.py` of its own too.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # -I leaves the snapshot out

from training import world


def main() -> None:
    orders = json.load(sys.stdin)
    lines = Path(orders["problems"]).read_bytes().splitlines()
    problems = [json.loads(line) for line in lines if line.strip()]
    values = [world.reward(problem, orders["completion"]) for problem in problems]
    reply = {"outcome": "evaluated", "engine": "one completion for all", "values": values}
    Path("score.json").write_text(json.dumps(reply, allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    main()
