"""The tensors of an adapter, hashed: the same however a file orders them and whatever else it says.

The host reads a stranger's file here, so that nothing of it is trusted: what is not a plain
safetensors file has no hash, and `evaluation/adapter.py` says what is wrong with it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, BinaryIO

HEADER_BYTES = 16 << 20
BLOCK_BYTES = 4 << 20


def tensors_sha256(path: Path) -> str | None:
    """Hash of name, type, shape and bytes of every tensor, by name; None for no safetensors file.

    The format: https://github.com/huggingface/safetensors#format
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > HEADER_BYTES:
            return None
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            digest = hashlib.sha256()
            for name in sorted(header):
                _add_tensor(digest, name, header[name], file, 8 + length)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return None
    return digest.hexdigest() if header else None


def _add_tensor(digest: Any, name: str, entry: Any, file: BinaryIO, data: int) -> None:
    begin, end = entry["data_offsets"]
    digest.update(json.dumps([name, entry["dtype"], entry["shape"], end - begin]).encode())
    file.seek(data + begin)
    left = end - begin
    while left > 0:
        block = file.read(min(left, BLOCK_BYTES))
        if not block:
            raise ValueError("the file ends within a tensor")
        digest.update(block)
        left -= len(block)
