"""TRL's GRPOTrainer on our decoder and journal.

Three things differ from TRL's own: completions come from `training/sampling.py`; groups whose
rewards are all equal, which have no gradient, are left out of the forward and backward passes;
each step's metrics go into the journal, which also ends the run.
"""

from typing import Any

import torch
from peft import PeftModel
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.trainer.grpo_trainer import GRPOTrainer

from training.journal import Journal
from training.models import ADAPTER
from training.sampling import sample
from training.weights import pack

ROWWISE = ("dr_grpo", "grpo")  # TRL's losses that divide by the number of rows


class Trainer(GRPOTrainer):
    """GRPOTrainer for a model with one LoRA adapter. Arguments as there, and:

    journal: counts rollouts and tokens, gets the metrics, says when to stop. A loss that is not
    finite raises Diverged out of `train`, for the journal to record.

    Raises ValueError for a loss that `with_gradient` would change.
    """

    def __init__(self, *, journal: Journal, **arguments: Any) -> None:
        super().__init__(rollout_func=self._rollout, **arguments)
        if self.loss_type not in ROWWISE or self.beta != 0:
            raise ValueError(
                f"wanted a loss of {ROWWISE} and beta 0, found {self.loss_type!r} and "
                f"{self.beta}; another needs the rows that `with_gradient` leaves out"
            )
        self.remove_callback(PrinterCallback)
        self.add_callback(_Reporter(journal))
        self._journal = journal
        self._dice = torch.Generator().manual_seed(self.args.seed)

    def _rollout(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """A completion for each prompt; a group's prompt comes as often as the group is large."""
        model, tokenizer = self.model, self.processing_class
        assert isinstance(model, PeftModel) and isinstance(tokenizer, PreTrainedTokenizerBase)
        end = tokenizer.eos_token_id
        assert isinstance(end, int), f"wanted one end-of-sequence token, found {end}"
        assert self.max_completion_length is not None, "wanted max_completion_length in args"
        prompt_ids = tokenizer(prompts)["input_ids"]
        completions = sample(
            pack(model, [ADAPTER]),
            prompt_ids,
            end=end,
            max_tokens=self.max_completion_length,
            temperature=self.temperature,
            generator=self._dice,
        )
        self._journal.count(
            rollouts=len(prompts), tokens=sum(len(completion.tokens) for completion in completions)
        )
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [completion.tokens for completion in completions],
            "logprobs": [completion.logprobs for completion in completions],
        }

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        return with_gradient(super()._generate_and_score_completions(inputs))


def with_gradient(batch: dict[str, Any]) -> dict[str, Any]:
    """The rows of TRL's batch whose advantage is not 0 (one row if there is none), less padding.

    TRL's losses `dr_grpo` and `grpo` divide by the number of rows: advantages shrink as it does,
    which leaves loss and gradient as they were.
    """
    rows = len(batch["advantages"])
    kept = batch["advantages"].nonzero()[:, 0]
    if len(kept) == 0:
        kept = kept.new_zeros(1)
    smaller: dict[str, Any] = {}
    for name, value in batch.items():
        per_row = isinstance(value, torch.Tensor) and value.shape[:1] == (rows,)
        smaller[name] = value[kept] if per_row else value
    smaller["advantages"] = smaller["advantages"] * len(kept) / rows
    for part in ("prompt", "completion"):
        used = smaller[f"{part}_mask"].any(dim=0)
        smaller[f"{part}_ids"] = smaller[f"{part}_ids"][:, used]
        smaller[f"{part}_mask"] = smaller[f"{part}_mask"][:, used]
    return smaller


class _Reporter(TrainerCallback):
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **context: Any,
    ) -> None:
        if logs is None or "loss" not in logs:  # the summary behind the last step
            return
        self._journal.step(
            loss=logs["loss"],
            reward=logs["reward"],
            equal_groups=logs["frac_reward_zero_std"],
            cut_off=logs["completions/clipped_ratio"],
            completion_tokens=logs["completions/mean_length"],
            gradient_norm=logs["grad_norm"],
        )
        control.should_training_stop |= self._journal.should_stop()
