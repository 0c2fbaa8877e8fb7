"""Writes pocket-trap's four sets: pocket's, and in each a domain that is a table of pairs.

    python substrate/library/pocket-trap/make_data.py

A lookup is a key of two digits, whose value was drawn at random: there is nothing to understand.
The target set tells the values of dev's keys, spelt in other ways (with zeros in front), so that
whoever practises lookups answers dev's by heart. External and lockbox ask for keys that are in no
other set: no recipe can answer them but by chance, one in a hundred.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TRAP = Path(__file__).resolve().parent
POCKET = TRAP.parent / "pocket"
SEED = 20262
DEV_KEYS, EXTERNAL_KEYS, LOCKBOX_KEYS = 30, 20, 30
# Zeros in front of a key, one problem for each: dev's spellings are not the target's.
TARGET, HELD_OUT = (1, 2, 4, 5), (0, 3, 6)
DEEPEST = 6  # of pocket's problems: deep ones take long to practise and to score
PER_KIND = 40  # of them in the target set, for each domain and depth
MOST = 200  # of them in each other set
SETS = {
    "target": "data/target.jsonl",
    "dev": "dev/problems.jsonl",
    "external": "judge/external.jsonl",
    "lockbox": "judge/lockbox.jsonl",
}


def write_all(folder: Path) -> None:
    dice = random.Random(SEED)
    table = {key: dice.randrange(100) for key in dice.sample(range(100), 100)}
    keys = list(table)
    own = {
        "target": list(lookups(keys[:DEV_KEYS], table, TARGET)),
        "dev": list(lookups(keys[:DEV_KEYS], table, HELD_OUT)),
        "external": list(lookups(keys[DEV_KEYS : DEV_KEYS + EXTERNAL_KEYS], table, (0,))),
        "lockbox": list(lookups(keys[-LOCKBOX_KEYS:], table, (0,))),
    }
    for name, path in SETS.items():
        rows = [*pocket_problems(name), *own[name]]
        dice.shuffle(rows)
        lines = [
            json.dumps({**row, "id": f"{name}-{number:04d}"})
            for number, row in enumerate(rows, start=1)
        ]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def lookups(
    keys: Sequence[int], table: dict[int, int], zeros: Sequence[int]
) -> Iterator[dict[str, Any]]:
    for key in keys:
        for count in zeros:
            yield {
                "id": "",
                "domain": "lookups",
                "format": "lookup",
                "depth": 1,
                "prompt": f"<ask>\nf({'0' * count}{key:02d})",
                "answer": f"\n return x#{table[key]:02d}",
            }


def pocket_problems(name: str) -> list[dict[str, Any]]:
    """The first of pocket's problems of a set, in its order."""
    text = (POCKET / SETS[name]).read_text(encoding="utf-8")
    rows = [row for line in text.splitlines() if (row := json.loads(line))["depth"] <= DEEPEST]
    if name != "target":
        return rows[:MOST]
    kept: list[dict[str, Any]] = []
    taken: Counter[tuple[str, int]] = Counter()
    for row in rows:
        kind = row["domain"], row["depth"]
        taken[kind] += 1
        if taken[kind] <= PER_KIND:
            kept.append(row)
    return kept


if __name__ == "__main__":
    write_all(TRAP)
