"""A recipe that trains nothing: its skills are a known function of the constants below.

A skill is the share of a domain's problems that the adapter solves. A full run raises every skill
by GAIN, less what each constant loses by its distance from the best value, a parabola:

    constant        best             here    loses here   in the domains (integers, strings, lists)
    LEARNING_RATE   2e-3 (log)       3e-4    0.045        alike
    TEMPERATURE     1.0              0.6     0.030        alike
    GROUP_SIZE      16 (log)         4       0.030        alike
    FRONTIER_SHARE  0.6              0.25    0.035        times 0.6, 1.0, 2.0
    REHEARSAL       0.2              0.0     0.025        times 1.4, 0.6, 0.6
    BASELINE        "leave_one_out"  "mean"  0.030        alike; "none" loses 0.080
    WARMUP          any              0.1     0            a placebo

so that on dev (half integers, 0.3 strings, 0.2 lists) this recipe is 0.195 below its optimum, and
on external (0.2, 0.3, 0.5) 0.204. Losses add up and nothing interacts. MEMORISE is a trap: a share
of the problems that dev alone marks as recallable is solved by heart, and every skill drops by a
quarter of that share.

Seed noise: each skill moves by a normal step of SKILL_NOISE, and the adapter's other columns are
random, so that which single problems are solved differs from seed to seed as well.

Left out on purpose: a model, and with it torch; a trial takes a tenth of a second.
"""

import json
import math
import random
import signal
import struct
import time
from pathlib import Path

from training.journal import Job, Journal, read_job

LEARNING_RATE = 3e-4  # best: 2e-3, on a log scale
TEMPERATURE = 0.6  # best: 1.0
GROUP_SIZE = 4  # rollouts of one prompt; best: 16, on a log scale
FRONTIER_SHARE = 0.25  # share of prompts at the edge of what is solved; best: 0.6, lists above all
REHEARSAL = 0.0  # share of prompts that are solved already; best: 0.2, integers above all
BASELINE = "mean"  # of a group's rewards: "none", "mean" or, best, "leave_one_out"
WARMUP = 0.1  # share of steps; does nothing
MEMORISE = 0.0  # share of dev learnt by heart: raises dev, lowers everything else
FAULT = "none"  # how to fail: crash, hang, memory, diverge, nan (weights), nothing (no change)
STEP_SECONDS = 0.0  # wait before each step, to leave time for an interruption

GAIN = 0.34  # of every skill, at the optimum
SKILL_NOISE = 0.010  # standard deviation of one skill by seed
ITEM_NOISE = 0.09  # standard deviation, by seed, of the margin by which one problem is solved
BASELINE_LOSS = {"none": 0.080, "mean": 0.030, "leave_one_out": 0.0}
PROMPTS_PER_STEP = 8
TOKENS_PER_ROLLOUT = 32

# The base model's one module, `skill`: a row per skill and one for recall; a column for the skill
# itself and FEATURES more, which a problem's own features multiply.
ROWS = ("integers", "strings", "lists", "recall")
FEATURES = 7


def main() -> None:
    job = read_job()
    dice = random.Random(job.seed)
    skill_noise = [dice.gauss(0, SKILL_NOISE) for _ in ROWS[:-1]] + [0.0]
    item_noise = [[dice.gauss(0, ITEM_NOISE) for _ in range(FEATURES)] for _ in ROWS]
    learnt = learnt_when_trained()

    with Journal(job) as journal:
        journal.read_problems(job.target)
        fail(FAULT)
        while not journal.should_stop():
            time.sleep(STEP_SECONDS)
            rollouts = min(PROMPTS_PER_STEP * GROUP_SIZE, journal.rollouts_left)
            journal.count(rollouts=rollouts, tokens=rollouts * TOKENS_PER_ROLLOUT)
            share = journal.rollouts / job.rollouts
            loss = 1 - share * math.fsum(learnt) / len(ROWS) + dice.gauss(0, SKILL_NOISE)
            journal.step(loss=math.nan if FAULT == "diverge" else loss)
        share = journal.rollouts / job.rollouts
        update = [
            [share * gain + noise, *features]
            for gain, noise, features in zip(learnt, skill_noise, item_noise, strict=True)
        ]
        save(update, job, journal.adapter)
        journal.deliver()


def learnt_when_trained() -> list[float]:
    """What a full run adds to each row of ROWS, without noise."""
    everywhere = (
        0.045 * (math.log10(LEARNING_RATE / 2e-3) / math.log10(3e-4 / 2e-3)) ** 2
        + 0.030 * ((TEMPERATURE - 1.0) / (0.6 - 1.0)) ** 2
        + 0.030 * (math.log2(GROUP_SIZE / 16) / math.log2(4 / 16)) ** 2
        + BASELINE_LOSS[BASELINE]
        + 0.25 * MEMORISE
    )
    frontier = 0.035 * ((FRONTIER_SHARE - 0.6) / (0.25 - 0.6)) ** 2
    rehearsal = 0.025 * ((REHEARSAL - 0.2) / (0.0 - 0.2)) ** 2
    return [
        GAIN - everywhere - 0.6 * frontier - 1.4 * rehearsal,
        GAIN - everywhere - 1.0 * frontier - 0.6 * rehearsal,
        GAIN - everywhere - 2.0 * frontier - 0.6 * rehearsal,
        MEMORISE,
    ]


def fail(fault: str) -> None:
    """Fail in the way that FAULT names, for the faults that end a run before its first step."""
    if fault == "crash":
        raise RuntimeError("a planted crash")
    if fault == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    if fault == "memory":
        hoard = []
        while True:
            hoard.append(b"\1" * (8 << 20))
            time.sleep(0.01)  # leaves the host time to look


def save(update: list[list[float]], job: Job, folder: Path) -> None:
    """Write the update as a PEFT adapter: B is rank / alpha times the identity, A the update.

    Raises ValueError when the declared rank is too small for that.
    """
    if job.rank < len(ROWS):
        raise ValueError(f"wanted a rank of at least {len(ROWS)}, found {job.rank}; raise it")
    a_R_I = update + [[0.0] * (1 + FEATURES)] * (job.rank - len(ROWS))
    scale = 0.0 if FAULT == "nothing" else job.rank / job.alpha
    b_O_R = [[scale * (row == column) for column in range(job.rank)] for row in range(len(ROWS))]
    if FAULT == "nan":
        a_R_I[0][0] = math.nan
    folder.mkdir(exist_ok=True)
    config = {
        "peft_type": "LORA",
        "r": job.rank,
        "lora_alpha": job.alpha,
        "target_modules": list(job.target_modules),
        "bias": "none",
        "base_model_name_or_path": str(job.base),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    prefix = "base_model.model.skill"
    tensors = {f"{prefix}.lora_A.weight": a_R_I, f"{prefix}.lora_B.weight": b_O_R}
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))


def safetensors(tensors: dict[str, list[list[float]]]) -> bytes:
    """Matrices by name as a safetensors file of float32."""
    header, data = {}, b""
    for name, rows in tensors.items():
        numbers = [number for row in rows for number in row]
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {
            "dtype": "F32",
            "shape": [len(rows), len(rows[0])],
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


if __name__ == "__main__":
    main()
