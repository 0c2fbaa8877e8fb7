"""Advantages over wider baselines, against numbers worked out by hand and against TRL's."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.baselines import centred, reinforce_plus_baseline, task_relative

pytestmark = [
    # TRL uses names that transformers warns about.
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]


def test_rewards_are_centred_on_their_group_and_scaled_over_the_batch() -> None:
    rewards_N = torch.tensor([1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 0.0, 1.0])
    groups_N = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    # Centred: .5 -.5 .5 -.5 | 2 -1 -1 0. Mean 0, squares sum to 7, over 8 - 1: deviation 1.
    found = reinforce_plus_baseline(rewards_N, groups_N, torch.zeros(8))
    assert found.tolist() == pytest.approx([0.5, -0.5, 0.5, -0.5, 2, -1, -1, 0])


def test_centred_rewards_keep_their_scale() -> None:
    rewards_N = torch.tensor([1.0, 0.0, 0.0, 0.2, 0.1])
    groups_N, batches_N = torch.tensor([7, 7, 7, 3, 3]), torch.zeros(5)
    # Means 1/3 and .15.
    found = centred(rewards_N, groups_N, batches_N)
    assert found.tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0.05, -0.05])


def test_groups_of_unequal_size_leave_no_mean() -> None:
    rewards_N = torch.tensor([1.0, 0.0, 0.0, 1.0, -1.0])
    groups_N = torch.tensor([7, 7, 7, 3, 3])
    # Centred: 2/3 -1/3 -1/3 | 1 -1. Squares sum to 2/3 + 2, over 5 - 1: 2/3.
    found = reinforce_plus_baseline(rewards_N, groups_N, torch.zeros(5))
    root = math.sqrt(2 / 3)
    assert found.tolist() == pytest.approx(
        [2 / 3 / root, -1 / 3 / root, -1 / 3 / root, 1 / root, -1 / root]
    )


@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_equal_rewards_have_no_advantage(size: int) -> None:
    # 7 times 0.7 is not seven times as much in float32: a rounding error over another would be 1.
    rewards = torch.tensor([0.7, 0.1, 0.9]).repeat_interleave(size)
    groups = torch.arange(3).repeat_interleave(size)
    assert reinforce_plus_baseline(rewards, groups, torch.zeros(3 * size)).abs().max() < 1e-6
    assert task_relative(rewards, groups).abs().max() < 1e-6


def test_a_group_of_one_has_no_advantage() -> None:
    found = reinforce_plus_baseline(
        torch.tensor([5.0, 1.0, 0.0]), torch.tensor([0, 1, 1]), torch.zeros(3)
    )
    assert found.tolist() == pytest.approx([0, 1, -1])


def test_one_members_rewards_change_nothing_for_another() -> None:
    # A teacher's rewards, in tenths, beside a student's: both come out as if alone.
    teacher, student = torch.tensor([0.1, 0.0, 0.1, 0.0]), torch.tensor([1.0, -1.0, -0.5, -0.5])
    groups = torch.tensor([0, 0, 1, 1])
    together = reinforce_plus_baseline(
        torch.cat([teacher, student]),
        torch.cat([groups, groups + 2]),
        torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
    )
    for part, rewards in ((together[:4], teacher), (together[4:], student)):
        assert part.tolist() == reinforce_plus_baseline(rewards, groups, torch.zeros(4)).tolist()
        assert part.mean().item() == pytest.approx(0, abs=1e-6)
        assert part.std().item() == pytest.approx(1, abs=1e-6)


def test_the_order_of_the_samples_does_not_matter() -> None:
    dice = torch.Generator().manual_seed(0)
    rewards = torch.rand(24, generator=dice)
    groups, batches = torch.arange(24) // 4, torch.arange(24) // 12
    order = torch.randperm(24, generator=dice)
    found = reinforce_plus_baseline(rewards[order], groups[order], batches[order])
    wanted = reinforce_plus_baseline(rewards, groups, batches)[order]
    torch.testing.assert_close(found, wanted)


def test_with_tokens_each_token_counts_once() -> None:
    rewards, tokens = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([3, 1, 1, 1])
    found = reinforce_plus_baseline(rewards, torch.tensor([0, 0, 1, 1]), torch.zeros(4), tokens)
    # Of the centred .5 -.5 .5 -.5, six tokens have mean (1.5 - .5 + .5 - .5) / 6 = 1/6. Squares
    # about it: 3 (1/3)^2 + (2/3)^2 + (1/3)^2 + (2/3)^2 = 4/3, over 6 - 1: 4/15.
    root = math.sqrt(4 / 15)
    assert found.tolist() == pytest.approx([1 / 3 / root, -2 / 3 / root] * 2)
    every_token = found.repeat_interleave(tokens)
    assert every_token.mean().item() == pytest.approx(0, abs=1e-6)
    assert every_token.std().item() == pytest.approx(1, abs=1e-6)


def test_each_task_has_a_baseline_and_a_scale_of_its_own() -> None:
    rewards, tasks = torch.tensor([1.0, 0.0, 10.0, 4.0, 1.0]), torch.tensor([0, 0, 1, 1, 1])
    # Task 0: mean 1/2, deviation root of 1/2. Task 1: mean 5, squares 25 + 1 + 16 over 2: 21.
    found = task_relative(rewards, tasks)
    assert found.tolist() == pytest.approx(
        [0.5**0.5, -(0.5**0.5), 5 / 21**0.5, -1 / 21**0.5, -4 / 21**0.5]
    )


GROUP = 4
REWARDS = torch.tensor([[1.0, 1, 1, 1], [0, 1, 0, 0], [1, 0.25, 0, 1]])


def trl_advantages(kind: str, folder: Path, **settings: Any) -> Tensor:
    """What TRL's own trainer of this kind makes of REWARDS."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.rloo_config import RLOOConfig
    from trl.trainer.rloo_trainer import RLOOTrainer

    makers: dict[str, Any] = {
        "rloo": (RLOOTrainer, RLOOConfig),
        "grpo": (GRPOTrainer, GRPOConfig),
    }
    trainer_of, settings_of = makers[kind]
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "word": 2}, "<pad>"))
    shape = Qwen3Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    trainer = trainer_of(
        model=Qwen3ForCausalLM(shape),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, eos_token="<eos>", pad_token="<pad>"
        ),
        reward_funcs=lambda completions, **columns: REWARDS.flatten().tolist(),
        train_dataset=Dataset.from_list([{"prompt": "word"}]),
        args=settings_of(
            output_dir=str(folder),
            per_device_train_batch_size=REWARDS.numel(),
            max_completion_length=2,
            beta=0.0,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            report_to=[],
            **settings,
        ),
    )
    trainer.model.train()
    rows = [{"prompt": "word"}] * REWARDS.numel()
    return trainer._generate_and_score_completions(rows)["advantages"]


def test_whitened_group_advantages_are_those_of_trl(tmp_path: Path) -> None:
    # TRL's RLOO takes the mean of the others, which is ours times G / (G - 1): whitening ends it.
    found = trl_advantages("rloo", tmp_path, num_generations=GROUP, normalize_advantages=True)
    groups_N = torch.arange(REWARDS.numel()) // GROUP
    ours = reinforce_plus_baseline(REWARDS.flatten(), groups_N, torch.zeros(REWARDS.numel()))
    torch.testing.assert_close(found, ours, rtol=0, atol=1e-3)  # TRL adds 1e-4 to the deviation
    assert found.abs().max() > 1


def test_a_tasks_advantages_are_those_of_trl_for_one_group(tmp_path: Path) -> None:
    found = trl_advantages("grpo", tmp_path, num_generations=REWARDS.numel(), scale_rewards="group")
    ours = task_relative(REWARDS.flatten(), torch.zeros(REWARDS.numel()))
    torch.testing.assert_close(found, ours, rtol=0, atol=1e-3)
    assert found.abs().max() > 1
