"""Adapters for the stub, put together by hand: whole ones, and what breaks them."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

A, B = "base_model.model.skill.lora_A.weight", "base_model.model.skill.lora_B.weight"
RANK, ALPHA = 4, 8.0  # as the stub declares; its one layer has 4 rows and 8 columns
CONFIG = {
    "peft_type": "LORA",
    "r": RANK,
    "lora_alpha": ALPHA,
    "target_modules": ["skill"],
    "bias": "none",
}


def factors(*skills: float) -> dict[str, np.ndarray]:
    """The factors of an update that adds to integers, strings, lists and recall, in that order."""
    update = np.zeros((RANK, 8), dtype=np.float32)
    update[: len(skills), 0] = skills
    return {A: update, B: np.eye(RANK, dtype=np.float32) * (RANK / ALPHA)}


def safetensors(tensors: dict[str, np.ndarray], dtype: str = "F32") -> bytes:
    """A safetensors file, put together here by hand."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.astype("<f2").tobytes() if dtype == "F16" else tensor.astype("<f4").tobytes()
        if dtype == "BF16":  # the upper two bytes of each little-endian float32
            raw = np.frombuffer(raw, "<u2")[1::2].tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_adapter(
    folder: Path,
    tensors: dict[str, np.ndarray] | None = None,
    *,
    weights: bytes | None = None,
    **config: Any,
) -> Path:
    """Write an adapter, by default one that solves everything; `config` changes its settings.

    A setting of "absent" is left out; `weights` are the bytes of the weights' file, as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {key: value for key, value in (CONFIG | config).items() if value != "absent"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    whole = factors(2.0, 2.0, 2.0) if tensors is None else tensors
    data = safetensors(whole) if weights is None else weights
    (folder / "adapter_model.safetensors").write_bytes(data)
    return folder
