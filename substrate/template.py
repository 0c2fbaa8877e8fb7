"""The template that a new drop-in starts from: it passes the check once its base is filled in."""

import json
import re
from pathlib import Path

from substrate.dropin import BadDropIn, Finding

_DOMAIN = "sums"


def write_template(folder: Path, name: str) -> list[Path]:
    """Write a commented manifest, four tiny problem sets, and two READMEs; returns the files.

    Raises BadDropIn when `folder` is there already, or when `name` cannot be a name.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", name):
        todo = "lower-case letters, digits, `.`, `_` and `-`, at most 63, a letter or digit first"
        raise BadDropIn(Finding("bad-value", "the drop-in's name", f"found {name!r}", todo))
    if folder.exists():
        todo = "choose another name, or move it away"
        raise BadDropIn(Finding("folder-exists", str(folder), "something is there", todo))
    texts = {
        "substrate.toml": _MANIFEST.replace("NAME", name),
        "target.jsonl": _problems("target", [(2, 3), (4, 1)]),
        "dev.jsonl": _problems("dev", [(6, 2), (3, 3)]),
        "judge/external.jsonl": _problems("external", [(5, 4), (1, 7)]),
        "judge/lockbox.jsonl": _problems("lockbox", [(8, 1), (2, 2)]),
        "judge/README.md": _JUDGE_README,
        "overlay/README.md": _OVERLAY_README,
    }
    for relative, text in texts.items():
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [folder / relative for relative in texts]


def _problems(kind: str, sums: list[tuple[int, int]]) -> str:
    lines = [
        json.dumps(
            {
                "id": f"{kind}-{number}",
                "domain": _DOMAIN,
                "prompt": f"What is {a} + {b}? Answer with the number alone.",
                "answer": str(a + b),
            }
        )
        for number, (a, b) in enumerate(sums, start=1)
    ]
    return "\n".join(lines) + "\n"


_JUDGE_README = """\
The judge's problems. `external.jsonl` is the authority, of which a campaign gets few looks;
`lockbox.jsonl` is opened once, at the end. Nothing in this folder ever enters a snapshot or a fork:
keep it free of links, and keep its problems out of the other sets and out of `overlay/`.
"""

_OVERLAY_README = """\
Files here are laid over the reference: `overlay/recipes/mine.py` becomes `recipes/mine.py` in every
fork, and a file that the reference has too takes its place. An `evaluation/solve.py` here replaces
the way in which questions are answered, an `evaluation/grade.py` that in which answers are graded:
the one never sees a label, the other never a model. This README, hidden files and byte code are
left out.
"""

_MANIFEST = """\
# A drop-in: one base model, four sets of problems, and what a run may use.
# `seedbed substrate check NAME` names every rule that this folder breaks.

schema_version = 1
name = "NAME" # that of this folder
title = "NAME: say in one line what it is"
recipe = "sft" # the default recipe: recipes/sft.py of the reference, or of overlay/

[base] # FILL IN: the base model, frozen weights that every adapter sits on
path = "base" # a folder of safetensors, config and tokenizer: relative to this file, or absolute
sha256 = "0000000000000000000000000000000000000000000000000000000000000000" # `check` tells the hash
source = "FILL IN: where the weights come from, with the revision"
licence = "FILL IN: SPDX identifier, such as Apache-2.0"

[adapter] # the shape that every delivered LoRA adapter must have
rank = 16
alpha = 32.0 # the update is alpha / rank * B @ A
target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

[budget]
rollouts = 1024 # completions that one run may sample: what makes runs comparable

[limits] # the safety net of one run
seconds = 600.0 # then SIGTERM, and after grace_seconds SIGKILL
grace_seconds = 5.0
memory_mb = 8192 # of the whole process tree
file_mb = 2048 # largest file
processes = 64
log_kb = 1024
gpus = 0

[run]
python = "" # interpreter of the training environment; empty: the one that runs Seedbed
threads = 2 # results depend on it
device = "cpu" # or "cuda"

[files] # which files of a fork a worker may change
editable = ["**"]
sealed = [] # besides evaluation/, data/, base/ and this manifest, which always are

# Four sets, disjoint by content. A line is a JSON object with `id`, `domain`, and for the
# reference's evaluation `prompt` and `answer`.

[sets.target] # labelled and trainable; never scored
path = "target.jsonl"
domains = ["sums"]

[sets.dev] # the search's proxy: scored, never trained on
path = "dev.jsonl"
domains = ["sums"]
metric = "accuracy"
direction = "maximise" # or "minimise"
range = [0.0, 1.0] # least and greatest possible value
labels = ["answer"] # fields of a problem that no model sees

[sets.external] # the authority: rationed looks
path = "judge/external.jsonl"
domains = ["sums"]
metric = "accuracy"
direction = "maximise"
range = [0.0, 1.0]

[sets.lockbox] # opened once, at the end
path = "judge/lockbox.jsonl"
domains = ["sums"]
metric = "accuracy"
direction = "maximise"
range = [0.0, 1.0]

# Constants of the reference's files to rewrite for this base model, by file and name:
# [overrides."recipes/sft.py"]
# LEARNING_RATE = 1e-4
"""
