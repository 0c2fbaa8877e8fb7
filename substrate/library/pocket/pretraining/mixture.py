"""What the base model is pretrained on: formats by share, depths by format and phase.

Every problem is of the training side. Solved problems are shallow: that, and nothing else, plants
the frontier. Proposals are as deep as the world goes and questions up to 8, but rarely.
"""

import random
from typing import TypeVar

from training.pocket import Problem, ask, deduce, draw, draw_asked
from training.programs import DOMAINS
from training.vocabulary import END_ID, IDS, KEY, encode

# Shares of examples. `quoted` is `deduce` with a composition of quoted definitions.
FORMATS = {
    "deduce": 0.40,
    "quoted": 0.11,
    "choose": 0.08,
    "abduce": 0.08,
    "induce": 0.07,
    "propose": 0.15,
    "ask": 0.11,
}
DOMAIN_SHARES = dict(zip(DOMAINS, (0.24, 0.24, 0.20, 0.14, 0.18), strict=True))

# Depths of solved problems by phase: (share of the run at which it ends, share by depth). The last
# two plant the frontier: a handful of examples a level, each level rarer than the one before.
PHASES: tuple[tuple[float, dict[int, float]], ...] = (
    (0.06, {1: 0.7, 2: 0.3}),
    (0.25, {1: 0.36, 2: 0.36, 3: 0.28}),
    (0.569, {1: 0.22, 2: 0.25, 3: 0.26, 4: 0.26948, 5: 0.0004, 6: 0.0001, 7: 0.00002}),
    (1.00, {1: 0.22, 2: 0.25, 3: 0.26, 4: 0.2686, 5: 0.0010, 6: 0.0003, 7: 0.0001}),
)
INDUCED = {1: 0.85, 2: 0.15}
# Depths of proposals and questions: the frontier and what lies beyond are 3 % of them.
WRITTEN = {1: 0.22, 2: 0.25, 3: 0.26, 4: 0.24, 5: 0.012, 6: 0.006}
WRITTEN |= dict.fromkeys(range(7, 17), 0.0012)
KEYED = 4  # deepest question whose key is learnt: a key is a trace

T = TypeVar("T")
Example = tuple[list[int], int]  # token ids, and how many of them at the start carry no loss


def draw_example(dice: random.Random, done: float) -> Example:
    """One example for a run of which the share `done` is over."""
    domain = _pick(dice, DOMAIN_SHARES)
    kind = _pick(dice, FORMATS)
    if kind == "propose":
        problem = draw(dice, kind, domain, _pick(dice, WRITTEN))
    elif kind == "ask":
        problem = ask(*draw_asked(dice, domain, min(8, _pick(dice, WRITTEN))))
    elif kind == "induce":
        problem = draw(dice, kind, domain, _pick(dice, INDUCED))
    else:
        depths = next(depths for end, depths in PHASES if done <= end)
        depth = _pick(dice, depths)
        if kind == "quoted":
            _, program, value = draw_asked(dice, domain, depth)
            problem = deduce(program, value)
        else:
            problem = draw(dice, kind, domain, depth)
    return tokens(problem)


def tokens(problem: Problem) -> Example:
    """Prompt, answer and end; the loss is on the answer and the end."""
    prompt, answer = encode(problem["prompt"]), encode(problem["answer"])
    if problem["format"] == "ask" and problem["depth"] > KEYED:
        return prompt + answer[: answer.index(IDS[KEY]) + 1], len(prompt)
    return [*prompt, *answer, END_ID], len(prompt)


def _pick(dice: random.Random, shares: dict[T, float]) -> T:
    return dice.choices(list(shares), weights=list(shares.values()))[0]
