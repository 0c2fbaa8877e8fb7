"""A drop-in around a random model of a few thousand weights, for tests that run a recipe on it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from substrate.store import tree_sha256

SETS = {
    "target": "target.jsonl",
    "dev": "dev.jsonl",
    "external": "judge/external.jsonl",
    "lockbox": "judge/lockbox.jsonl",
}
MANIFEST = """\
schema_version = 1
name = "{name}"
title = "Short texts, for a random model of a few thousand weights"
recipe = "{recipe}"

[base]
path = "base"
sha256 = "{base_sha256}"
source = "made by a test"
licence = "Apache-2.0"

[adapter]
rank = {rank}
alpha = {alpha}
target_modules = ["q_proj", "v_proj", "up_proj", "down_proj"]

[budget]
rollouts = {rollouts}

[limits]
seconds = 100.0
memory_mb = 4096
file_mb = 64

[sets.target]
path = "target.jsonl"
domains = ["{domain}"]
"""
SCORED = """
[sets.{name}]
path = "{path}"
domains = ["{domain}"]
metric = "accuracy"
direction = "maximise"
range = [0.0, 1.0]
"""


def write_dropin(
    folder: Path,
    problems: Mapping[str, Sequence[dict[str, Any]]],
    *,
    recipe: str,
    rank: int,
    alpha: float,
    rollouts: int,
) -> None:
    """Manifest and problems, by set, around the base model that is there already."""
    domain = problems["target"][0]["domain"]
    values = {"name": folder.name, "recipe": recipe, "rank": rank, "alpha": alpha}
    values |= {"rollouts": rollouts, "domain": domain, "base_sha256": tree_sha256(folder / "base")}
    manifest = MANIFEST.format(**values)
    for name, path in SETS.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("".join(json.dumps(line) + "\n" for line in problems[name]))
        if name != "target":
            manifest += SCORED.format(name=name, path=path, domain=domain)
    (folder / "substrate.toml").write_text(manifest)


def write_base(folder: Path, signs: str, **shape: Any) -> None:
    """A random Qwen3 of this shape, with a tokenizer of one token for each sign."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokens = ["<eos>", "<pad>", *signs]
    tokenizer = Tokenizer(models.WordLevel({sign: n for n, sign in enumerate(tokens)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokens),
        num_hidden_layers=2,
        num_key_value_heads=2,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
        **shape,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
