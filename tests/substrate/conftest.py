"""A tiny drop-in, made anew for each test: nothing in it can be trained or scored."""

import json
from pathlib import Path

import pytest

from substrate.store import tree_sha256

RECIPE = '''\
"""A recipe for tests."""

LEARNING_RATE = 3e-3  # Table 2
STEPS: int = 20
BETAS = (0.9, 0.99)
NAME = "tiny"
LIMIT = None


def main():
    return LEARNING_RATE * STEPS
'''

MANIFEST = """\
schema_version = 1
name = "tiny"
title = 'Tiny "quoted" ünïcode\\'
recipe = "tiny"

[base]
path = "base"
sha256 = "BASE_SHA256"
source = "made by a test"
licence = "Apache-2.0"

[adapter]
rank = 2
alpha = 4.0
target_modules = ["proj"]

[budget]
rollouts = 8

[limits]
seconds = 5.0
memory_mb = 256
file_mb = 16

[sets.target]
path = "target.jsonl"
domains = ["sums"]

[sets.dev]
path = "dev.jsonl"
domains = ["sums", "words"]
metric = "accuracy"
direction = "maximise"
range = [0.0, 1.0]

[sets.external]
path = "judge/external.jsonl"
domains = ["sums"]
metric = "accuracy"
direction = "maximise"
range = [0.0, 1.0]

[sets.lockbox]
path = "judge/lockbox.jsonl"
domains = ["sums"]
metric = "accuracy"
direction = "maximise"
range = [0.0, 1.0]
"""


@pytest.fixture
def tiny_dropin(tmp_path: Path) -> Path:
    """The folder of a drop-in that passes every check."""
    folder = tmp_path / "dropins" / "tiny"
    texts = {
        "overlay/recipes/tiny.py": RECIPE,
        "overlay/training/words.py": "WORDS = 3\n",
        "overlay/evaluation/solve.py": 'ENGINE = "tiny"\n',
        "target.jsonl": problems("target", "sums"),
        "dev.jsonl": problems("dev", "sums", "words"),
        "judge/external.jsonl": problems("external", "sums"),
        "judge/lockbox.jsonl": problems("lockbox", "sums"),
        "base/config.json": "{}",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "base/parts").mkdir()
    (folder / "base/parts/weights.bin").write_bytes(bytes(4096))
    manifest = MANIFEST.replace("BASE_SHA256", tree_sha256(folder / "base"))
    (folder / "substrate.toml").write_text(manifest, encoding="utf-8")
    return folder


def problems(name: str, *domains: str) -> str:
    """Two problems for each domain, one a line; those of another set are not among them."""
    lines = [
        json.dumps(
            {
                "id": f"{name}-{domain}-{number}",
                "domain": domain,
                "prompt": f"{name} question {domain} {number}",
                "answer": str(number),
            }
        )
        for domain in domains
        for number in (1, 2)
    ]
    return "\n".join(lines) + "\n"
