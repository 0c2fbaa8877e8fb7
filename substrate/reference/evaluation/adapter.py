"""The checks that an adapter must pass before it is scored: plain LoRA of the declared shape.

An adapter is data from a stranger. Its weights are read as safetensors by the few lines below, its
configuration as JSON; nothing of it is executed or unpickled. What passes is plain LoRA,
W + alpha / rank * B @ A (Hu et al., arXiv 2106.09685, section 4.1), on declared modules only: a
variant whose update is something else (DoRA, rsLoRA, trained biases, replaced modules) is refused,
since its declared rank and alpha would not say what it is.

Standard library and numpy, so that a bad adapter is refused before a training stack is imported.
"""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"

# PEFT's key of a LoRA factor of a linear layer: base_model.model.layers.0.q_proj.lora_A.weight
FACTOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<factor>[AB])\.weight")

# What PEFT's LoraConfig may say beyond the declared shape: settings that leave the update
# alpha / rank * B @ A once training is over. Every other one has to be null, false or empty.
HARMLESS = {
    "auto_mapping",  # how a convenience class finds the base; the base is given here
    "base_model_name_or_path",
    "exclude_modules",  # these three choose modules; the tensors say which ones were chosen
    "layers_pattern",
    "layers_to_transform",
    "fan_in_fan_out",  # how the base stores its weights
    "inference_mode",
    "lora_dropout",  # off outside training
    "megatron_core",  # a module's name, unused while megatron_config is null
    "peft_version",
    "qalora_group_size",  # unused while use_qalora is false
    "revision",
    "task_type",
}
CHECKED = {
    "base_sha256",
    "bias",
    "init_lora_weights",
    "lora_alpha",
    "peft_type",
    "r",
    "target_modules",
}
# Initialisations that leave the base's weights alone; the others (PiSSA, OLoRA, ...) change them.
PLAIN_STARTS = [True, False, None, "gaussian", "orthogonal"]

# Bytes. 40,000 factors, an adapter on every expert of a large mixture, need about 8 MB.
HEADER_BYTES = 16 << 20
ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class BadAdapter(ValueError):
    """The adapter fails a check. The message names the rule, what was found and what to do."""


class Unbound(ValueError):
    """The model answers with the adapter as it does without: nothing of it is in place."""


def check(
    adapter: Path, *, rank: int, alpha: float, target_modules: Sequence[str], base_sha256: str
) -> float:
    """The Frobenius norm of the adapter's whole update, 0.0 if it changes nothing.

    `rank`, `alpha` and `target_modules` (last path components) are the declared shape.
    `base_sha256` is the base model's tree hash, compared where the configuration names one.
    Raises BadAdapter.
    """
    _check_config(adapter / CONFIG, rank, alpha, target_modules, base_sha256)
    factors = _factors(read_safetensors(adapter / WEIGHTS), rank, target_modules)
    squares = [_squared_norm(a_R_I, b_O_R) for a_R_I, b_O_R in factors.values()]
    return alpha / rank * math.sqrt(math.fsum(squares))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file by name, as float32. Raises BadAdapter.

    The format (https://github.com/huggingface/safetensors#format): 8 bytes of length,
    little-endian; a JSON header of that length; the data, which the header's offsets must tile
    without gap or overlap.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(HEADER_BYTES, size - 8):
            raise BadAdapter(
                f"safetensors-header: wanted a header of at most {HEADER_BYTES} bytes that ends "
                f"within the file's {size}, found one of {length}; save the adapter anew"
            )
        header = _parse(file.read(length), "safetensors-header")
    header.pop("__metadata__", None)
    if not header:
        raise BadAdapter("no-tensors: wanted tensors, found none; train before saving")
    if size == 8 + length:
        raise BadAdapter("safetensors-offsets: wanted data behind the header, found none; see disk")
    data = np.memmap(path, np.uint8, mode="r", offset=8 + length)

    entries = [_entry(name, value) for name, value in header.items()]
    tensors: dict[str, np.ndarray] = {}
    used = 0
    for begin, end, name, dtype, shape in sorted(entries):
        if begin != used or end > len(data) or end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
            raise BadAdapter(
                f"safetensors-offsets: wanted {_short(name)}, {dtype}{list(shape)}, to fill the "
                f"data from byte {used} on, found bytes {begin} to {end} of {len(data)}; the file "
                "is cut off or forged: save the adapter anew"
            )
        used = end
        tensors[name] = _as_float32(data[begin:end], dtype).reshape(shape)
    if used != len(data):
        raise BadAdapter(
            f"safetensors-offsets: wanted tensors to fill all {len(data)} bytes of data, found "
            f"{used} in use; save the adapter anew"
        )
    return tensors


def _check_config(
    path: Path, rank: int, alpha: float, target_modules: Sequence[str], base_sha256: str
) -> None:
    config = _parse(path.read_bytes(), "config-syntax")
    _want("config-type", config, "peft_type", ["LORA"])
    _want("rank", config, "r", [rank])
    _want("alpha", config, "lora_alpha", [alpha])
    _want("base-hash", config, "base_sha256", [base_sha256, None])
    _want("plain-lora", config, "bias", ["none"])
    _want("plain-lora", config, "init_lora_weights", PLAIN_STARTS)
    named = config.get("target_modules")
    if not isinstance(named, list) or not named or any(n not in target_modules for n in named):
        raise BadAdapter(
            f"target-modules: wanted a list of names out of {list(target_modules)} as "
            f"target_modules in {CONFIG}, found {_short(named)}; adapt declared modules only"
        )
    for key in sorted(config.keys() - HARMLESS - CHECKED):
        if config[key]:
            raise BadAdapter(
                f"plain-lora: wanted {_short(key)} to be null, false or empty in {CONFIG}, found "
                f"{_short(config[key])}; deliver plain LoRA"
            )


def _want(rule: str, config: dict[str, Any], key: str, wanted: Sequence[Any]) -> None:
    found = config.get(key)
    # True == 1 in Python, and a configuration never means the one by the other.
    if not any(found == w and isinstance(found, bool) == isinstance(w, bool) for w in wanted):
        raise BadAdapter(
            f"{rule}: wanted {key} to be {' or '.join(map(repr, wanted))} in {CONFIG}, found "
            f"{_short(found)}; deliver what the substrate declares"
        )


def _factors(
    tensors: dict[str, np.ndarray], rank: int, target_modules: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The factors A (rank, in) and B (out, rank) by module."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, tensor in tensors.items():
        match = FACTOR.fullmatch(key)
        if match is None or match["module"].rpartition(".")[2] not in target_modules:
            raise BadAdapter(
                f"tensor-key: wanted LoRA factors of modules named {list(target_modules)}, found "
                f"{_short(key)}; adapt declared modules only"
            )
        rank_axis, wanted = (0, (rank, "in")) if match["factor"] == "A" else (1, ("out", rank))
        if tensor.ndim != 2 or tensor.shape[rank_axis] != rank:
            raise BadAdapter(
                f"rank: wanted {_short(key)} of shape {wanted}, found {tensor.shape}; deliver the "
                "declared rank"
            )
        if not np.isfinite(tensor).all():
            raise BadAdapter(
                f"not-finite: wanted finite numbers, found NaN or infinity in {_short(key)}; look "
                "at the loss and the gradient's norm"
            )
        found.setdefault(match["module"], {})[match["factor"]] = tensor
    for module, pair in found.items():
        if len(pair) < 2:
            raise BadAdapter(
                f"missing-factor: wanted lora_A and lora_B of module {_short(module)}, found only "
                f"lora_{next(iter(pair))}; save the whole adapter"
            )
    return {module: (pair["A"], pair["B"]) for module, pair in found.items()}


def _squared_norm(a_R_I: np.ndarray, b_O_R: np.ndarray) -> float:
    """||B @ A||² (Frobenius) without forming B @ A: the sum of (BᵀB) * (AAᵀ), of shape (R, R).

    0.0 where the product is zero up to rounding.
    """
    a_R_I, b_O_R = a_R_I.astype(np.float64), b_O_R.astype(np.float64)
    gram_a_R_R, gram_b_R_R = a_R_I @ a_R_I.T, b_O_R.T @ b_O_R
    squared = float((gram_a_R_R * gram_b_R_R).sum())
    scale = float(np.trace(gram_a_R_R) * np.trace(gram_b_R_R))
    rounding = gram_a_R_R.size * float(np.finfo(np.float64).eps) * scale
    return squared if squared > rounding else 0.0


def _parse(text: bytes, rule: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8 are a ValueError too
        raise BadAdapter(
            f"{rule}: wanted a JSON object, found {type(error).__name__}: {str(error)[:200]}; "
            "save the adapter anew"
        ) from error
    if not isinstance(value, dict):
        raise BadAdapter(f"{rule}: wanted a JSON object, found {_short(value)}; save it anew")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Where a key occurs twice, this reader and the engine's might take different ones.
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key occurs twice")
    return table


def _entry(name: str, value: Any) -> tuple[int, int, str, str, tuple[int, ...]]:
    """One tensor of the header: first byte, byte behind the last, name, dtype, shape."""
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]}:
            whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
            plain = len(shape) <= 8 and 0 not in shape
            if dtype in ITEM_BYTES and whole and plain and begin <= end:
                return begin, end, name, dtype, tuple(shape)
    raise BadAdapter(
        f"safetensors-header: wanted dtype (one of {list(ITEM_BYTES)}), shape and data_offsets of "
        f"{_short(name)}, found {_short(value)}; save the adapter as one of these types"
    )


def _as_float32(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":  # the upper half of a float32
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view("<f4" if dtype == "F32" else "<f2").astype(np.float32, copy=False)


def _short(value: Any) -> str:
    return repr(value)[:200]
