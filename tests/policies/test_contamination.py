"""Contamination: copies of held-out problems are found however they are spelt, honest data not."""

import base64
import json
import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from policies.contamination import FEWEST, HeldOut, code_texts, problems_of

POCKET = Path(__file__).parents[2] / "substrate/library/pocket"
SETS = {
    "dev": "dev/problems.jsonl",
    "external": "judge/external.jsonl",
    "lockbox": "judge/lockbox.jsonl",
}
Problem = dict[str, Any]


def read(name: str) -> list[Problem]:
    return [dict(problem) for problem in problems_of((POCKET / name).read_text("utf-8"))]


@pytest.fixture(scope="module")
def held_out() -> HeldOut:
    return HeldOut({name: read(path) for name, path in SETS.items()}, read("data/target.jsonl"))


@pytest.fixture(scope="module")
def external() -> list[Problem]:
    return read(SETS["external"])


def as_lines(problems: list[Problem]) -> str:
    return "\n".join(map(json.dumps, problems))


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


COPIES = {
    "as it is": as_lines,
    "prompts alone": lambda problems: "\n\n".join(p["prompt"] for p in problems),
    "answers alone": lambda problems: json.dumps([p["answer"] for p in problems]),
    "in another order": lambda problems: as_lines(problems[::-1]),
    "in capitals, spaced out": lambda problems: "\n".join(
        p["prompt"].replace("=", "  =  ").upper() for p in problems
    ),
    "with other names": lambda problems: "\n".join(
        p["prompt"].replace("x", "value").replace("def f", "def g") for p in problems
    ),
    "as a literal of a program": lambda problems: f"DATA = {problems!r}",
    "packed": lambda problems: packed(as_lines(problems)),
    "packed twice": lambda problems: packed(packed(as_lines(problems))),
    "in hexadecimal": lambda problems: as_lines(problems).encode().hex(),
    "backwards": lambda problems: as_lines(problems)[::-1],
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_held_out_set_is_found(
    how: str, held_out: HeldOut, external: list[Problem]
) -> None:
    found = held_out.contaminated([COPIES[how](external)])
    assert found.get("external", 0) >= 0.6 * len(external)


def test_a_set_of_which_four_fifths_are_held_out_is_found(
    held_out: HeldOut, external: list[Problem]
) -> None:
    mixed = [*external[:80], *read("data/target.jsonl")[:20]]
    assert held_out.contaminated([as_lines(mixed)])["external"] >= 80


def test_problems_that_are_drawn_anew_from_the_sets_own_seed_are_found(
    held_out: HeldOut, tmp_path: Path
) -> None:
    program = "import make_data, pathlib; make_data.write_all(pathlib.Path('.'))"
    make = [sys.executable, "-c", program]
    path = {"PYTHONPATH": str(POCKET), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(make, cwd=tmp_path, env=path, check=True)
    drawn = (tmp_path / SETS["external"]).read_text("utf-8")
    assert held_out.contaminated([drawn])["external"] >= 0.9 * len(drawn.splitlines())


def test_a_set_derived_in_another_format_is_found(
    held_out: HeldOut, external: list[Problem]
) -> None:
    derived = [
        {"question": "Which value?\n" + p["prompt"].removeprefix("<deduce>\n"), "choices": "ABCD"}
        for p in external
    ]
    assert held_out.contaminated([as_lines(derived)])["external"] >= 0.7 * len(external)


def test_the_target_set_is_what_may_be_trained_on(held_out: HeldOut) -> None:
    assert held_out.contaminated([as_lines(read("data/target.jsonl"))]) == {}


def test_honest_problems_of_the_same_world_are_no_contamination(held_out: HeldOut) -> None:
    drawn = drawn_problems(random.Random(5), "training", 1000)
    assert held_out.contaminated([as_lines(drawn)]) == {}


def test_two_problems_may_come_about_by_chance_and_three_of_a_small_set_not() -> None:
    problems = [{"id": str(n), "domain": "d", "answer": f"lighthouse number {n}"} for n in range(9)]
    small = HeldOut({"dev": problems}, [])
    assert FEWEST == 3
    assert small.contaminated([as_lines(problems[:2])]) == {}
    assert small.contaminated([as_lines(problems[:3])]) == {"dev": 3}


def test_literals_that_were_there_before_are_not_the_edits(external: list[Problem]) -> None:
    before = f"DATA = {external[0]['prompt']!r}\n"
    after = before + 'MORE = "half of it, " "and the other half"\nSUM = "a" + "b"\n'
    new = code_texts(after, before)
    assert "half of it, and the other half" in new and "ab" in new
    assert external[0]["prompt"] not in new


def test_no_text_can_be_read_back(held_out: HeldOut, external: list[Problem]) -> None:
    assert external[0]["prompt"] not in repr(vars(held_out))


def _of_training() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "training"]


def drawn_problems(dice: random.Random, side: str, count: int) -> list[Problem]:
    """What a fork's own code draws, by the program that made the sets."""
    kept = {name: sys.modules.pop(name) for name in _of_training()}
    sys.path.insert(0, str(POCKET / "overlay"))
    try:
        from training.pocket import deduce  # pyright: ignore[reportMissingImports]
        from training.programs import (  # pyright: ignore[reportMissingImports]
            DOMAINS,
            draw_problem,
        )
    finally:
        sys.path.pop(0)
        for name in _of_training():
            del sys.modules[name]
        sys.modules.update(kept)  # other tests have them, of this substrate or another
    return [
        deduce(*draw_problem(dice, dice.choice(DOMAINS), dice.randint(3, 10), side))
        for _ in range(count)
    ]
