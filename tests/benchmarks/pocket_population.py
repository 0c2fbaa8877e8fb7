"""Populations against one adapter on pocket, at equal tokens in total and for each adapter."""

import ast
import statistics
from typing import Any

from tests.benchmarks._pocket import BOTH, REFERENCE, Arm, by_part, gain, of_base, read, trials

SEEDS = (401, 402, 403, 404, 405)
FEW = SEEDS[:2]  # of ablations
TOTAL = 1_200_000  # sampled tokens of a run
EACH = TOTAL // 8  # that each adapter has in a population of eight
MANY = 10**6  # rollouts that tokens run out before


def _published(recipe: str) -> dict[str, Any]:
    """The published rules, as the recipe itself gives them."""
    tree = ast.parse((REFERENCE / "recipes" / f"{recipe}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PUBLISHED":
            return ast.literal_eval(node.value)
    raise ValueError(f"wanted PUBLISHED in {recipe}, found none")


def _arm(name: str, recipe: str, tokens: int, **overrides: Any) -> Arm:
    return Arm(name, overrides, MANY, recipe, tokens)


POPULATION = _arm("populora 4 + 4", "populora", TOTAL)
PAIR = _arm("populora 1 + 1", "populora", TOTAL, TEACHERS=1, STUDENTS=1)
SELFPLAY = _arm("selfplay", "selfplay", TOTAL)
RLVR = _arm("rlvr, depths 1 to 16", "rlvr", TOTAL)
IN_TOTAL = (POPULATION, PAIR, SELFPLAY, RLVR)
FOR_EACH = (
    _arm("populora 1 + 1, tokens of two of eight", "populora", 2 * EACH, TEACHERS=1, STUDENTS=1),
    _arm("selfplay, tokens of one of eight", "selfplay", EACH),
    _arm("rlvr, tokens of one of eight", "rlvr", EACH),
)
ABLATIONS = (
    _arm("no evolution", "populora", TOTAL, EVOLVE_EVERY=0),
    _arm("frozen teachers", "populora", TOTAL, TEACHER_RATE=0.0),
    _arm("self-graded teachers", "populora", TOTAL, SELF_GRADED=True),
    _arm("random matchmaking", "populora", TOTAL, SHARPNESS=0.0),
    _arm("mutation only", "populora", TOTAL, CROSSOVER_SHARE=0.0),
    _arm("crossover only", "populora", TOTAL, CROSSOVER_SHARE=1.0),
    _arm("published rules", "populora", TOTAL, **_published("populora")),
    _arm("selfplay, published rules", "selfplay", TOTAL, **_published("selfplay")),
)

WHAT = (
    f"Populations on pocket, {len(SEEDS)} seeds ({len(FEW)} of ablations, which are of 4 + 4), "
    f"{TOTAL:,} sampled tokens a run, or where so said what one or two of eight adapters have of "
    "these. `selfplay` is one adapter in both roles; `rlvr` practises the target set. Accuracy on "
    "dev and external (500 problems each): of the adapter that is delivered, of the mean and of "
    "the weakest student; and gains over the base with 95 % intervals, which have the variance "
    "over seeds and that over problems. Parts are fifths of a run, means over seeds."
)


def run() -> dict[str, Any]:
    lines = trials((*IN_TOTAL, *FOR_EACH), SEEDS) | trials(ABLATIONS, FEW)
    figures: dict[str, Any] = {}
    for name in BOTH:
        everything = range(len(read(name)))
        base = of_base(read(name))
        figures[f"{name}, base"] = round(base.count("1") / len(base), 3)
        for arm, found in lines.items():
            delivered = [line.right[name] for line in found]
            figures[f"{name}, {arm}, delivered"] = _shown(delivered, base, everything)
            if len(found[0].students) > 1:
                students = [[s[name] for s in line.students.values()] for line in found]
                weakest = [min(some, key=lambda right: right.count("1")) for some in students]
                every = [right for some in students for right in some]
                mean = statistics.fmean(right.count("1") / len(right) for right in every)
                figures[f"{name}, {arm}, students' mean"] = f"{mean:.3f}"
                figures[f"{name}, {arm}, weakest student"] = _shown(weakest, base, everything)
    for arm, found in lines.items():
        figures |= by_part(arm, found)
    return figures


def _shown(found: list[str], base: str, chosen: range) -> str:
    mean, half = gain(found, [base] * len(found), chosen)
    accuracy = statistics.fmean(right.count("1") / len(right) for right in found)
    return f"{accuracy:.3f}, {mean:+.3f} ± {half:.3f}"
