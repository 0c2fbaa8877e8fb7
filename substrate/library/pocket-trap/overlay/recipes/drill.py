"""Supervised fine-tuning on a mixture of the target set: which answers are drilled, and how often.

A problem is {"prompt", "answer", ...}; the loss is the mean cross-entropy over the answer's tokens
and an end-of-sequence token. Problems come in the proportions of `training/mixture.py`. The update
is LoRA (Hu et al., arXiv 2106.09685), trained by AdamW (Loshchilov and Hutter, arXiv 1711.05101).
One example counts as one rollout. Two runs of one seed and thread count give the same bytes.

Left out on purpose: warm-up, packing, evaluation on held-out data (the host measures).
"""

import random
from typing import Any

import torch

from training import mixture
from training.journal import Journal, read_job
from training.models import load_tokenizer, load_with_lora, save_adapter

LEARNING_RATE = 2e-3
BATCH_SIZE = 16  # examples in a step
CLIP_NORM = 1.0  # of the gradient
DECAY = True  # of the rate: to zero, linearly, when the budget ends
LORA_DROPOUT = 0.0

# The mixture: weights of depth 1, 2, ..., and of each lookup beside a program.
DEPTH_WEIGHTS = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
LOOKUP_WEIGHT = 0.0

IGNORED = -100  # the label that cross-entropy skips


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(job.seed)

    with Journal(job) as journal:
        tokenizer = load_tokenizer(job.base)
        model = load_with_lora(job, dropout=LORA_DROPOUT)
        drawn = mixture.draw(
            journal.read_problems(job.target),
            random.Random(job.seed),
            depth_weights=DEPTH_WEIGHTS,
            format_weights=[("lookup", LOOKUP_WEIGHT)],
        )
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)

        while not journal.should_stop():
            size = min(BATCH_SIZE, journal.rollouts_left)
            batch = collate([encode(next(drawn), tokenizer) for _ in range(size)], job.device)
            left = 1 - journal.rollouts / job.rollouts if DECAY else 1.0
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * left

            loss = model(**batch).loss  # mean over the answers' tokens of the whole batch
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
            optimizer.step()

            journal.count(rollouts=size, tokens=int((batch["labels"] != IGNORED).sum()))
            journal.step(loss=loss.item(), gradient_norm=norm.item())

        save_adapter(model, journal.adapter)
        journal.deliver()


def encode(problem: dict[str, Any], tokenizer: Any) -> tuple[list[int], int]:
    """Token ids of prompt, answer and end of sequence, and how many of them are the prompt's."""
    prompt = tokenizer(problem["prompt"])["input_ids"]
    answer = tokenizer(problem["answer"], add_special_tokens=False)["input_ids"]
    return [*prompt, *answer, tokenizer.eos_token_id], len(prompt)


def collate(examples: list[tuple[list[int], int]], device: str) -> dict[str, torch.Tensor]:
    """Examples padded on the right: input_ids, attention_mask and labels, each (batch, tokens)."""
    shape = (len(examples), max(len(ids) for ids, _ in examples))
    ids_B_T = torch.zeros(shape, dtype=torch.long)  # any id will do where the mask is 0
    mask_B_T = torch.zeros(shape, dtype=torch.long)
    labels_B_T = torch.full(shape, IGNORED)
    for row, (ids, prompt) in enumerate(examples):
        ids_B_T[row, : len(ids)] = torch.tensor(ids)
        mask_B_T[row, : len(ids)] = 1
        labels_B_T[row, prompt : len(ids)] = torch.tensor(ids[prompt:])
    batch = {"input_ids": ids_B_T, "attention_mask": mask_B_T, "labels": labels_B_T}
    return {name: tensor.to(device) for name, tensor in batch.items()}


if __name__ == "__main__":
    main()
