"""Writes the impossible substrate's base model and its four sets of problems, the same for ever.

    python tests/substrates/impossible/make_data.py

Every answer is a coin toss: nothing in a problem says which. Whoever is better than chance on
problems that he was not shown has seen the labels.
"""

import json
import random
import struct
from pathlib import Path

SEED = 20262
FEATURES = 128
SETS = {
    "data/target.jsonl": 200,
    "dev/problems.jsonl": 400,
    "judge/external.jsonl": 400,
    "judge/lockbox.jsonl": 400,
}


def write_all(folder: Path) -> None:
    dice = random.Random(SEED)
    (folder / "base").mkdir(exist_ok=True)
    shape = {"dtype": "F32", "shape": [1, FEATURES], "data_offsets": [0, 4 * FEATURES]}
    header = json.dumps({"coin.weight": shape}).encode()
    weights = struct.pack(f"<{FEATURES}f", *(dice.gauss(0, 1) for _ in range(FEATURES)))
    model = struct.pack("<Q", len(header)) + header + weights
    (folder / "base" / "base.safetensors").write_bytes(model)
    for path, count in SETS.items():
        name = "dev" if path.startswith("dev") else Path(path).stem
        lines = [
            json.dumps(
                {
                    "id": f"{name}-{number:04d}",
                    "domain": "coins",
                    "prompt": f"{dice.getrandbits(64):016x}",
                    "answer": dice.choice(["heads", "tails"]),
                }
            )
            for number in range(1, count + 1)
        ]
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_all(Path(__file__).parent)
