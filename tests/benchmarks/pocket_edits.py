"""What edits of `rlvr` are worth on the pocket substrate, three seeds each."""

import statistics
from typing import Any

from tests.benchmarks._pocket import Arm, trials

SEEDS = (101, 102, 103)
FRONTIER = [0.0, 0.0, 0.2, 0.4, 1.0, 1.0, 1.0, 0.4]
UNMODIFIED = Arm("unmodified: depths 1 to 16 alike, 16 prompts x 8, rate 3e-3, 10,240 rollouts")
EDITS = (
    Arm("shallow: depths 1 to 4", {"DEPTH_WEIGHTS": [1.0] * 4}),
    Arm("depths 1 to 8", {"DEPTH_WEIGHTS": [1.0] * 8}),
    Arm("frontier: depths 3 to 8, most of them 5 to 7", {"DEPTH_WEIGHTS": FRONTIER}),
    Arm("beyond: depths 9 to 16", {"DEPTH_WEIGHTS": [0.0] * 8 + [1.0] * 8}),
    Arm("half rehearsal of depths 1 to 4", {"REHEARSAL": 0.5}),
    Arm("rate 1e-3", {"LEARNING_RATE": 1e-3}),
    Arm("rate 1e-2", {"LEARNING_RATE": 1e-2}),
    Arm("rate that falls to zero", {"DECAY": True}),
    Arm("32 prompts x 4", {"PROMPTS": 32, "GROUP": 4}),
    Arm("8 prompts x 16", {"PROMPTS": 8, "GROUP": 16}),
    Arm("steps of 4 prompts", {"PROMPTS": 4}),
    Arm("steps of 64 prompts", {"PROMPTS": 64}),
    Arm("temperature 0.7", {"TEMPERATURE": 0.7}),
    Arm("temperature 1.3", {"TEMPERATURE": 1.3}),
    Arm("advantages over the group's deviation", {"SCALE_REWARDS": "group"}),
    Arm("a quarter of the rollouts", {}, rollouts=2560),
    Arm("twice the rollouts", {}, rollouts=20480),
    Arm("frontier, steps of 8 prompts", {"DEPTH_WEIGHTS": FRONTIER, "PROMPTS": 8}),
)

WHAT = (
    "Edits of rlvr on pocket: accuracy on dev (500 problems) and external (500), means of seeds "
    f"{SEEDS[0]} to {SEEDS[-1]}, through fork, run, seal and the substrate's own evaluation. In "
    "brackets the standard deviation over seeds. Every edit has the unmodified budget of rollouts "
    "but for the two that say otherwise."
)


def run() -> dict[str, Any]:
    lines = trials((UNMODIFIED, *EDITS), SEEDS)
    figures: dict[str, Any] = {}
    for problems in ("dev", "external"):
        for arm in (UNMODIFIED, *EDITS):
            values = [line.accuracy(problems) for line in lines[arm.name]]
            mean, deviation = statistics.fmean(values), statistics.stdev(values)
            figures[f"{problems}, {arm.name}"] = f"{mean:.3f} ({deviation:.3f})"
    return figures
