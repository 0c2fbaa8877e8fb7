"""`python -m training.plots`: metrics in files, pictures out of them, with numbers worked out by
hand read back from the SVG, in which every text stands as a comment too.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.reference.arms_race import simulated
from training.marks import mean, running_mean, smoothed, table, values
from training.member_panels import median_life, recoveries
from training.plots import main

REFERENCE = Path(__file__).resolve().parents[2] / "substrate" / "reference"
SECTIONS = ("play", "tasks", "members", "exams", "training")


def plot(run: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, in which a warning is an error."""
    return subprocess.run(
        [sys.executable, "-m", "training.plots", str(run)],
        cwd=REFERENCE,
        env=os.environ | {"PYTHONWARNINGS": "error"} | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def words(picture: Path) -> list[str]:
    """The texts of an SVG, which must be well formed."""
    text = picture.read_text()
    ElementTree.fromstring(text)
    return re.findall(r"<!-- (.*?) -->", text)


def bytes_of(plots: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in plots.iterdir()}


def loss_rows(steps: int) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 1 / (step + 2)} for step in range(steps)]


def policy_rows(steps: int) -> list[dict[str, Any]]:
    """As the recipe `rlvr` writes them."""
    keys = ("loss", "reward", "equal_groups", "cut_off", "completion_tokens", "gradient_norm")
    return [
        {"step": step, "rollouts": 64 * (step + 1)} | dict.fromkeys(keys, 1 / (step + 2))
        for step in range(steps)
    ]


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four teachers and four students, drawn."""
    run = write(tmp_path_factory.mktemp("population"), simulated(4, 4, 80))
    done = plot(run)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = [run / "plots" / f"{name}.{kind}" for name in SECTIONS for kind in ("png", "svg")]
    assert done.stdout.splitlines() == [str(path) for path in wanted]
    assert sorted((run / "plots").iterdir()) == sorted(wanted)
    return run


def test_a_population_is_drawn_whole(population: Path) -> None:
    wanted = {
        "play": "Solve rate|Reward|Ratings of teachers|Ratings of students|"
        "Solve rate of each pair|S3|T3|steps 0 to 19|steps 60 to 79|"
        "Relative to the other role, dotted: no measure of progress. Rings: births",
        "tasks": "Proposals|Tasks solved by|Coverage|Complexity of tasks|Complexity per line|"
        "Cells covered|Likeness of tasks|Cells of each teacher|Novelty of tasks|"
        "valid|duplicate|other reasons|no attempt|cyclomatic",
        "members": "Likeness|Angles|Stable rank|Size|Children and parents|Size at birth|"
        "Survival by operator|Recovery by operator|founder",
        "exams": "Exam|pass@k of the exam|pass@k of tasks|Agreement|Hall of fame|Cross-play|"
        "k = 8|step 79",
        "training": "Surprisal|Length|Malformed completions|Loss|Gradient norm|Wall time|"
        "nats a token|seconds a step",
    }
    for section, texts in wanted.items():
        found = words(population / "plots" / f"{section}.svg")
        assert set(texts.split("|")) <= {*found}
        assert not [word for word in found if "not drawn" in word]
        assert "Steps 0 to 79. 34,560 rollouts. Most lines and areas are running means" in found[-1]
        png = (population / "plots" / f"{section}.png").read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) > 50_000


def test_equal_rows_give_equal_bytes_whatever_the_readers_settings(
    population: Path, tmp_path: Path
) -> None:
    write(tmp_path / "fork" / "out", []).joinpath("metrics.jsonl").write_bytes(
        (population / "metrics.jsonl").read_bytes()
    )
    (tmp_path / "matplotlibrc").write_text("figure.facecolor: black\nfont.size: 20\n")
    done = plot(tmp_path / "fork", MPLCONFIGDIR=str(tmp_path), PYTHONHASHSEED="5", TZ="Asia/Tokyo")
    assert done.returncode == 0, done.stderr
    assert bytes_of(tmp_path / "fork" / "out" / "plots") == bytes_of(population / "plots")


@pytest.mark.parametrize(("members", "steps"), [(1, 1), (9, 2)])
def test_a_run_of_any_size_is_drawn(
    members: int, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(write(tmp_path, simulated(members, members, steps)))]) == 0
    assert capsys.readouterr().err == ""
    maps = "Solve rate of each pair" in words(tmp_path / "plots" / "play.svg")
    assert maps == (members > 1)


def test_other_recipes_give_the_panels_that_their_keys_allow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = policy_rows(3)
    rows[1] |= {"step_time": 3, "influence": {"mean": 0.5}}
    assert main([str(write(tmp_path, rows))]) == 0
    assert capsys.readouterr().err == ""
    assert sorted(bytes_of(tmp_path / "plots")) == [
        f"{name}.{kind}" for name in ("play", "training") for kind in ("png", "svg")
    ]
    assert "Reward" in words(tmp_path / "plots" / "play.svg")
    found = {*words(tmp_path / "plots" / "training.svg")}
    titles = {"Length", "Completions that are cut off", "Groups without gradient", "Loss"}
    assert titles <= found and not {"Surprisal", "Wall time"} & found


def test_what_is_no_row_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = write(tmp_path / "whole", loss_rows(3)), tmp_path / "broken"
    lines = (whole / "metrics.jsonl").read_text().splitlines()
    write(broken, [])
    lines = [lines[0], '{"step": 1, "los{"step": 1}', lines[1], "", lines[2], '{"step": 3, "lo']
    (broken / "metrics.jsonl").write_text("\n".join(lines))
    assert main([str(broken / "metrics.jsonl")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("metrics.jsonl: ")[2] for line in said] == [
        "line 2 is no row of metrics: left out",
        "line 6 is cut off: left out",
    ]
    assert main([str(whole)]) == 0
    assert bytes_of(broken / "plots") == bytes_of(whole / "plots")


def test_a_missing_run_is_said_in_three_parts(tmp_path: Path) -> None:
    done = plot(tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"wanted metrics.jsonl or out/metrics.jsonl in {tmp_path}/nowhere, or a file of metrics, "
        "found nothing there; name the folder of a run that has begun its first step\n"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "found a folder without either; name the folder"),
        ("", "found an empty file; wait for the run's first step"),
        ("\n\n", "found an empty file; wait for the run's first step"),
        ('{"step": 0, "lo', "found 1 line(s), none of which is one; wait"),
        ("loss: 3\n[1]\n{}\n", "found 3 line(s), none of which is one; wait"),
        ('{"step": 0, "colour": "red"}\n', "found colour, step; add a panel for them"),
    ],
)
def test_a_run_without_rows_to_draw_is_said_and_leaves_nothing(
    text: str | None, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    assert main([str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("wanted ") and found in printed.err and not printed.out
    assert not (tmp_path / "plots").exists()


def test_a_place_for_the_pictures_that_is_taken_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (write(tmp_path, loss_rows(1)) / "plots").write_text("")
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"wanted to read metrics of {tmp_path} and to write plots/ beside them")
    assert "File exists" in said and "; copy metrics.jsonl to a folder" in said


def test_a_key_that_has_another_shape_costs_its_panels_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = policy_rows(2)
    rows[1] |= {"matches": [3], "seconds": 2.5, "exam": 0.5, "births": None, "ratings": None}
    assert main([str(write(tmp_path, rows))]) == 0
    said = capsys.readouterr().err.splitlines()
    named = sorted(line.partition(":")[0] for line in said)
    assert named == ["exam", "pair_solve_rates", "pass_at", "seconds", "solve_rate"]
    assert "Reward" in words(tmp_path / "plots" / "play.svg")
    assert any("seconds: not drawn" in text for text in words(tmp_path / "plots" / "training.svg"))


def match(teacher: int, student: int, rate: float | None) -> dict[str, Any]:
    return {"teacher": teacher, "student": student, "expected": 0.5, "solve_rate": rate}


def test_pairs_have_their_mean_solve_rate_in_each_window(tmp_path: Path) -> None:
    played = [
        [match(0, 0, 0.2), match(1, 1, 1.0)],  # steps 0 and 1: the first of four windows
        [match(0, 0, 0.5), match(1, 1, None)],
        [match(0, 1, 0.07), match(1, 0, None)],  # steps 2 and 3
        [match(0, 1, 0.17), match(1, 0, 0.66)],
        *[[], [], [match(0, 0, 0.9)]],  # steps 4 and 5 had no match
    ]
    rows = [{"step": n, "matches": matches} for n, matches in enumerate(played)]
    assert main([str(write(tmp_path, rows))]) == 0
    found = words(tmp_path / "plots" / "play.svg")
    cells = [word for word in found if re.fullmatch(r"–|1\.00|\.\d\d", word)]
    # By rows of each map: T0 with S0 and S1, T1 with S0 and S1.
    assert cells == [".35", "–", "–", "1.00", "–", ".12", ".66", "–", *"––––", ".90", *"–––"]


def birth(role: str, member: int, operator: str) -> dict[str, Any]:
    return {"role": role, "member": member, "operator": operator, "parents": [0]}


def test_survival_counts_those_still_there_as_not_dead(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"step": step, "births": []} for step in range(41)]
    rows[0]["ratings"] = {"teachers": [[25, 8]] * 2, "students": [[25, 8]] * 2}
    rows[10]["births"] = [birth("teacher", 0, "dare"), birth("student", 1, "dare")]
    rows[20]["births"] = [birth("teacher", 0, "masking")]  # dies the first dare, 10 steps old
    rows[35]["births"] = [birth("teacher", 0, "dare")]  # dies the masking, 15 steps old
    assert main([str(write(tmp_path, rows))]) == 0
    found = words(tmp_path / "plots" / "members.svg")
    # Of four founders two died at 10. Of three dares one died at 10, when another was 5 steps old
    # at the end and so not at risk: of the two that were, one is a half.
    assert [word for word in found if "born" in word] == [
        "4 born, 2 replaced, median 10",
        "3 born, 1 replaced, median 10",
        "1 born, 1 replaced, median 15",
    ]


def test_a_newcomer_has_recovered_when_it_is_rated_as_its_best_parent_was() -> None:
    def row(step: int, child: float, births: list[dict[str, Any]]) -> dict[str, Any]:
        # Bounds are means less 3 deviations: 20 of the only parent.
        return {"step": step, "ratings": {"teachers": [[26, 2], [child, 1]]}, "births": births}

    rows = [row(4, 21, [birth("teacher", 1, "dare")]), row(5, 22, []), row(6, 23, [])]
    assert recoveries(rows) == {"dare": [(2, True)]}  # 23 - 3 is 20, after two steps
    assert recoveries(rows[:2]) == {"dare": [(1, False)]}  # not yet, when the run ended
    again = row(5, 22, [birth("teacher", 1, "masking")])  # replaced before
    assert recoveries([rows[0], again, row(7, 23, [])]) == {
        "dare": [(1, False)],
        "masking": [(2, True)],
    }
    assert recoveries([{"step": 1, "births": [birth("teacher", 0, "dare")]}]) == {}


@pytest.mark.parametrize(
    ("spans", "median"),
    [
        ([(5, True)], 5),
        ([(5, False)], None),
        ([(1, True), (2, True), (3, True)], 2),  # 2/3, 1/3
        ([(1, False), (2, True), (3, True)], 2),  # 1/2: the first left before anyone died
        ([(2, True), (1, True), (9, False), (9, False), (9, False)], None),  # 4/5, 3/5
        ([(1, True), (1, False), (2, False), (3, True)], 3),  # 3/4, then 0: deaths come first
    ],
)
def test_the_median_life_by_hand(spans: list[tuple[int, bool]], median: int | None) -> None:
    assert median_life(spans) == median


def test_numbers_out_of_rows() -> None:
    rows: list[dict[str, Any]] = [
        {"a": {"b": 2}},
        {"a": {"b": True}},
        {"a": 3},
        {"a": {"b": None}},
        {},
        {"a": {"b": float("inf")}},
    ]
    np.testing.assert_equal(values(rows, "a", "b"), [2, *[np.nan] * 5])
    lists = table([[1, None], None, [3.0, 5.0], [True, "x"]])
    np.testing.assert_equal(lists, [[1, np.nan], [np.nan] * 2, [3, 5], [np.nan] * 2])
    np.testing.assert_equal(mean(lists), [1, np.nan, 4, np.nan])


def test_only_long_lines_are_smoothed_and_straight_ones_stay_straight() -> None:
    assert [smoothed(count) for count in (1, 60, 61, 200, 2000)] == [1, 1, 3, 11, 101]
    np.testing.assert_equal(running_mean(np.array([4.0, 1.0])), [4, 1])
    ramp = np.arange(61.0)
    np.testing.assert_allclose(running_mean(ramp), ramp)
    spike = np.where(ramp == 30, 6.0, 0)
    np.testing.assert_allclose(running_mean(spike), np.isin(ramp, (29, 30, 31)) * 2.0, atol=1e-12)
