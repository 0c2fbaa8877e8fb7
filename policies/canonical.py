"""Canonical JSON: the one spelling of a value that digests are taken of."""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no NaN: equal values have equal text.

    Raises ValueError for NaN and infinities: a number that is not finite is a missing value, and
    a missing value is null.
    """
    return _ENCODER.encode(value)


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


# One for all: `json.dumps` with options makes an encoder at each call.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
