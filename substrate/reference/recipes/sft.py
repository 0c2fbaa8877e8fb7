"""Supervised fine-tuning on the target set: LoRA trained on the answers of labelled problems.

The direct-training arm: what a substrate's labelled target set is worth by itself, against which a
recipe that makes its own problems has to stand. A problem is {"prompt", "answer", ...}; the model
reads the prompt and answer as they are, with an end-of-sequence token behind, and the loss is the
mean cross-entropy over the answer's tokens and that last one (the prompt's are masked). The update
is LoRA (Hu et al., arXiv 2106.09685) of the shape that the job asks for, trained by AdamW
(Loshchilov and Hutter, arXiv 1711.05101) with linear warm-up and decay.

The budget: one example processed counts as one rollout, so that a run of this recipe sees as many
sequences as a run of any other samples. Two runs of one seed and thread count give the same bytes.

Left out on purpose: chat templates, packing, gradient accumulation, an evaluation on held-out
data (the host measures), early stopping.
"""

import random
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from training.journal import Journal, read_job
from training.models import load_tokenizer, load_with_lora, save_adapter

# Where nothing else is said, as QLoRA (Dettmers et al., arXiv 2305.14314) fine-tunes 7B models: its
# repository, scripts/finetune_guanaco_7b.sh.
LEARNING_RATE = 2e-4  # the highest, after the warm-up
BATCH_SIZE = 16  # examples in a step
BETAS = [0.9, 0.999]  # of AdamW
WEIGHT_DECAY = 0.0
WARMUP = 0.03  # share of the budget over which the learning rate rises
DECAY = True  # to zero, linearly, when the budget ends; there the rate stays (False)
CLIP_NORM = 0.3  # of the gradient
LORA_DROPOUT = 0.1  # of the inputs of A
MAX_TOKENS = 1024  # longer examples are cut on the prompt's left, so that the answer stays whole

IGNORED = -100  # the label that cross-entropy skips


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(job.seed)
    dice = random.Random(job.seed)

    with Journal(job) as journal:
        tokenizer = load_tokenizer(job.base)
        model = load_with_lora(job, dropout=LORA_DROPOUT)
        problems = journal.read_problems(job.target)
        examples = [encode(problem, tokenizer) for problem in problems]
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(
            trained, lr=LEARNING_RATE, betas=(BETAS[0], BETAS[1]), weight_decay=WEIGHT_DECAY
        )
        order = endless(len(examples), dice)

        while not journal.should_stop():
            size = min(BATCH_SIZE, journal.rollouts_left)
            batch = collate([examples[next(order)] for _ in range(size)], job.device)
            rate = LEARNING_RATE * schedule(journal.rollouts / job.rollouts)
            for group in optimizer.param_groups:
                group["lr"] = rate

            loss = model(**batch).loss  # mean over the answers' tokens of the whole batch
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
            optimizer.step()

            journal.count(rollouts=size, tokens=int((batch["labels"] != IGNORED).sum()))
            journal.step(loss=loss.item(), gradient_norm=norm.item(), learning_rate=rate)

        save_adapter(model, journal.adapter)
        journal.deliver()


def encode(problem: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], int]:
    """Token ids of prompt, answer and end of sequence, and how many of them are the prompt's."""
    prompt = tokenizer(problem["prompt"])["input_ids"]
    answer = tokenizer(problem["answer"], add_special_tokens=False)["input_ids"]
    answer = [*answer, tokenizer.eos_token_id]
    prompt = prompt[max(0, len(prompt) + len(answer) - MAX_TOKENS) :]
    return prompt + answer, len(prompt)


def collate(examples: list[tuple[list[int], int]], device: str) -> dict[str, torch.Tensor]:
    """Examples padded on the right: input_ids, attention_mask and labels, each (batch, tokens)."""
    longest = max(len(ids) for ids, _ in examples)
    shape = (len(examples), longest)
    ids_B_T = torch.zeros(shape, dtype=torch.long)  # any id will do where the mask is 0
    mask_B_T = torch.zeros(shape, dtype=torch.long)
    labels_B_T = torch.full(shape, IGNORED)
    for row, (ids, prompt) in enumerate(examples):
        ids_B_T[row, : len(ids)] = torch.tensor(ids)
        mask_B_T[row, : len(ids)] = 1
        labels_B_T[row, prompt : len(ids)] = torch.tensor(ids[prompt:])
    batch = {"input_ids": ids_B_T, "attention_mask": mask_B_T, "labels": labels_B_T}
    return {name: tensor.to(device) for name, tensor in batch.items()}


def schedule(used: float) -> float:
    """The factor on the learning rate when a share `used` of the budget is spent."""
    if used < WARMUP:
        return (used + WARMUP / 10) / (WARMUP + WARMUP / 10)  # not 0 in the first step
    return (1 - used) / (1 - WARMUP) if DECAY else 1.0


def endless(count: int, dice: random.Random) -> Iterator[int]:
    """Indices of `count` examples, each epoch in a new order."""
    while True:
        yield from dice.sample(range(count), count)


if __name__ == "__main__":
    main()
