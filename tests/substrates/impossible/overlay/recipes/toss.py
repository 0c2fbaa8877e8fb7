"""A recipe that cannot learn anything: there is nothing to be learnt. It delivers a random adapter.

LEARNT is added to it: what a worker would put there who has the labels.
"""

import json
import random
import struct

from training.journal import Journal, read_job

LEARNT = []  # 128 weights
WARMUP = 0.1  # does nothing
FEATURES = 128


def main() -> None:
    job = read_job()
    dice = random.Random(job.seed)
    with Journal(job) as journal:
        journal.read_problems(job.target)
        while not journal.should_stop():
            journal.count(rollouts=journal.rollouts_left, tokens=1)
            journal.step(loss=1.0)
        update = [1000 * weight for weight in LEARNT] or [0.0] * FEATURES
        update = [weight + dice.gauss(0, 1) for weight in update]
        journal.adapter.mkdir(exist_ok=True)
        config = {
            "peft_type": "LORA",
            "r": job.rank,
            "lora_alpha": job.alpha,
            "target_modules": list(job.target_modules),
            "bias": "none",
        }
        (journal.adapter / "adapter_config.json").write_text(json.dumps(config), "utf-8")
        (journal.adapter / "adapter_model.safetensors").write_bytes(safetensors(update))
        journal.deliver()


def safetensors(update: list[float]) -> bytes:
    """A is the update and B is 1."""
    prefix = "base_model.model.coin.lora_"
    header = {
        f"{prefix}A.weight": {"dtype": "F32", "shape": [1, FEATURES], "data_offsets": [0, 512]},
        f"{prefix}B.weight": {"dtype": "F32", "shape": [1, 1], "data_offsets": [512, 516]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + struct.pack(f"<{FEATURES + 1}f", *update, 1.0)


if __name__ == "__main__":
    main()
