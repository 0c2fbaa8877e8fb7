"""Degenerate probes: what a measurement must not mistake for a trained model.

`base` is the untouched base model: an adapter whose update is all but nothing, since one that is
nothing is refused. `random` is an adapter of the usual size whose every weight has its sign drawn
at random. `constant` and `empty` are completions that do not look at the problem.
"""

import json
import math
import random
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from substrate.measure import CONFIG, WEIGHTS, SealedAdapter, seal_folder
from substrate.store import Snapshot

AdapterProbe = Literal["base", "random"]

# Little-endian, by safetensors' names: the sign bit alone, and a value so small that it moves no
# logit (2^-20; in half precision the least normal number, 2^-14).
_SIGN = {"F32": b"\0\0\0\x80", "BF16": b"\0\x80", "F16": b"\0\x80"}
_TINY = {"F32": b"\0\0\x80\x35", "BF16": b"\x80\x35", "F16": b"\0\x04"}


def make_adapter(probe: AdapterProbe, like: SealedAdapter, seed: int, into: Path) -> SealedAdapter:
    """Make a degenerate adapter of the shape of a sealed one, and seal it in the folder `into`."""
    weights = (like.path / WEIGHTS).read_bytes()
    folder = into / f".unsealed-probe-{probe}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        (folder / CONFIG).write_bytes((like.path / CONFIG).read_bytes())
        changed = _untouched(weights) if probe == "base" else _random_signs(weights, seed)
        (folder / WEIGHTS).write_bytes(changed)
        return seal_folder(folder, into)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commonest_answer(snapshot: Snapshot) -> str:
    """The answer that most of the target set's problems have; "0" where they have none."""
    text = (snapshot.root / snapshot.manifest.sets.target.path).read_text("utf-8")
    problems = [json.loads(line) for line in text.splitlines() if line.strip()]
    answers = Counter(str(problem["answer"]) for problem in problems if problem.get("answer"))
    return answers.most_common(1)[0][0] if answers else "0"


def _untouched(weights: bytes) -> bytes:
    """Every B is zero, but for one weight of the first, which is tiny."""
    data = bytearray(weights)
    is_first = True
    for name, kind, begin, end in _tensors(weights):
        if ".lora_B." in name:
            data[begin:end] = bytes(end - begin)
            if is_first:
                data[begin : begin + len(_TINY[kind])] = _TINY[kind]
            is_first = False
    return bytes(data)


def _random_signs(weights: bytes, seed: int) -> bytes:
    dice = random.Random(seed)
    data = bytearray(weights)
    for _, kind, begin, end in _tensors(weights):
        size = end - begin
        signs = int.from_bytes(_SIGN[kind] * (size // len(_SIGN[kind])))
        drawn = signs & int.from_bytes(dice.randbytes(size))
        data[begin:end] = (int.from_bytes(data[begin:end]) ^ drawn).to_bytes(size)
    return bytes(data)


def _tensors(weights: bytes) -> list[tuple[str, str, int, int]]:
    """Name, type and place of each tensor of a safetensors file that passed the checks."""
    (length,) = struct.unpack("<Q", weights[:8])
    header: dict[str, Any] = json.loads(weights[8 : 8 + length])
    header.pop("__metadata__", None)
    found = []
    for name, entry in sorted(header.items()):
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert end - begin == math.prod(entry["shape"]) * len(_SIGN[entry["dtype"]])
        found.append((name, entry["dtype"], begin, end))
    return found
