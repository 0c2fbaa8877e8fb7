"""Writes the stub's base model and its four sets of problems, the same for ever.

    python tests/substrates/stub/make_data.py

Difficulties are spread evenly over (0, 1) in each domain of each set, so that the share of a
domain that is solved is the skill in it; so are the recalls, at any difficulty.
"""

import json
import random
from pathlib import Path

import numpy as np
from safetensors.numpy import save

SEED = 20260
DOMAINS = ("integers", "strings", "lists")
BASE_SKILLS = (0.36, 0.28, 0.20)
FEATURES = 7
GOLDEN = (5**0.5 - 1) / 2  # multiples of it, mod 1, are spread evenly however few are taken

# Problems by domain. External and lockbox ask for lists where dev asks for integers: what helps on
# dev helps elsewhere in another measure.
SETS = {
    "data/target.jsonl": (100, 60, 40),
    "dev/problems.jsonl": (300, 180, 120),
    "judge/external.jsonl": (80, 120, 200),
    "judge/lockbox.jsonl": (160, 240, 400),
}


def write_all(folder: Path) -> None:
    dice = random.Random(SEED)
    weight = np.zeros((len(DOMAINS) + 1, 1 + FEATURES), dtype=np.float32)
    weight[: len(DOMAINS), 0] = BASE_SKILLS
    (folder / "base").mkdir(exist_ok=True)
    (folder / "base" / "base.safetensors").write_bytes(save({"skill.weight": weight}))
    config = {"model_type": "stub", "domains": DOMAINS, "features": FEATURES}
    write(folder / "base" / "config.json", json.dumps(config, indent=2) + "\n")

    for path, counts in SETS.items():
        name = Path(path).stem if path != "dev/problems.jsonl" else "dev"
        problems = []
        for domain, count in zip(DOMAINS, counts, strict=True):
            for rank in range(count):
                difficulty = round((rank + dice.random()) / count, 5)
                salt = f"{dice.getrandbits(48):012x}"
                recall = {"recall": round(rank * GOLDEN % 1, 5)} if name == "dev" else {}
                content = {"domain": domain, "difficulty": difficulty, "salt": salt, **recall}
                problems.append(content)
        dice.shuffle(problems)
        lines = [
            json.dumps({"id": f"{name}-{number:04d}", **problem})
            for number, problem in enumerate(problems, start=1)
        ]
        write(folder / path, "\n".join(lines) + "\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_all(Path(__file__).parent)
