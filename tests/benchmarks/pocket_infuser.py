"""INFUSER on pocket against its control arms, at equal sampled tokens."""

import ast
import statistics
from typing import Any

from tests.benchmarks._pocket import BOTH, REFERENCE, Arm, gain, of_base, read, trials

SEEDS = (501, 502, 503, 504, 505)
TOTAL = 400_000  # sampled tokens of a run
MANY = 10**6  # rollouts that tokens run out before


def _rivals() -> dict[str, dict[str, Any]]:
    """The control arms, as the recipe itself gives them."""
    tree = ast.parse((REFERENCE / "recipes" / "infuser.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RIVALS":
            return ast.literal_eval(node.value)
    raise ValueError("wanted RIVALS in infuser, found none")


def _arm(name: str, **overrides: Any) -> Arm:
    return Arm(name, overrides, MANY, "infuser", TOTAL)


INFUSER = _arm("infuser")
ARMS = (
    INFUSER,
    *(_arm(name, **overrides) for name, overrides in _rivals().items()),
)
SCARCE = 32  # problems that have answers, of the target set's 3,780
FEW = SEEDS[:3]
FURTHER = (
    _arm("questions only", PRACTISED=0),
    _arm("questions only, fixed generator", PRACTISED=0, GENERATOR_RATE=0.0),
    _arm(f"infuser, {SCARCE} labels", LABELLED=SCARCE),
    _arm(f"target problems only, {SCARCE} labels", LABELLED=SCARCE, DOCUMENTS=0),
)

WHAT = (
    f"INFUSER on pocket, {len(SEEDS)} seeds, {TOTAL:,} sampled tokens a run. Accuracy on dev and "
    "external (500 problems each), gains over the base, and what INFUSER has more than each other "
    "arm, with 95 % intervals, which have the variance over seeds and that over problems."
)


def run() -> dict[str, Any]:
    lines = trials(ARMS, SEEDS) | trials(FURTHER, FEW)
    figures: dict[str, Any] = {}
    for name in BOTH:
        everything = range(len(read(name)))
        base = of_base(read(name))
        figures[f"{name}, base"] = round(base.count("1") / len(base), 3)
        own = [line.right[name] for line in lines[INFUSER.name]]
        for arm, found in lines.items():
            right = [line.right[name] for line in found]
            accuracy = statistics.fmean(one.count("1") / len(one) for one in right)
            mean, half = gain(right, [base] * len(right), everything)
            figures[f"{name}, {arm}"] = f"{accuracy:.3f}, {mean:+.3f} ± {half:.3f}"
            if arm != INFUSER.name:
                mean, half = gain(own[: len(right)], right, everything)
                figures[f"{name}, infuser less {arm}"] = f"{mean:+.3f} ± {half:.3f}"
    return figures
