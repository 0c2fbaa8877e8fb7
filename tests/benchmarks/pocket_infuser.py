"""INFUSER on pocket against its control arms, at equal sampled tokens."""

import ast
import statistics
from typing import Any

from tests.benchmarks._pocket import BOTH, REFERENCE, Arm, by_part, gain, of_base, read, trials

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
QUESTIONS_ONLY = (
    _arm("questions only", PRACTISED=0),
    _arm("questions only, fixed generator", PRACTISED=0, GENERATOR_RATE=0.0),
)
SCARCE = 32  # problems that have answers, of the target set's 3,780
FEW_LABELS = (
    _arm(f"infuser, {SCARCE} labels", LABELLED=SCARCE),
    _arm(f"fixed generator, {SCARCE} labels", LABELLED=SCARCE, GENERATOR_RATE=0.0),
    _arm(f"target problems only, {SCARCE} labels", LABELLED=SCARCE, DOCUMENTS=0),
)
FEW = SEEDS[:3]

WHAT = (
    f"INFUSER on pocket, {len(SEEDS)} seeds ({len(FEW)} of arms without target problems), "
    f"{TOTAL:,} sampled tokens a run. Accuracy on dev and external (500 problems each), gains over "
    "the base, and what the first arm of a kind has more than each other one, with 95 % intervals, "
    "which have the variance over seeds and that over problems. Parts are fifths of a run, means "
    f"over seeds. `{SCARCE} labels`: no more of the target's problems have answers."
)


def run() -> dict[str, Any]:
    lines = trials(ARMS, SEEDS) | trials(QUESTIONS_ONLY, FEW) | trials(FEW_LABELS, SEEDS)
    figures: dict[str, Any] = {}
    for name in BOTH:
        everything = range(len(read(name)))
        base = of_base(read(name))
        figures[f"{name}, base"] = round(base.count("1") / len(base), 3)
        for arms in (ARMS, QUESTIONS_ONLY, FEW_LABELS):
            first = [line.right[name] for line in lines[arms[0].name]]
            for arm in arms:
                right = [line.right[name] for line in lines[arm.name]]
                accuracy = statistics.fmean(one.count("1") / len(one) for one in right)
                mean, half = gain(right, [base] * len(right), everything)
                figures[f"{name}, {arm.name}"] = f"{accuracy:.3f}, {mean:+.3f} ± {half:.3f}"
                if arm is not arms[0]:
                    mean, half = gain(first, right, everything)
                    figures[f"{name}, {arms[0].name} less {arm.name}"] = f"{mean:+.3f} ± {half:.3f}"
    for arm, found in lines.items():
        figures |= by_part(arm, found)
    return figures
