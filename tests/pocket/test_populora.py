"""The population recipes on pocket, through fork, run and the scorer's checks."""

import ast
import asyncio
import json
import shutil
import signal
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from evaluation.adapter import check
from substrate.constants import read_constants, rewrite_constants
from substrate.dropin import read_dropin
from substrate.fork import Fork, make_fork
from substrate.job import Job, MetricsRow, Result
from substrate.outcome import Outcome
from substrate.run import job_for, run_recipe
from substrate.store import Snapshot, Store
from tests.pocket.running import start, wait_for

ROOT = Path(__file__).parents[2]
POCKET = ROOT / "substrate" / "library" / "pocket"
RECIPES = ROOT / "substrate" / "reference" / "recipes"
# Few steps, and so warm that attempts at easy tasks fail: else there was nothing to learn from.
SMALL: dict[str, dict[str, Any]] = {
    "populora": {
        "TEACHERS": 2,
        "STUDENTS": 2,
        "PROMPTS": 3,
        "PROPOSALS": 2,
        "PRIOR_TASKS": 1,
        "ATTEMPTS": 4,
        "TEMPERATURE": 1.5,
        "TEACHER_GATHERS": 2,
        "STUDENT_GATHERS": 4,
        "EVOLVE_EVERY": 2,
        "CHECKPOINT_EVERY": 2,
        "YARDSTICK": 4,
        "MEASURE_EVERY": 2,
        "CROSS_TASKS": 2,
        "EXAM": 4,
    },
    "selfplay": {
        "PROMPTS": 3,
        "PROPOSALS": 2,
        "PRIOR_TASKS": 1,
        "ATTEMPTS": 4,
        "TEMPERATURE": 1.5,
        "TEACHER_GATHERS": 2,
        "STUDENT_GATHERS": 4,
        "CHECKPOINT_EVERY": 2,
        "MEASURE_EVERY": 2,
        "EXAM": 4,
    },
}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(POCKET))


def fork_of(snapshot: Snapshot, folder: Path, recipe: str, **overrides: Any) -> Fork:
    constants = {f"recipes/{recipe}.py": SMALL[recipe] | overrides}
    return make_fork(snapshot, folder, overrides=constants, patches=[])


def job_of(snapshot: Snapshot, recipe: str, rollouts: int, **changes: Any) -> Job:
    job = job_for(snapshot, recipe=recipe, seed=5, rollouts=rollouts)
    return job.model_copy(update=changes)


def run(fork: Fork, job: Job) -> Result:
    record = asyncio.run(run_recipe(fork, job))
    assert record.outcome is None, record.reason
    assert record.result is not None
    return record.result


def rows_of(fork: Fork) -> list[dict[str, Any]]:
    lines = (fork.root / "out/metrics.jsonl").read_text().splitlines()
    assert [MetricsRow.model_validate_json(line) for line in lines]
    return [json.loads(line) for line in lines]


def without_time(fork: Fork) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows_of(fork)]


def bytes_of(fork: Fork, folder: str) -> dict[str, bytes]:
    found = sorted((fork.root / folder).rglob("*.safetensors"))
    assert found
    return {str(path.relative_to(fork.root)): path.read_bytes() for path in found}


def norm_of(fork: Fork, folder: str) -> float:
    """The norm of an adapter's update, after the scorer's own checks of it."""
    manifest = fork.snapshot.manifest
    return check(
        fork.root / folder,
        rank=manifest.adapter.rank,
        alpha=manifest.adapter.alpha,
        target_modules=manifest.adapter.target_modules,
        base_sha256=manifest.base.sha256,
    )


@pytest.fixture(scope="module")
def whole(snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Fork:
    """A run of a few steps with two evolutions, not disturbed."""
    fork = fork_of(snapshot, tmp_path_factory.mktemp("whole") / "fork", "populora")
    result = run(fork, job_of(snapshot, "populora", 360))
    assert (result.state, result.adapter) == ("finished", "out/adapter")
    assert result.checkpoints == [f"out/checkpoints/{len(rows_of(fork)) // 2 * 2:06d}"]
    assert result.data_sha256.keys() == {"data/target.jsonl"}
    return fork


def test_a_run_delivers_a_student_and_leaves_its_population(whole: Fork) -> None:
    names = [f"{role}-{number}" for role in ("student", "teacher") for number in (0, 1)]
    population = whole.root / "out" / "population"
    assert sorted(path.name for path in population.iterdir() if path.is_dir()) == names
    chosen = json.loads((population / "yardstick.json").read_text())
    assert chosen["of"] == 4
    assert chosen["solved"][chosen["delivered"]] == max(chosen["solved"])
    delivered = bytes_of(whole, "out/adapter")["out/adapter/adapter_model.safetensors"]
    student = f"out/population/student-{chosen['delivered']}"
    assert bytes_of(whole, student) == {f"{student}/adapter_model.safetensors": delivered}
    assert norm_of(whole, "out/adapter") > 0


def test_the_student_that_solves_most_is_delivered_and_of_equals_the_higher_rated(
    snapshot: Snapshot, whole: Fork, tmp_path: Path
) -> None:
    """A run that goes on from a checkpoint with no budget left delivers at once: of three students
    two are what the base is, and one, with the highest bound, babbles.
    """
    (kept,) = (whole.root / "out" / "checkpoints").iterdir()
    fork = fork_of(snapshot, tmp_path / "fork", "populora", STUDENTS=3, YARDSTICK=16)
    shutil.copytree(kept, fork.root / "checkpoint")
    tensors = load_file(kept / "tensors.safetensors")
    for name in [name for name in tensors if name.startswith("member 2/")]:
        for place in (2, 3, 4):
            numbers = np.full_like(tensors[name], place == 4)
            tensors[name.replace("member 2", f"member {place}")] = numbers
    save_file(tensors, fork.root / "checkpoint" / "tensors.safetensors")
    state = json.loads((kept / "state.json").read_text())
    ratings = [(25.0, 4.0), (20.0, 2.0), (30.0, 1.0)]  # of bounds 13, 14 and 27
    state["recipe"]["students"] = {
        "name": "student",
        "places": [2, 3, 4],
        "ratings": [{"mean": mean, "deviation": deviation} for mean, deviation in ratings],
    }
    (fork.root / "checkpoint" / "state.json").write_text(json.dumps(state))
    used = json.loads((kept / "journal.json").read_text())["rollouts"]
    run(fork, job_of(snapshot, "populora", used + 3 * 16, checkpoint="checkpoint"))
    chosen = json.loads((fork.root / "out" / "population" / "yardstick.json").read_text())
    first, second, third = chosen["solved"]
    assert first == second > third == 0
    assert chosen["delivered"] == 1


def test_every_step_says_who_met_whom_and_what_came_of_it(whole: Fork) -> None:
    rows = rows_of(whole)
    result = Result.model_validate_json((whole.root / "out/result.json").read_text())
    assert result.rollouts == rows[-1]["rollouts"] + 2 * 4  # and the yardstick
    for row in rows:
        assert {match["teacher"] for match in row["matches"]} == {0, 1}
        assert {match["student"] for match in row["matches"]} == {0, 1}
        assert sum(row["proposals"].values()) == 12  # the base's own are not counted
        assert len(row["gradient_norms"]) == 4
        assert sum(match["tasks"] for match in row["matches"]) == row["proposals"]["valid"]
        assert row["seconds"].keys() == {"propose", "solve", "train", "measure", "evolve"}
    tasks = [sum(row["solve_rates"].values()) for row in rows]
    attempts = [4 * count for count in tasks]
    before = [0, *(row["rollouts"] for row in rows)]
    for number, row in enumerate(rows):
        assert row["rollouts"] - before[number] == 2 * 7 + attempts[number]
    assert any(norm > 0 for row in rows for norm in row["gradient_norms"][:2])  # teachers
    assert any(norm > 0 for row in rows for norm in row["gradient_norms"][2:])
    cover = [row["coverage"]["behaviours"] for row in rows]
    assert cover == sorted(cover)


def test_a_match_moves_two_ratings_towards_its_winner(whole: Fork) -> None:
    for row in rows_of(whole):
        for match in row["matches"]:
            (teacher, student), (teacher_after, student_after) = match["before"], match["after"]
            rate, expected = match["solve_rate"], match["expected"]
            spread = (teacher[1] ** 2 + student[1] ** 2 + 2 * (25 / 6) ** 2) ** 0.5
            gap = (student[0] - teacher[0]) / spread
            assert expected == pytest.approx(NormalDist().cdf(gap))
            won = rate is None or rate > expected
            assert match["winner"] == ("student" if won else "teacher")
            assert (student_after[0] > student[0]) == (teacher_after[0] < teacher[0]) == won


def test_students_meet_all_teachers_and_sit_exams_outside_the_budget(whole: Fork) -> None:
    rows = rows_of(whole)
    due = range(1, len(rows), 2)
    assert [row["step"] for row in rows if "cross_play" in row] == [*due]
    assert [row["step"] for row in rows if "exam" in row] == [*due]
    assert [row["step"] for row in rows if "exam_of_base" in row] == [1]
    for row in (rows[step] for step in due):
        crossed, exam = row["cross_play"], row["exam"]
        assert [len(rates) for rates in crossed["fresh"]] == [2, 2]
        for count, rates in zip(crossed["tasks"], crossed["fresh"], strict=True):
            assert count <= 2
            quarters = [rate * count * 4 for rate in rates] if count else []
            assert quarters == [round(quarter) for quarter in quarters]
        assert (exam["problems"], exam["attempts"], exam["pass_at"].keys()) == (
            *(4, 8),
            {"1", "2", "4", "8"},
        )
        for passes in zip(*exam["pass_at"].values(), strict=True):
            assert list(passes) == sorted(passes)
    assert rows[1]["cross_play"]["earlier"] is None
    assert len(rows[3]["cross_play"]["earlier"]) == 2


def test_a_birth_says_who_made_room_and_how_the_child_lies_to_its_parents(whole: Fork) -> None:
    births = [birth for row in rows_of(whole) for birth in row["births"]]
    assert births[0]["replaced"] == "founder"
    for birth in births:
        assert len(birth["cosines"]) == len(birth["parents_norms"]) == len(birth["parents"])
        assert birth["norm"] >= 0


@pytest.mark.slow
def test_measurements_change_nothing_else(snapshot: Snapshot, whole: Fork, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "fork", "populora", MEASURE_EVERY=0)
    run(fork, job_of(snapshot, "populora", 360))
    measured = {"cross_play", "exam", "exam_of_base"}
    assert [
        {key: value for key, value in row.items() if key not in measured}
        for row in without_time(whole)
    ] == without_time(fork)
    assert bytes_of(fork, "out/adapter") == bytes_of(whole, "out/adapter")
    assert bytes_of(fork, "out/population") == bytes_of(whole, "out/population")


def test_evolution_comes_when_it_is_due(whole: Fork) -> None:
    rows = rows_of(whole)
    births = [(row["step"], birth["role"]) for row in rows for birth in row["births"]]
    due = [(step, role) for step in range(1, len(rows), 2) for role in ("teacher", "student")]
    assert births == due
    # Who was born at one event is spared at the next one.
    teachers = [birth for row in rows for birth in row["births"] if birth["role"] == "teacher"]
    assert {birth["member"] for birth in teachers[:2]} == {0, 1}


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(
    snapshot: Snapshot, whole: Fork, tmp_path: Path
) -> None:
    fork = fork_of(snapshot, tmp_path / "killed", "populora")
    out = fork.root / "out"
    out.mkdir(exist_ok=True)
    (out / "job.json").write_text(job_of(snapshot, "populora", 360).model_dump_json())
    with start(fork, "populora", tmp_path / "log") as process:
        wait_for(out / "checkpoints" / "000002", process, tmp_path / "log")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / "result.json").exists()
    (kept,) = [path for path in (out / "checkpoints").iterdir() if path.name != "unfinished"]
    shutil.copytree(kept, fork.root / "checkpoint")
    result = run(fork, job_of(snapshot, "populora", 360, checkpoint="checkpoint"))
    assert result.state == "finished"
    assert without_time(fork) == without_time(whole)
    assert bytes_of(fork, "out/adapter") == bytes_of(whole, "out/adapter")
    assert bytes_of(fork, "out/population") == bytes_of(whole, "out/population")


@pytest.mark.slow
def test_sigterm_ends_a_run_with_a_usable_adapter(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "fork", "populora")
    out = fork.root / "out"
    out.mkdir(exist_ok=True)
    (out / "job.json").write_text(job_of(snapshot, "populora", 10**6).model_dump_json())
    with start(fork, "populora", tmp_path / "log") as process:
        wait_for(out / "checkpoints", process, tmp_path / "log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=100) == 0
    result = Result.model_validate_json((out / "result.json").read_text())
    assert (result.state, result.adapter) == ("stopped", "out/adapter")
    assert norm_of(fork, "out/adapter") >= 0


@pytest.mark.slow
def test_frozen_teachers_stay_what_the_base_is(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(
        snapshot,
        tmp_path / "fork",
        "populora",
        TEACHER_RATE=0.0,
        EVOLVE_EVERY=0,
        SELF_GRADED=True,
        TASTE=0.0,
    )
    run(fork, job_of(snapshot, "populora", 400))
    assert all(row["births"] == [] for row in rows_of(fork))
    for number in (0, 1):
        teacher = fork.root / "out" / "population" / f"teacher-{number}"
        factors = load_file(teacher / "adapter_model.safetensors")
        assert all(not factor.any() for name, factor in factors.items() if "lora_B" in name)


@pytest.mark.slow
def test_selfplay_is_one_adapter_that_goes_on_as_well(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "whole", "selfplay")
    result = run(fork, job_of(snapshot, "selfplay", 160))
    assert result.state == "finished"
    assert norm_of(fork, "out/adapter") >= 0
    resumed = fork_of(snapshot, tmp_path / "resumed", "selfplay")
    (checkpoint,) = result.checkpoints
    shutil.copytree(fork.root / checkpoint, resumed.root / "checkpoint")
    run(resumed, job_of(snapshot, "selfplay", 160, checkpoint="checkpoint"))
    assert without_time(resumed) == without_time(fork)
    assert bytes_of(resumed, "out/adapter") == bytes_of(fork, "out/adapter")


@pytest.mark.slow
def test_a_budget_of_less_than_a_step_is_refused(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "fork", "populora")
    record = asyncio.run(run_recipe(fork, job_of(snapshot, "populora", 77)))
    assert record.outcome == Outcome.CRASHED
    assert "wanted a budget of one step and the yardstick, 78 rollouts, found 77" in record.reason


@pytest.mark.parametrize("recipe", ["populora", "selfplay"])
def test_the_published_rules_are_values_of_the_recipes_constants(recipe: str) -> None:
    text = (RECIPES / f"{recipe}.py").read_text()
    published = ast.literal_eval(
        next(
            node.value
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PUBLISHED"
        )
    )
    changed = read_constants(rewrite_constants(text, published))
    assert {name: changed[name] for name in published} == published
    assert all(read_constants(text)[name] != value for name, value in published.items())
