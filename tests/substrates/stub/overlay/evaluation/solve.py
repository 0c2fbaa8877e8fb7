"""The stub's engine: what it answers to a problem is its margin on it, and how much it recalls.

The model is one linear layer, `skill`, with a row per domain and one for recall. A problem's input
to it is (1, its FEATURES features), which are drawn from its salt, so that two adapters of equal
skill solve different problems. `grade.py` knows how difficult a problem is.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.adapter import CONFIG, WEIGHTS, BadAdapter, Unbound, read_safetensors

ENGINE = "stub 1"
FEATURES = 7
LORA = "base_model.model.skill.lora_{}.weight"


def solve(base: Path, adapter: Path, questions: list[dict[str, Any]]) -> list[str]:
    """The margin on each question, and the model's recall. Raises BadAdapter and Unbound."""
    domains = json.loads((base / "config.json").read_text(encoding="utf-8"))["domains"]
    plain_O_I = read_safetensors(base / "base.safetensors")["skill.weight"].astype(np.float64)
    weight_O_I = plain_O_I + _update(adapter, plain_O_I.shape)
    inputs_P_I = np.array([_inputs(question) for question in questions])
    rows_P = [domains.index(question["domain"]) for question in questions]
    margins_P_O = inputs_P_I @ weight_O_I.T
    if np.array_equal(margins_P_O, inputs_P_I @ plain_O_I.T):
        raise Unbound("wanted margins that differ from the base model's, found the same")
    margins_P = margins_P_O[np.arange(len(questions)), rows_P]
    return [json.dumps([margin, weight_O_I[-1, 0]]) for margin in margins_P.tolist()]


def _update(adapter: Path, shape: tuple[int, ...]) -> np.ndarray:
    """alpha / rank * B @ A, of the shape of the layer's weight (out, in)."""
    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    tensors = read_safetensors(adapter / WEIGHTS)
    if set(tensors) != {LORA.format("A"), LORA.format("B")}:
        raise BadAdapter(f"tensor-key: wanted the factors of `skill`, found {sorted(tensors)}")
    a_R_I = tensors[LORA.format("A")].astype(np.float64)
    b_O_R = tensors[LORA.format("B")].astype(np.float64)
    if (b_O_R.shape[0], a_R_I.shape[1]) != shape:
        found = (b_O_R.shape[0], a_R_I.shape[1])
        raise BadAdapter(f"shape: wanted an update of shape {shape} of `skill`, found {found}")
    return config["lora_alpha"] / config["r"] * b_O_R @ a_R_I


def _inputs(problem: dict[str, Any]) -> list[float]:
    """1 and the problem's features, of mean 0 and mean square 1 / FEATURES, from its salt."""
    digest = hashlib.sha256(problem["salt"].encode()).digest()
    uniform = [digest[i] / 255 - 0.5 for i in range(FEATURES)]
    return [1.0, *(number * math.sqrt(12 / FEATURES) for number in uniform)]
