"""What `rlvr` adds to the pocket base on held-out problems, over five seeds."""

import math
from typing import Any

from tests.benchmarks._pocket import BOTH, Arm, forced, gain, of_base, read, trials
from tests.benchmarks.pocket_edits import EDITS, FRONTIER, UNMODIFIED

SEEDS = (301, 302, 303, 304, 305)  # not those that showed which edit is good
SHALLOW = EDITS[0]
AT_THE_FRONTIER = next(arm for arm in EDITS if arm.overrides == {"DEPTH_WEIGHTS": FRONTIER})
DEEPEST = 9  # depths from here on share a row

WHAT = (
    "rlvr on pocket against the base, five seeds each: accuracy of the base, mean gain, and its "
    "95 % interval, which has the variance over seeds and that over problems. Dev and external "
    "have 500 problems each. Forced traces: the base with the first line of each trace given, "
    "what a switch into tracing would be worth. By depth and domain: external."
)


def run() -> dict[str, Any]:
    arms = (UNMODIFIED, AT_THE_FRONTIER, SHALLOW)
    lines = trials(arms, SEEDS)
    figures: dict[str, Any] = {}
    for name in BOTH:
        problems = read(name)
        everything = range(len(problems))
        controls = {"base": of_base(problems), "forced traces": of_base(forced(problems))}
        for control, right in controls.items():
            for arm in arms:
                found = [line.right[name] for line in lines[arm.name]]
                label = f"{name}, {_short(arm)} over {control}"
                figures[label] = _shown(found, right, everything)
        if name == "external":
            for arm in arms[:2]:
                found = [line.right[name] for line in lines[arm.name]]
                for group, chosen in _groups(problems).items():
                    label = f"{name}, {_short(arm)} over base, {group}"
                    figures[label] = _shown(found, controls["base"], chosen)
    return figures


def _short(arm: Arm) -> str:
    return arm.name.partition(":")[0]


def _shown(found: list[str], control: str, chosen: range | list[int]) -> str:
    mean, half = gain(found, [control] * len(found), chosen)
    before = sum(control[number] == "1" for number in chosen) / len(chosen)
    interval = "" if math.isnan(half) else f" ± {half:.3f}"
    return f"{before:.3f} {mean:+.3f}{interval}"


def _groups(problems: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Numbers of the problems of each depth and of each domain."""
    groups: dict[str, list[int]] = {}
    for depth in sorted({min(problem["depth"], DEEPEST) for problem in problems}):
        name = f"depth {depth}" if depth < DEEPEST else f"depth {depth} and more"
        groups[name] = [n for n, p in enumerate(problems) if min(p["depth"], DEEPEST) == depth]
    for domain in sorted({problem["domain"] for problem in problems}):
        groups[domain] = [n for n, p in enumerate(problems) if p["domain"] == domain]
    return groups
