"""Blocks of two gradients, and a second moment, by hand."""

import pytest
import torch

from training.alignment import alignment, block_of
from training.influence import SecondMoment

FIRST = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
SECOND = "model.layers.1.self_attn.q_proj.lora_A.default.weight"
OTHER = "model.layers.0.self_attn.q_proj.lora_B.default.weight"


def test_a_block_is_a_factor_of_a_module_in_all_layers() -> None:
    assert [block_of(name) for name in (FIRST, SECOND, OTHER)] == ["q_proj.A"] * 2 + ["q_proj.B"]


def test_cosines_are_those_of_each_block() -> None:
    gradient = {FIRST: torch.tensor([[3.0]]), SECOND: torch.tensor([[4.0]]), OTHER: torch.ones(2)}
    target = {FIRST: torch.tensor([[1.0]]), SECOND: torch.tensor([[0.0]]), OTHER: torch.zeros(2)}
    moment = SecondMoment({name: torch.zeros(1) for name in gradient}, 0, 0.9, 1e-8)
    found = alignment(gradient, target, moment)
    assert found["cosines"] == {"q_proj.A": pytest.approx(3 / 5), "q_proj.B": None}
    assert found["over_moment"] is None  # AdamW has taken no step


def test_squares_are_told_beside_the_corrected_second_moment() -> None:
    # After one step v' is v / (1 - .9): 1, 2, 4; g^2 over it 1, 2, 3 and one that has no v.
    values = torch.tensor([0.1, 0.2, 0.4, 0.0], dtype=torch.float64)
    gradient = torch.tensor([1.0, 4.0, 12.0, 9.0], dtype=torch.float64).sqrt()
    found = alignment(
        {FIRST: gradient}, {FIRST: gradient}, SecondMoment({FIRST: values}, 1, 0.9, 0)
    )
    assert found["over_moment"] == {
        "0.05": pytest.approx(1.1),
        "0.5": pytest.approx(2.0),
        "0.95": pytest.approx(2.9),
    }


def test_adapters_of_more_parameters_than_quantiles_take_are_told_by_a_sample() -> None:
    gradient = torch.full((2**24 + 1,), 2.0)
    moment = SecondMoment({FIRST: torch.full_like(gradient, 0.1)}, 1, 0.9, 0)
    found = alignment({FIRST: gradient}, {FIRST: gradient}, moment)
    assert found["over_moment"] == dict.fromkeys(("0.05", "0.5", "0.95"), pytest.approx(4.0))
