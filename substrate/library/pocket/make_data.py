"""Writes the pocket substrate's four sets of problems, the same for ever.

    python substrate/library/pocket/make_data.py

Each set draws from its own side of the split (`training/programs.py`), which pretraining and
proposals never enter, so no problem is in two sets; training enters that of the target set alone.
All are `deduce` problems: their answer, the trace, is the only right one.

The target set has plenty of every domain and depth, for whoever wants to choose among them. Dev
asks for integers and strings about the frontier; external and lockbox ask for bits, booleans and
lists and go deeper, as a leaderboard differs from the proxy at hand.
"""

import json
import random
import sys
from pathlib import Path

POCKET = Path(__file__).resolve().parent
sys.path[:0] = [str(POCKET / "overlay")]

from training.pocket import Problem, deduce  # noqa: E402
from training.programs import DOMAINS, draw_problem  # noqa: E402

SEED = 20261
# Problems by depth for one unit of a domain, and the units of each domain, in the order of DOMAINS.
Counts = dict[int, int]
EVERY_DEPTH: Counts = {1: 8, **dict.fromkeys(range(2, 9), 100), **dict.fromkeys(range(9, 13), 8)}
EVERY_DEPTH |= dict.fromkeys(range(13, 17), 4)
FRONTIER: Counts = {1: 1, 2: 1, 3: 3, 4: 6, 5: 9, 6: 10, 7: 8, 8: 5, 9: 3, 10: 2, 12: 1, 16: 1}
DEEPER: Counts = {1: 1, 2: 1, 3: 2, 4: 3, 5: 6, 6: 8, 7: 9, 8: 8, 9: 4, 10: 3, 11: 2, 12: 1}
DEEPER |= {14: 1, 16: 1}
SETS: dict[str, tuple[str, Counts, tuple[int, ...]]] = {
    "target": ("data/target.jsonl", EVERY_DEPTH, (1, 1, 1, 1, 1)),
    "dev": ("dev/problems.jsonl", FRONTIER, (3, 3, 2, 1, 1)),
    "external": ("judge/external.jsonl", DEEPER, (1, 2, 2, 2, 3)),
    "lockbox": ("judge/lockbox.jsonl", DEEPER, (2, 4, 4, 4, 6)),
}


def write_all(folder: Path) -> None:
    for name, (path, _, _) in SETS.items():
        rows = [
            json.dumps({"id": f"{name}-{number:04d}", **problem})
            for number, problem in enumerate(draw_set(name), start=1)
        ]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("\n".join(rows) + "\n", encoding="utf-8")


def draw_set(name: str) -> list[Problem]:
    """The problems of one set, no two alike, in random order."""
    _, counts, units = SETS[name]
    dice = random.Random(f"{SEED}/{name}")
    problems: dict[str, Problem] = {}
    for domain, share in zip(DOMAINS, units, strict=True):
        for depth, count in counts.items():
            wanted = len(problems) + count * share
            while len(problems) < wanted:
                problem = deduce(*draw_problem(dice, domain, depth, name))
                problems.setdefault(problem["prompt"], problem)
    rows = list(problems.values())
    dice.shuffle(rows)
    return rows


if __name__ == "__main__":
    write_all(POCKET)
