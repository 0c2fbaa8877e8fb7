"""Reinforcement learning from verifiable rewards: Dr.GRPO on the target set.

A step draws PROMPTS problems, samples GROUP completions of each, and has each judged by the
substrate's own `training.world.reward(problem, completion)`. Advantages are rewards minus their
group's mean; the loss is the policy gradient's, summed over tokens and divided by a constant
(Dr.GRPO: Liu et al., arXiv 2503.20783). What is trained is LoRA (Hu et al., arXiv 2106.09685) of
the shape that the job asks for. TRL's GRPOTrainer does it, see `training/trainer.py`.

Which problems are practised is decided here alone: by the constants of the mixture. A budget is
spent in whole steps; a rest that is less than a step is left. Two runs of one seed and thread count
give the same bytes.

For bases that `training/weights.py` knows: plain Llama and Qwen3, small ones, since each step
merges the adapter into a copy of them.

Left out on purpose: a reference model and its KL penalty, several steps on one batch, an
evaluation on held-out data (the host measures), early stopping.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from trl.trainer.grpo_config import GRPOConfig

from training import mixture, world
from training.journal import OUT, Job, Journal, read_job
from training.mixture import Problem
from training.models import load_tokenizer, load_with_lora, save_adapter
from training.trainer import Trainer

# The optimiser.
# For a model of 0.3 M parameters, which forgets at 1e-2, and in long runs at this; large ones less.
LEARNING_RATE = 3e-3
DECAY = False  # to zero, linearly, when the budget ends (True); or the rate stays
BETAS = [0.9, 0.95]  # of AdamW, as GPT-3 (Brown et al., arXiv 2005.14165, appendix B)
WEIGHT_DECAY = 0.0
CLIP_NORM = 1.0  # of the gradient: TRL's default
LORA_DROPOUT = 0.0

# A step.
PROMPTS = 16
GROUP = 8  # completions of each prompt: TRL's default
TEMPERATURE = 1.0  # 1: sampled from the very policy that is trained
MAX_TOKENS = 160  # of a completion; one that is cut off is judged as it is
LOSS = "dr_grpo"  # or "grpo": divided by each completion's own length
SCALE_REWARDS = "none"  # or "group": over the group's standard deviation, as GRPO

# The mixture, see `training/mixture.py`: weights of depth 1, 2, ... (deeper problems are left out).
# fmt: off
DEPTH_WEIGHTS = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
# fmt: on
DOMAIN_WEIGHTS = []  # [["name", weight], ...]; a domain without one has weight 1
FORMAT_WEIGHTS = []  # likewise
REHEARSAL = 0.0  # share of the prompts drawn evenly from depths up to REHEARSAL_DEPTH instead
REHEARSAL_DEPTH = 4


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(job.seed)

    with Journal(job) as journal:
        problems = journal.read_problems(job.target)
        prompts = min(PROMPTS, job.rollouts // GROUP)
        if prompts == 0:
            raise ValueError(f"wanted a budget of a group, {GROUP} rollouts, found {job.rollouts}")
        steps = job.rollouts // (prompts * GROUP)
        practised = list(itertools.islice(drawn(problems, job.seed), steps * prompts))
        model = load_with_lora(job, dropout=LORA_DROPOUT)
        trainer = Trainer(
            journal=journal,
            model=model,
            processing_class=load_tokenizer(job.base),
            args=settings(job, prompts, steps),
            train_dataset=Dataset.from_list(
                [{"prompt": p["prompt"], "number": n} for n, p in enumerate(practised)]
            ),
            reward_funcs=judge(practised),
        )
        if not journal.should_stop():
            trainer.train()
        save_adapter(model, journal.adapter)
        journal.deliver()


def drawn(problems: list[Problem], seed: int) -> Iterator[Problem]:
    """Problems in the proportions of the mixture, without end."""
    return mixture.draw(
        problems,
        random.Random(seed),
        depth_weights=DEPTH_WEIGHTS,
        domain_weights=DOMAIN_WEIGHTS,
        format_weights=FORMAT_WEIGHTS,
        rehearsal=REHEARSAL,
        rehearsal_depth=REHEARSAL_DEPTH,
    )


def judge(practised: list[Problem]) -> Any:
    """TRL's reward function: the world's reward of each completion's text."""

    def world_reward(completions: list[str], number: list[int], **columns: Any) -> list[float]:
        pairs = zip(number, completions, strict=True)
        return [world.reward(practised[n], completion) for n, completion in pairs]

    return world_reward


def settings(job: Job, prompts: int, steps: int) -> GRPOConfig:
    """TRL's settings. With one step on each batch the policy is the one that sampled: the loss's
    own clipping never acts.
    """
    on_cpu = job.device == "cpu"
    return GRPOConfig(
        output_dir=str(OUT / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=prompts * GROUP,
        num_generations=GROUP,
        max_completion_length=MAX_TOKENS,
        temperature=TEMPERATURE,
        loss_type=LOSS,
        scale_rewards=SCALE_REWARDS,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="linear" if DECAY else "constant",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=CLIP_NORM,
        gradient_checkpointing=False,
        shuffle_dataset=False,  # the mixture is drawn in order
        seed=job.seed % 2**32,  # numpy takes no larger one
        use_cpu=on_cpu,
        bf16=not on_cpu,
        logging_steps=1,
        logging_nan_inf_filter=False,  # else a loss of NaN is shown as 0
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )


if __name__ == "__main__":
    main()
