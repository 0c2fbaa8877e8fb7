"""The loss against numbers worked out by hand, and against TRL's on one batch."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from training.advantages import dr_grpo
from training.loss import clipped_loss, token_logprobs

pytestmark = [
    # PEFT and TRL use names that transformers warns about.
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

PROMPTS, GROUP, PROMPT_TOKENS, COMPLETION_TOKENS = 3, 4, 5, 6
MAX_TOKENS = 10  # longer than any completion here: what Dr.GRPO divides by
TEMPERATURE = 0.7


def test_the_loss_clips_only_what_would_go_too_far() -> None:
    old_P_G_T = torch.tensor([[[0.25, 0.5, 0.5], [0.5, 0.4, 0.25]]]).log()
    # Ratios: 2 and 1.2, the third is padding; 0.5, 1 and 2.
    logprobs_P_G_T = torch.tensor([[[0.5, 0.6, 0.9], [0.25, 0.4, 0.5]]]).log()
    mask_P_G_T = torch.tensor([[[1, 1, 0], [1, 1, 1]]])
    advantages_P_G = torch.tensor([[1.0, -1.0]])
    loss = clipped_loss(
        logprobs_P_G_T, old_P_G_T, advantages_P_G, mask_P_G_T, normaliser=8.0, epsilon=0.1
    )
    # Gains 1.1 + 1.1 of the better completion, -0.9 - 1 - 2 of the worse one: together -1.7.
    assert loss.item() == pytest.approx(1.7 / 8, abs=1e-6)


def test_on_policy_the_gradient_is_the_advantage_of_each_token_that_counts() -> None:
    logprobs_P_G_T = torch.tensor([[[0.5, 0.6], [0.25, 0.4]]]).log().requires_grad_()
    mask_P_G_T = torch.tensor([[[1, 0], [1, 1]]])
    loss = clipped_loss(
        logprobs_P_G_T,
        logprobs_P_G_T.detach(),
        torch.tensor([[2.0, -1.0]]),
        mask_P_G_T,
        normaliser=4.0,
    )
    assert loss.item() == pytest.approx(-(2.0 - 1.0 - 1.0) / 4)
    loss.backward()
    assert logprobs_P_G_T.grad is not None
    assert logprobs_P_G_T.grad.tolist() == [[[-0.5, 0.0], [0.25, 0.25]]]


def test_token_log_probabilities_are_taken_at_the_temperature() -> None:
    logits_P_G_T_V = torch.tensor([[[[0.0, math.log(3.0)], [math.log(3.0), 0.0]]]])
    tokens_P_G_T = torch.tensor([[[1, 1]]])
    found = token_logprobs(logits_P_G_T_V, tokens_P_G_T)[0, 0].exp()
    assert found.tolist() == pytest.approx([3 / 4, 1 / 4])
    found = token_logprobs(logits_P_G_T_V, tokens_P_G_T, temperature=0.5)[0, 0].exp()
    assert found.tolist() == pytest.approx([9 / 10, 1 / 10])  # 3 squared to 1


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's own GRPOTrainer on a tiny model."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "word": 2}, "<pad>"))
    shape = Qwen3Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = get_peft_model(Qwen3ForCausalLM(shape), lora)
    folder: Path = tmp_path_factory.mktemp("trl")
    trainer = GRPOTrainer(
        model=model,
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, eos_token="<eos>", pad_token="<pad>"
        ),
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "word"}]),
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=PROMPTS * GROUP,
            num_generations=GROUP,
            max_completion_length=MAX_TOKENS,
            temperature=TEMPERATURE,
            loss_type="dr_grpo",
            scale_rewards="none",
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            report_to=[],
        ),
    )
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    assert trainer.model is not None
    trainer.model.train()
    return trainer


@pytest.fixture
def batch() -> dict[str, Any]:
    """A batch as TRL makes it: prompts padded on the left, completions on the right. All rewards
    of the first group are equal.
    """
    dice = torch.Generator().manual_seed(4)
    rows = PROMPTS * GROUP
    prompt_lengths = torch.tensor([2, 4, 5]).repeat_interleave(GROUP)
    completion_lengths = torch.randint(1, COMPLETION_TOKENS + 1, (rows,), generator=dice)
    before = PROMPT_TOKENS - torch.arange(PROMPT_TOKENS)
    prompt_mask = (before <= prompt_lengths[:, None]).long()
    completion_mask = (torch.arange(COMPLETION_TOKENS) < completion_lengths[:, None]).long()
    rewards_P_G = torch.tensor([[1.0, 1, 1, 1], [0, 1, 0, 0], [1, 0.25, 0, 1]])
    return {
        "prompt_ids": torch.randint(2, 20, (rows, PROMPT_TOKENS), generator=dice) * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": torch.randint(1, 20, (rows, COMPLETION_TOKENS), generator=dice)
        * completion_mask,
        "completion_mask": completion_mask,
        "advantages": dr_grpo(rewards_P_G).flatten(),
        "num_items_in_batch": completion_mask.sum(),
    }


def gradients(loss: Tensor, model: PeftModel) -> dict[str, Tensor]:
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(trained.values()))
    return dict(zip(trained, found, strict=True))


def close(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert max(gradient.abs().max().item() for gradient in theirs.values()) > 1e-3
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=0, atol=1e-6)


def our_logprobs(model: PeftModel, batch: dict[str, Any]) -> Tensor:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, PROMPT_TOKENS - 1 : -1]
    logprobs = token_logprobs(logits, batch["completion_ids"], TEMPERATURE)
    return logprobs.view(PROMPTS, GROUP, COMPLETION_TOKENS)


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_loss_and_gradients_are_those_of_trl(
    trainer: Any, batch: dict[str, Any], drift: float
) -> None:
    model = trainer.model
    logprobs_P_G_T = our_logprobs(model, batch)
    old_P_G_T = logprobs_P_G_T.detach()
    if drift:  # the policy that sampled was another one, so that some ratios are clipped
        noise = torch.randn(old_P_G_T.shape, generator=torch.Generator().manual_seed(6))
        old_P_G_T = old_P_G_T + drift * noise
        batch["old_per_token_logps"] = old_P_G_T.flatten(0, 1)
    ours = clipped_loss(
        logprobs_P_G_T,
        old_P_G_T,
        batch["advantages"].view(PROMPTS, GROUP),
        batch["completion_mask"].view(PROMPTS, GROUP, COMPLETION_TOKENS),
        normaliser=PROMPTS * GROUP * MAX_TOKENS,
    )
    theirs = trainer._compute_loss(model, batch)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
    assert abs(theirs.item()) > 1e-4
    close(gradients(ours, model), gradients(theirs, model))


@pytest.mark.parametrize("loss", ["dr_grpo", "grpo"])
@pytest.mark.parametrize("idle", [1, PROMPTS])
def test_rows_without_advantage_are_left_out_without_a_change(
    trainer: Any, batch: dict[str, Any], idle: int, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.trainer import with_gradient

    monkeypatch.setattr(trainer, "loss_type", loss)
    batch["advantages"].view(PROMPTS, GROUP)[:idle] = 0
    smaller = with_gradient(batch)
    assert len(smaller["advantages"]) == max(1, int((batch["advantages"] != 0).sum()))
    assert smaller["prompt_ids"].shape[1] == (5 if idle == 1 else 2)
    whole, fewer = (trainer._compute_loss(trainer.model, rows) for rows in (batch, smaller))
    assert fewer.item() == pytest.approx(whole.item(), abs=1e-6)
    if idle < PROMPTS:
        close(gradients(fewer, trainer.model), gradients(whole, trainer.model))


@pytest.mark.parametrize("scale", ["none", "group"])
def test_advantages_are_those_of_trl(
    trainer: Any, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.advantages import grpo

    rewards_P_G = torch.tensor([[1.0, 1, 1, 1], [0, 1, 0, 0], [1, 0.25, 0, 1]])
    rewards = [lambda completions, **columns: rewards_P_G.flatten().tolist()]
    monkeypatch.setattr(trainer, "scale_rewards", scale)
    monkeypatch.setattr(trainer, "reward_funcs", rewards)
    monkeypatch.setattr(
        trainer,
        "rollout_func",
        lambda prompts, _: {
            "prompt_ids": [[2]] * len(prompts),
            "completion_ids": [[2, 1]] * len(prompts),
            "logprobs": [[0.0, 0.0]] * len(prompts),
        },
    )
    rows = [{"prompt": "word"}] * (PROMPTS * GROUP)
    found = trainer._generate_and_score_completions(rows)["advantages"]
    wanted = {"none": dr_grpo, "group": grpo}[scale](rewards_P_G).flatten()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
