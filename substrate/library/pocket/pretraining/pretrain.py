"""Pretrains the pocket base model, and goes on where it stopped.

    python substrate/library/pocket/pretraining/pretrain.py --out FOLDER [--seed 0] [--steps 7500]

A small Qwen3 with tied embeddings learns to predict the answers of `mixture.py`. Matrices are
trained by Muon, embeddings and norms by AdamW; the rate rises, stays, and falls to nothing over the
last third. Every block of batches has random numbers of its own, from the seed and the block's
number, so a run that was interrupted and resumed sees what it would have seen.

FOLDER gets `log.jsonl`, `checkpoint.pt` every few minutes, and `base/` in Hugging Face format
whenever a checkpoint is written.
"""

import argparse
import itertools
import json
import os
import random
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

POCKET = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(POCKET / "overlay")]

from mixture import Example, draw_example  # noqa: E402
from muon import Muon  # noqa: E402
from training.vocabulary import END_ID, PAD_ID, TOKENS, save_tokenizer  # noqa: E402

WIDTH, LAYERS, HEADS, HIDDEN = 80, 4, 4, 208
STEPS = 7500
TOKENS_PER_STEP = 3072  # padding included
BLOCK = 16  # steps whose examples are drawn and sorted by length together
MUON_RATE, ADAM_RATE = 0.02, 0.004
WARMUP, DECAY = 100, 0.35  # steps; share of the run
CLIP_NORM = 1.0
LOG_EVERY, SAVE_EVERY = 50, 120.0  # steps; seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--until", type=int, help="stop after this step, to go on later")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    until = arguments.until or arguments.steps
    pretrain(arguments.out, arguments.seed, arguments.steps, until, arguments.threads)


def pretrain(out: Path, seed: int, steps: int, until: int, threads: int) -> None:
    """Train the steps up to `until` of a run of `steps`, from the checkpoint in `out` if any."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    model = new_model().train()
    matrices = [weight for name, weight in model.named_parameters() if "_proj." in name]
    others = [weight for name, weight in model.named_parameters() if "_proj." not in name]
    muon = Muon(matrices, lr=MUON_RATE)
    adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    out.mkdir(parents=True, exist_ok=True)
    block, spent, trained = 0, 0.0, 0
    if (out / "checkpoint.pt").exists():
        saved = torch.load(out / "checkpoint.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        muon.load_state_dict(saved["muon"])
        adam.load_state_dict(saved["adam"])
        block, spent, trained = saved["block"], saved["cpu_seconds"], saved["tokens"]
    # What was logged behind the checkpoint is done, and logged, again.
    known = (out / "log.jsonl").read_text().splitlines() if (out / "log.jsonl").exists() else []
    known = [line for line in known if json.loads(line)["step"] <= block * BLOCK]
    (out / "log.jsonl").write_text("".join(f"{line}\n" for line in known))

    started, last_save = time.process_time() - spent, time.monotonic()
    losses: list[float] = []
    with (out / "log.jsonl").open("a", encoding="utf-8", buffering=1) as log:
        while block * BLOCK < until:
            for number, batch in enumerate(draw_block(seed, block, steps)):
                step = block * BLOCK + number
                rate = schedule(step, steps)
                for optimizer, full in ((muon, MUON_RATE), (adam, ADAM_RATE)):
                    for group in optimizer.param_groups:
                        group["lr"] = full * rate
                ids_B_T, labels_B_T = batch
                logits_B_T_V = model(ids_B_T).logits
                loss = functional.cross_entropy(
                    logits_B_T_V[:, :-1].flatten(0, 1), labels_B_T[:, 1:].flatten()
                )
                model.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(others, CLIP_NORM)
                muon.step()
                adam.step()
                losses.append(loss.item())
                trained += int((labels_B_T != -100).sum())
                if step % LOG_EVERY == LOG_EVERY - 1:
                    row = {
                        "step": step + 1,
                        "cpu_seconds": round(time.process_time() - started, 1),
                        "loss_tokens": trained,
                        "loss": round(sum(losses) / len(losses), 5),
                        "rate": round(rate, 4),
                    }
                    log.write(json.dumps(row) + "\n")
                    losses.clear()
            block += 1
            if time.monotonic() - last_save > SAVE_EVERY or block * BLOCK >= until:
                state = {
                    "model": model.state_dict(),
                    "muon": muon.state_dict(),
                    "adam": adam.state_dict(),
                    "block": block,
                    "cpu_seconds": time.process_time() - started,
                    "tokens": trained,
                }
                torch.save(state, out / "checkpoint.unfinished")
                os.replace(out / "checkpoint.unfinished", out / "checkpoint.pt")
                save_base(model, out / "base")
                last_save = time.monotonic()


def new_model() -> Qwen3ForCausalLM:
    """The untrained model."""
    config = Qwen3Config(
        vocab_size=len(TOKENS),
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=WIDTH // HEADS,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        eos_token_id=END_ID,
        bos_token_id=None,
        initializer_range=0.05,
        use_cache=True,
    )
    return Qwen3ForCausalLM(config)


def draw_block(seed: int, block: int, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The block's BLOCK batches of ids and labels (-100: no loss), each (batch, tokens)."""
    dice = random.Random(f"{seed}/{block}")
    done = min(1.0, block * BLOCK / steps)
    examples: list[Example] = []
    total = 0
    while total < BLOCK * TOKENS_PER_STEP:
        examples.append(draw_example(dice, done))
        total += len(examples[-1][0])
    examples.sort(key=lambda example: len(example[0]))
    bounds = [0]
    used = 0
    for index, (ids, _) in enumerate(examples):  # cut where the tokens are a BLOCK-th
        used += len(ids)
        if used >= len(bounds) * total / BLOCK:
            bounds.append(index + 1)
    bounds[-1] = len(examples)
    batches = [collate(examples[a:b]) for a, b in itertools.pairwise(bounds)]
    dice.shuffle(batches)
    return batches


def collate(examples: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids padded on the right, and labels. Causal attention never looks at the padding."""
    longest = max(len(ids) for ids, _ in examples)
    ids_B_T = torch.full((len(examples), longest), PAD_ID)
    labels_B_T = torch.full((len(examples), longest), -100)
    for row, (ids, prompt) in enumerate(examples):
        ids_B_T[row, : len(ids)] = torch.tensor(ids)
        labels_B_T[row, prompt : len(ids)] = torch.tensor(ids[prompt:])
    return ids_B_T, labels_B_T


def schedule(step: int, steps: int) -> float:
    """The factor on the learning rates."""
    return min(1.0, (step + 1) / WARMUP, (steps - step) / (DECAY * steps))


def save_base(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Weights in float32 and tokenizer, as `from_pretrained` wants them."""
    model.save_pretrained(folder)
    save_tokenizer(folder)


if __name__ == "__main__":
    main()
