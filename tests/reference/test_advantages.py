"""Advantages against numbers worked out by hand."""

import pytest
import torch

from training.advantages import dr_grpo, grpo

REWARDS_P_G = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])


def test_dr_grpo_is_the_reward_minus_the_mean_of_its_group() -> None:
    wanted = [[0.5, -0.5, -0.5, 0.5], [0.75, -0.25, -0.25, -0.25], [0.0, 0.0, 0.0, 0.0]]
    assert dr_grpo(REWARDS_P_G).tolist() == wanted


def test_grpo_divides_by_the_standard_deviation_of_the_group() -> None:
    # Sums of squares 1 and 0.75, over 3; roots 0.577350 and 0.5; and 0.0001 on top.
    wanted = [
        [0.865875, -0.865875, -0.865875, 0.865875],
        [1.499700, -0.499900, -0.499900, -0.499900],
    ]
    found = grpo(REWARDS_P_G)
    assert found[:2].tolist() == [pytest.approx(row, abs=1e-6) for row in wanted]
    assert found[2].tolist() == [0.0, 0.0, 0.0, 0.0]
