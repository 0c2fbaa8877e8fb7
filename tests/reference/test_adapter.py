"""The checks of a delivered adapter: each rule has something that breaks it."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.adapter import BadAdapter, check, read_safetensors
from tests.substrates.stub.adapters import ALPHA, RANK, A, B, factors, safetensors, write_adapter

BASE_SHA256 = "b" * 64


def checked(folder: Path) -> float:
    return check(folder, rank=RANK, alpha=ALPHA, target_modules=["skill"], base_sha256=BASE_SHA256)


def refused(folder: Path) -> str:
    with pytest.raises(BadAdapter) as error:
        checked(folder)
    return str(error.value)


def with_entry(**changes: Any) -> bytes:
    """The weights' file with the header's entry of A changed."""
    return with_header(lambda header: header[A].update(changes))


def with_header(change: Callable[[dict[str, Any]], object]) -> bytes:
    whole = safetensors(factors(2.0, 2.0, 2.0))
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + whole[8 + length :]


def with_number(value: float) -> dict[str, np.ndarray]:
    tensors = factors(2.0, 2.0, 2.0)
    tensors[B][3, 3] = value
    return tensors


def test_the_norm_is_that_of_the_whole_update(tmp_path: Path) -> None:
    # B is rank / alpha times the identity, so the update is A: (0.3, 0, 0.4) in one column.
    write_adapter(tmp_path, factors(0.3, 0.0, 0.4))
    assert checked(tmp_path) == pytest.approx(0.5, rel=1e-6)


def test_the_norm_adds_up_over_modules(tmp_path: Path) -> None:
    deep = {key.replace("skill", "deep.skill"): t for key, t in factors(0.0, 1.2).items()}
    write_adapter(tmp_path, factors(0.5) | deep)
    assert checked(tmp_path) == pytest.approx(1.3, rel=1e-6)


@pytest.mark.parametrize("name", [A.replace("skill", "layers.0.skill"), A])
def test_a_module_is_known_by_its_last_name(name: str, tmp_path: Path) -> None:
    whole = {name: factors(1.0)[A], name.replace("lora_A", "lora_B"): factors()[B]}
    write_adapter(tmp_path, whole)
    assert checked(tmp_path) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("tensors", "rule"),
    [
        (with_number(float("nan")), "not-finite"),
        (with_number(float("inf")), "not-finite"),
        (with_number(float("-inf")), "not-finite"),
        ({A: factors()[A]}, "missing-factor"),
        ({B: factors()[B]}, "missing-factor"),
        (factors(2.0) | {A.replace("skill", "head"): np.ones((4, 8))}, "tensor-key"),
        (factors(2.0) | {"skill.weight": np.ones((4, 8))}, "tensor-key"),
        (factors(2.0) | {A.replace("weight", "bias"): np.ones((4, 8))}, "tensor-key"),
        ({A: np.ones((2, 8)), B: np.ones((4, 2))}, "rank"),
        ({A: np.ones((8, 8)), B: np.ones((4, 8))}, "rank"),
        ({A: np.ones((4, 8)), B: np.ones(4)}, "rank"),
    ],
)  # fmt: skip
def test_each_rule_about_tensors_refuses(
    tensors: dict[str, np.ndarray], rule: str, tmp_path: Path
) -> None:
    write_adapter(tmp_path, tensors)
    assert refused(tmp_path).startswith(f"{rule}: wanted")


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        (b"", "safetensors-header"),
        (b"\x80\x04}q\x00.", "safetensors-header"),  # a pickle
        (b"PK\x03\x04" + bytes(200), "safetensors-header"),  # a zip file, as torch.save writes
        (struct.pack("<Q", 2**63) + b"{}", "safetensors-header"),
        (struct.pack("<Q", 17 << 20) + bytes(1000), "safetensors-header"),
        (struct.pack("<Q", 200_000) + b'{"a":' * 40_000, "safetensors-header"),
        (struct.pack("<Q", 2) + b"[]", "safetensors-header"),
        (struct.pack("<Q", 2) + b"{}", "no-tensors"),
        (struct.pack("<Q", 15) + b'{"a":1,"a":2}  ', "safetensors-header"),
        (safetensors(factors(2.0))[:-1], "safetensors-offsets"),
        (safetensors(factors(2.0)) + b"\0", "safetensors-offsets"),
        (with_entry(data_offsets=[0, 64]), "safetensors-offsets"),
        (with_entry(data_offsets=[64, 192]), "safetensors-offsets"),
        (with_entry(data_offsets=[-128, 0]), "safetensors-header"),
        (with_entry(shape=[4, 2**62]), "safetensors-offsets"),
        (with_entry(shape=[0, 8]), "safetensors-header"),
        (with_entry(shape=[1] * 99), "safetensors-header"),
        (with_entry(shape=[True, 32]), "safetensors-header"),
        (with_entry(dtype="F64"), "safetensors-header"),
        (with_entry(dtype="I8"), "safetensors-header"),
    ],
)  # fmt: skip
def test_weights_are_read_as_safetensors_or_not_at_all(
    weights: bytes, rule: str, tmp_path: Path
) -> None:
    write_adapter(tmp_path, weights=weights)
    assert refused(tmp_path).startswith(f"{rule}: wanted")


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"peft_type": "IA3"}, "config-type"),
        ({"peft_type": "absent"}, "config-type"),
        ({"r": 8}, "rank"),
        ({"r": True}, "rank"),
        ({"lora_alpha": 16}, "alpha"),
        ({"lora_alpha": float("nan")}, "alpha"),
        ({"target_modules": ["skill", "head"]}, "target-modules"),
        ({"target_modules": "all-linear"}, "target-modules"),
        ({"target_modules": []}, "target-modules"),
        ({"base_sha256": "0" * 64}, "base-hash"),
        ({"bias": "all"}, "plain-lora"),
        ({"use_dora": True}, "plain-lora"),
        ({"use_rslora": True}, "plain-lora"),
        ({"rank_pattern": {"skill": 8}}, "plain-lora"),
        ({"alpha_pattern": {"skill": 80}}, "plain-lora"),
        ({"modules_to_save": ["head"]}, "plain-lora"),
        ({"init_lora_weights": "pissa"}, "plain-lora"),
        ({"some_later_variant": {"x": 1}}, "plain-lora"),
    ],
)
def test_each_rule_about_the_configuration_refuses(
    config: dict[str, Any], rule: str, tmp_path: Path
) -> None:
    write_adapter(tmp_path, **config)
    assert refused(tmp_path).startswith(f"{rule}: wanted")


def test_a_configuration_that_is_not_json_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{'r': 4}", '{"r": 4, "r": 4}', "[" * 50_000):
        (write_adapter(tmp_path) / "adapter_config.json").write_text(text)
        assert refused(tmp_path).startswith("config-syntax: wanted a JSON object")


@pytest.mark.parametrize(
    "tensors",
    [
        factors(),
        factors(2.0) | {B: np.zeros((4, 4))},
        # A's rows are equal and B's columns cancel: neither factor is zero, their product is.
        {A: np.ones((4, 8)) / 3, B: np.tile([0.1, -0.1, 0.7, -0.7], (4, 1))},
    ],
)
def test_an_update_of_zero_has_norm_zero(tensors: dict[str, np.ndarray], tmp_path: Path) -> None:
    write_adapter(tmp_path, tensors)
    assert checked(tmp_path) == 0.0


def test_a_tiny_update_is_a_change(tmp_path: Path) -> None:
    write_adapter(tmp_path, factors(1e-30))
    assert checked(tmp_path) == pytest.approx(1e-30)


@pytest.mark.parametrize(("dtype", "bits"), [("F16", 10), ("BF16", 7)])
def test_half_precision_is_read_to_the_last_bit(dtype: str, bits: int, tmp_path: Path) -> None:
    exact = np.array([[1.0, -1.0, 1 + 2.0**-bits, 0.0], [0.5, 2.0, -0.0, 2.0**-14]])
    path = write_adapter(tmp_path, weights=safetensors({"x": exact}, dtype))
    read = read_safetensors(path / "adapter_model.safetensors")["x"]
    assert read.dtype == np.float32
    assert read.tolist() == exact.tolist()
