"""Rows of metrics as the recipe `populora` writes them, of a simulated arms race."""

import math
import random
from typing import Any

from training.evolution import FOUNDER, rated
from training.operators import DEFAULT
from training.ratings import (
    Rating,
    after_match,
    draw_matches,
    inherited,
    win_probability,
)

ATTEMPTS = 8
TASKS = 12  # of a teacher and step
EVERY = 10  # steps between evolution events
OPERATORS = (*DEFAULT.mutations, *DEFAULT.crossovers)
REFUSED = ("no_block", "syntax", "banned", "exception", "timeout", "too_long", "not_deterministic")


def simulated(
    teachers: int, students: int, steps: int, *, seed: int = 0, measure_every: int = 10
) -> list[dict[str, Any]]:
    """Teachers have a difficulty and students a skill, which both drift up as they play."""
    dice = random.Random(seed)
    sizes = {"teacher": teachers, "student": students}
    skills = {role: [dice.gauss(0, 0.5) for _ in range(n)] for role, n in sizes.items()}
    ratings = {role: [Rating()] * n for role, n in sizes.items()}
    since = {role: [0] * n for role, n in sizes.items()}
    born_by = {role: [FOUNDER] * n for role, n in sizes.items()}
    coverage = [0.0, 0.0, 0.0]
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        matches, counts, solved = [], dict.fromkeys(("valid", "duplicate", *REFUSED), 0), [0, 0, 0]
        invalid = 0.15 + 0.6 * math.exp(-step / 30)
        for teacher, student in enumerate(
            draw_matches(ratings["teacher"], ratings["student"], dice)
        ):
            chance = 1 / (1 + math.exp(skills["teacher"][teacher] - skills["student"][student]))
            valid = sum(dice.random() > invalid for _ in range(TASKS))
            counts["valid"] += valid
            for _ in range(TASKS - valid):
                counts[dice.choices(("duplicate", *REFUSED), range(8, 0, -1))[0]] += 1
            right = []
            for _ in range(valid):
                of_task = min(max(dice.gauss(chance, 0.35), 0), 1)
                right.append(sum(dice.random() < of_task for _ in range(ATTEMPTS)))
            for number in right:
                solved[(number > 0) + (number == ATTEMPTS)] += 1
            rate = sum(right) / (valid * ATTEMPTS) if valid else None
            pair = ratings["teacher"][teacher], ratings["student"][student]
            before = rated(pair)
            expected = win_probability(pair[1], pair[0])
            pair = after_match(*pair, rate, expected)
            ratings["teacher"][teacher], ratings["student"][student] = pair
            won = rate is None or rate > expected
            skills["teacher"][teacher] += dice.gauss(0.03 if won else 0.005, 0.03)
            skills["student"][student] += dice.gauss(0.005 if won else 0.03, 0.03)
            matches.append(
                {
                    "teacher": teacher,
                    "student": student,
                    "expected": expected,
                    "solve_rate": rate,
                    "tasks": valid,
                    "winner": "student" if won else "teacher",
                    "before": before,
                    "after": rated(pair),
                }
            )
        births = []
        if step and step % EVERY == 0:
            for role, size in sizes.items():
                ranked = sorted(range(size), key=lambda member: ratings[role][member].mean)
                for member in ranked[: size // 4]:
                    pool = [other for other in ranked if other != member]
                    parents = dice.sample(pool, 2)
                    best = max(parents, key=lambda parent: skills[role][parent])
                    skills[role][member] = skills[role][best] - abs(dice.gauss(0, 0.2))
                    ratings[role][member] = inherited([ratings[role][p] for p in parents])
                    births.append(
                        {
                            "role": role,
                            "member": member,
                            "operator": dice.choice(OPERATORS),
                            "parents": parents,
                            "cosines": [dice.uniform(0.7, 1) for _ in parents],
                            "norm": dice.uniform(0.8, 1.1),
                            "parents_norms": [1.0 for _ in parents],
                            "replaced": born_by[role][member],
                            "died_after": step - since[role][member],
                            "below": dice.uniform(0, 5),
                        }
                    )
                    since[role][member] = step
                    born_by[role][member] = births[-1]["operator"]
        rates = [match["solve_rate"] for match in matches if match["solve_rate"] is not None]
        mean = sum(rates) / len(rates) if rates else 0.0
        hard = sum(skills["teacher"]) / teachers
        lines = 4 + 1.5 * max(hard, -1) + dice.gauss(0, 0.3)
        new = counts["valid"] * math.exp(-coverage[0] / 20_000)
        coverage = [coverage[0] + new, coverage[1] + 0.8 * new, 150 * (1 - math.exp(-step / 120))]
        rows.append(
            {
                "step": step,
                "rollouts": (step + 1) * teachers * TASKS * (1 + ATTEMPTS),
                "loss": dice.gauss(0, 0.01),
                "tokens": (step + 1) * 60_000,
                "seconds": {
                    "propose": 1.1 + dice.gauss(0, 0.1),
                    "solve": 2.4 + dice.gauss(0, 0.2),
                    "train": 1.8 + dice.gauss(0, 0.1),
                    "evolve": 0.6 if births else 0.0,
                },
                "matches": matches,
                "proposals": counts,
                "solve_rates": dict(zip(("none", "some", "all"), solved, strict=True)),
                "teacher_reward": (1 - mean) * (1 - invalid) - invalid,
                "student_reward": 1.5 * mean - 0.6,
                "malformed": 0.05 + 0.5 * math.exp(-step / 20) * dice.uniform(0.8, 1.2),
                "teacher_entropy": 0.7 + 0.1 * math.sin(step / 25) + dice.gauss(0, 0.03),
                "student_entropy": 0.25 + 0.4 * math.exp(-step / 60) + dice.gauss(0, 0.02),
                "proposal_tokens": 60 + 12 * hard + dice.gauss(0, 3),
                "attempt_tokens": 30 + 6 * hard + dice.gauss(0, 2),
                "gradient_norms": [
                    dice.lognormvariate(-1, 0.4) for _ in range(teachers + students)
                ],
                "complexity": {
                    "depth": 5 + hard / 2 + dice.gauss(0, 0.2),
                    "nodes": 8 * lines + dice.gauss(0, 2),
                    "cyclomatic": 1.3 + hard / 3 + dice.gauss(0, 0.1),
                    "lines": lines,
                    "variables": 2 + hard / 4,
                    "halstead": 100 + 10 * hard,
                    "steps": lines * math.exp(0.3 * hard + dice.gauss(0, 0.1)),
                },
                "coverage_by_author": {
                    str(teacher): int(coverage[2] / 2) + teacher for teacher in range(teachers)
                },
                "overlap": 1 - math.exp(-step / 90),
                "novelty": 0.3 + 0.2 * math.exp(-step / 30),
                "coverage": dict(
                    zip(("shapes", "behaviours", "cells"), map(int, coverage), strict=True)
                ),
                "ratings": {
                    f"{role}s": [[rating.mean, rating.deviation] for rating in ratings[role]]
                    for role in sizes
                },
                "births": births,
                "pass_at": _passes(mean),
                "likeness": {"of_one": 0.2 + dice.gauss(0, 0.02), "of_two": 0.1},
            }
        )
        if step % EVERY == 0:
            rows[-1]["diversity"] = {
                f"{role}s": {
                    "cosine": 0.1 + 0.5 * (1 - math.exp(-step / 100)) + dice.gauss(0, 0.03),
                    "angle": 80 - 30 * (1 - math.exp(-step / 100)) + dice.gauss(0, 1),
                    "stable_rank": 3 + dice.gauss(0, 0.2) + size / 4,
                    "norm": 2 * (1 - math.exp(-step / 80)) + dice.gauss(0, 0.02),
                }
                for role, size in sizes.items()
            }
        if step % measure_every == measure_every - 1:
            of_all = [
                _passes(0.3 + 0.5 / (1 + math.exp(2 - skill / 1.5))) for skill in skills["student"]
            ]
            rows[-1]["exam"] = {
                "problems": 32,
                "attempts": ATTEMPTS,
                "pass_at": {k: [passes[k] for passes in of_all] for k in of_all[0]},
                "agreement": 0.4 + dice.gauss(0, 0.02) if students > 1 else None,
            }
            rows[-1]["cross_play"] = {
                "fresh": [
                    [1 / (1 + math.exp(hard - skill)) for skill in skills["student"]]
                    for hard in skills["teacher"]
                ],
                "earlier": [0.8] * students if step >= measure_every else None,
                "tasks": [3] * teachers,
            }
        if step == measure_every - 1:
            rows[-1]["exam_of_base"] = {"pass_at": {k: [p] for k, p in _passes(0.3).items()}}
    return rows


def _passes(rate: float) -> dict[str, float]:
    """pass@k where all tasks are solved at this rate."""
    return {str(k): 1 - (1 - rate) ** k for k in (1, 2, 4, 8)}
