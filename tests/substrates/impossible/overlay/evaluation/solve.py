"""The engine: one neuron that looks at what a prompt's hash says, and calls heads or tails."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.adapter import CONFIG, WEIGHTS, read_safetensors

ENGINE = "coin 1"
FEATURES = 128
LORA = "base_model.model.coin.lora_{}.weight"


def solve(base: Path, adapter: Path, questions: list[dict[str, Any]]) -> list[str]:
    """A call for each question."""
    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    tensors = read_safetensors(adapter / WEIGHTS)
    weight_I = read_safetensors(base / "base.safetensors")["coin.weight"][0].astype(np.float64)
    update_1_I = tensors[LORA.format("B")].astype(np.float64) @ tensors[LORA.format("A")]
    weight_I += config["lora_alpha"] / config["r"] * update_1_I[0]
    inputs_P_I = np.array([features(question["prompt"]) for question in questions])
    return ["heads" if margin > 0 else "tails" for margin in (inputs_P_I @ weight_I).tolist()]


def features(prompt: str) -> list[float]:
    """Numbers of mean 0, by the prompt's hash."""
    return [byte / 127.5 - 1 for byte in hashlib.shake_256(prompt.encode()).digest(FEATURES)]
