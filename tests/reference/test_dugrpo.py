"""DuGRPO and its rivals against numbers worked out by hand."""

import math

import pytest
import torch

from training.dugrpo import EPSILON, FORMS, by_batch, by_group, centred, dugrpo, scale

# Group 0: mean 2, deviation sqrt((1 + 1) / 1) = sqrt(2). Group 1: mean 4, deviation
# sqrt((16 + 0 + 16) / 2) = 4. Group 2 is of equal rewards: it does not count in the mean.
REWARDS_N = torch.tensor([1.0, 3.0, 0.0, 4.0, 8.0, 5.0, 5.0])
GROUPS_N = torch.tensor([0, 0, 1, 1, 1, 2, 2])
TYPICAL = (math.sqrt(2) + 4) / 2


def test_dugrpo_divides_by_the_group_s_deviation_and_the_typical_one() -> None:
    quiet, loud = math.sqrt(2) + TYPICAL + EPSILON, 4 + TYPICAL + EPSILON
    wanted = [-1 / quiet, 1 / quiet, -4 / loud, 0, 4 / loud, 0, 0]
    assert dugrpo(REWARDS_N, GROUPS_N).tolist() == pytest.approx(wanted, rel=1e-12)


def test_the_other_forms_divide_by_one_deviation_or_none() -> None:
    root = math.sqrt(2) + EPSILON
    wanted = [-1 / root, 1 / root, -4 / (4 + EPSILON), 0, 4 / (4 + EPSILON), 0, 0]
    assert by_group(REWARDS_N, GROUPS_N).tolist() == pytest.approx(wanted, rel=1e-12)
    whole = math.sqrt((1 + 1 + 16 + 16) / 6) + EPSILON  # of the centred scores, whose mean is 0
    wanted = [value / whole for value in (-1, 1, -4, 0, 4, 0, 0)]
    assert by_batch(REWARDS_N, GROUPS_N).tolist() == pytest.approx(wanted, rel=1e-12)
    assert centred(REWARDS_N, GROUPS_N).tolist() == [-1, 1, -4, 0, 4, 0, 0]


def test_dugrpo_is_centring_of_rewards_that_were_divided_beforehand() -> None:
    dice = torch.Generator().manual_seed(0)
    rewards_N = torch.randn(64, generator=dice, dtype=torch.float64)
    groups_N = torch.randint(0, 9, (64,), generator=dice)
    divided_N = rewards_N / scale(rewards_N, groups_N)
    torch.testing.assert_close(
        centred(divided_N, groups_N), dugrpo(rewards_N, groups_N), rtol=0, atol=1e-14
    )


def test_a_quiet_group_pushes_less_than_a_loud_one() -> None:
    rewards_N = torch.tensor([0.0, 0.001, 0.0, 1.0])
    groups_N = torch.tensor([0, 0, 1, 1])
    found = dugrpo(rewards_N, groups_N).abs().tolist()
    assert found[0] < 0.01 * found[2]
    assert by_group(rewards_N, groups_N).abs().tolist()[0] == pytest.approx(
        math.sqrt(0.5), rel=0.01
    )


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_equal_rewards_have_no_advantage(form: str, size: int) -> None:
    # 7 times 0.7 is not seven times as much: a rounding error over another would be 1.
    rewards_N = torch.tensor([0.7, 0.1, 0.0, 0.9]).double().repeat_interleave(size)
    groups_N = torch.arange(4).repeat_interleave(size)
    assert FORMS[form](rewards_N, groups_N).abs().max() < 1e-6
