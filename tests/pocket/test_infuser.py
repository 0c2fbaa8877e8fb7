"""INFUSER on pocket, through fork, run and the scorer's checks; and its questionbook."""

import ast
import asyncio
import importlib.util
import json
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from training.programs import OPERATIONS, read_definitions

from evaluation.adapter import check
from substrate.constants import read_constants, rewrite_constants
from substrate.dropin import Overrides, read_dropin
from substrate.fork import Fork, make_fork
from substrate.job import Job, MetricsRow, Result
from substrate.outcome import Outcome
from substrate.run import job_for, run_recipe
from substrate.store import Snapshot, Store
from tests.pocket.running import start, wait_for
from training.passage import Passage
from training.questions import Question

ROOT = Path(__file__).parents[2]
POCKET = ROOT / "substrate" / "library" / "pocket"
RECIPE = ROOT / "substrate" / "reference" / "recipes" / "infuser.py"
# Few steps. Warmer than the default, so that attempts differ, but not so that nothing is valid.
SMALL: dict[str, Any] = {
    "DOCUMENTS": 4,
    "QUESTIONS": 6,
    "ATTEMPTS": 4,
    "SOUNDINGS": 2,
    "TEMPERATURE": 0.9,
    "FEWEST_TARGETS": 8,
    "MOST_TARGETS": 10,
    "PRACTISED": 3,
    "REMEMBERED": 12,
    "GATHERS": 1,
    "WARM_UP": 1,
    "CHECKPOINT_EVERY": 2,
    "PROBE_EVERY": 3,
    "PROBE_TARGETS": 4,
}
ROLLOUTS = 900  # the budget of a run of at least three steps


def rivals() -> dict[str, dict[str, Any]]:
    """The control arms, as the recipe itself gives them."""
    return ast.literal_eval(
        next(
            node.value
            for node in ast.parse(RECIPE.read_text()).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RIVALS"
        )
    )


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Store(tmp_path_factory.mktemp("store")).seal(read_dropin(POCKET))


def fork_of(snapshot: Snapshot, folder: Path, **overrides: Any) -> Fork:
    constants: Overrides = {
        "recipes/infuser.py": SMALL | overrides,
        # So few target problems have no gradient that would be trusted.
        "training/reliability.py": {"LOWEST_GRADIENT": -100.0},
    }
    return make_fork(snapshot, folder, overrides=constants, patches=[])


def job_of(snapshot: Snapshot, rollouts: int, **changes: Any) -> Job:
    job = job_for(snapshot, recipe="infuser", seed=5, rollouts=rollouts)
    return job.model_copy(update=changes)


def given(fork: Fork, job: Job) -> Fork:
    """The same fork, with this job to do."""
    (fork.root / "out").mkdir(exist_ok=True)
    (fork.root / "out" / "job.json").write_text(job.model_dump_json())
    return fork


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


def factors_of(fork: Fork) -> list[bytes]:
    folders = ("adapter", "generator")
    return [
        (fork.root / "out" / folder / "adapter_model.safetensors").read_bytes()
        for folder in folders
    ]


def norm_of(fork: Fork) -> float:
    """The norm of the adapter's update, after the scorer's own checks of it."""
    manifest = fork.snapshot.manifest
    return check(
        fork.root / "out" / "adapter",
        rank=manifest.adapter.rank,
        alpha=manifest.adapter.alpha,
        target_modules=manifest.adapter.target_modules,
        base_sha256=manifest.base.sha256,
    )


@pytest.fixture(scope="module")
def whole(snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Fork:
    """A run of a few steps, not disturbed."""
    fork = fork_of(snapshot, tmp_path_factory.mktemp("whole") / "fork")
    result = run(fork, job_of(snapshot, ROLLOUTS))
    assert (result.state, result.adapter) == ("finished", "out/adapter")
    assert len(rows_of(fork)) >= 3
    assert result.checkpoints == [f"out/checkpoints/{len(rows_of(fork)) // 2 * 2:06d}"]
    assert result.data_sha256.keys() == {"data/target.jsonl"}
    return fork


def test_a_run_delivers_its_solver_and_leaves_its_generator(whole: Fork) -> None:
    assert norm_of(whole) > 0
    generator = load_file(whole.root / "out" / "generator" / "adapter_model.safetensors")
    assert any(factor.any() for name, factor in generator.items() if "lora_B" in name)


def test_every_step_accounts_for_its_rollouts_and_questions(whole: Fork) -> None:
    rows = rows_of(whole)
    before = [0, *(row["rollouts"] for row in rows)]
    for number, row in enumerate(rows):
        counts = row["questions"]
        assert sum(counts.values()) == 24
        assert sum(row["solve_rates"].values()) == counts["valid"]
        # From 2 to 4 attempts at each, and a key in one to six parts.
        posed = row["target"]["problems"] + counts["valid"]
        keyed = counts["valid"] + counts["no_solution"]
        spent = row["rollouts"] - before[number] - 24
        assert 2 * posed + keyed <= spent <= 4 * posed + 6 * keyed
        assert row["trained"] <= row["solve_rates"]["some"] + 3
        scored = row["score"]["mean"] is not None
        assert row["generator_refused"] == (
            "warm-up" if number == 0 else None if scored else "no scores"
        )
    assert rows[0]["gradient_norms"][0] == 0
    assert any(row["gradient_norms"][0] > 0 for row in rows)
    assert any(row["score"]["mean"] is not None for row in rows)
    for number, row in enumerate(rows):
        scored = row["score"]["mean"] is not None
        assert (row["probe"] is not None) == (number % 3 == 0 and scored)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(
    snapshot: Snapshot, whole: Fork, tmp_path: Path
) -> None:
    fork = fork_of(snapshot, tmp_path / "killed")
    out = fork.root / "out"
    with start(given(fork, job_of(snapshot, ROLLOUTS)), "infuser", tmp_path / "log") as process:
        wait_for(out / "checkpoints" / "000002", process, tmp_path / "log")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (out / "result.json").exists()
    (kept,) = [path for path in (out / "checkpoints").iterdir() if path.name != "unfinished"]
    shutil.copytree(kept, fork.root / "checkpoint")
    result = run(fork, job_of(snapshot, ROLLOUTS, checkpoint="checkpoint"))
    assert result.state == "finished"
    assert without_time(fork) == without_time(whole)
    assert factors_of(fork) == factors_of(whole)


@pytest.mark.slow
def test_sigterm_ends_a_run_with_a_usable_adapter(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "fork")
    with start(given(fork, job_of(snapshot, 10**6)), "infuser", tmp_path / "log") as process:
        wait_for(fork.root / "out" / "checkpoints", process, tmp_path / "log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=100) == 0
    result = Result.model_validate_json((fork.root / "out" / "result.json").read_text())
    assert (result.state, result.adapter) == ("stopped", "out/adapter")
    assert norm_of(fork) >= 0


# The one that differs from the recipe in most is always tried.
@pytest.mark.parametrize(
    "rival",
    [
        pytest.param(name, marks=[] if name == "examples for documents" else pytest.mark.slow)
        for name in sorted(rivals())
    ],
)
def test_every_rival_takes_two_steps(snapshot: Snapshot, tmp_path: Path, rival: str) -> None:
    # Without questions there must be enough problems that some are solved sometimes.
    practised = 16 if rival == "target problems only" else 3
    constants = {"WARM_UP": 0, "PRACTISED": practised} | rivals()[rival]
    fork = fork_of(snapshot, tmp_path / "fork", **constants)
    run(fork, job_of(snapshot, 10**6, smoke=True))
    first, second = rows_of(fork)
    assert first["target"]["problems"] == practised
    assert first["target"]["reliability"] is None
    assert any(row["gradient_norms"][1] > 0 for row in (first, second))
    frozen = rival in ("fixed generator", "target problems only")
    generator = load_file(fork.root / "out" / "generator" / "adapter_model.safetensors")
    learnt = any(factor.any() for name, factor in generator.items() if "lora_B" in name)
    assert learnt != frozen


def test_a_run_without_target_problems_takes_two_steps(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "fork", PRACTISED=0, GENERATOR_RATE=0.0)
    run(fork, job_of(snapshot, 10**6, smoke=True))
    assert [row["target"]["problems"] for row in rows_of(fork)] == [0, 0]


def test_a_budget_of_less_than_a_step_is_refused(snapshot: Snapshot, tmp_path: Path) -> None:
    fork = fork_of(snapshot, tmp_path / "fork")
    record = asyncio.run(run_recipe(fork, job_of(snapshot, 303)))
    assert record.outcome == Outcome.CRASHED
    assert "wanted a budget of one step, 304 rollouts, found 303" in record.reason


def test_rivals_are_values_of_the_recipe_s_constants() -> None:
    text = RECIPE.read_text()
    for values in rivals().values():
        changed = read_constants(rewrite_constants(text, values))
        assert {name: changed[name] for name in values} == values
        assert all(read_constants(text)[name] != value for name, value in values.items())


DOCUMENT = "\ndef ka(x):\n x=x+1\n return x\ndef lo(x):\n x=x*2\n return x"
QUESTION = (
    "02\ndef ka(x):\n x=x+1\n return x\ndef lo(x):\n x=x*2\n return x"
    "\ndef f(x):\n x=lo(x)\n x=ka(x)\n return x\nf({})"
)


QUESTION_SHOWN = "<deduce>\ndef f(x):\n x=x*2\n x=x+1\n x=x+2\n x=x-3\n return x\nf({})"


def a_question() -> Any:
    """A valid question, and the book that read it: pocket's, for the reference has its own."""
    place = POCKET / "overlay" / "training" / "questionbook.py"
    spec = importlib.util.spec_from_file_location("pocket_questionbook", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    book = module.Questionbook(len)
    passage = Passage(DOCUMENT, f"<ask>{DOCUMENT}")
    for value in range(3, 40):  # the first that is on no held-out side
        (found,) = book.read([passage], [QUESTION.format(value) + "\n<key>whatever"])
        if isinstance(found, Question):
            return book, found, value
    raise AssertionError("wanted a question, found none")


def test_the_solver_is_shown_a_question_without_its_definitions() -> None:
    book, question, value = a_question()
    assert question.prompt == f"<deduce>\ndef f(x):\n x=x*2\n x=x+1\n return x\nf({value})"
    assert question.document == DOCUMENT
    assert book.facts(question)["depth"] == 2


def test_a_question_about_something_else_is_none() -> None:
    book, _, value = a_question()
    other = Passage("\ndef mi(x):\n x=x-3\n return x", "<ask>\ndef mi(x):\n x=x-3\n return x")
    assert book.read([other], [QUESTION.format(value)]) == ["malformed"]


def test_a_depth_that_is_asked_for_begins_the_answer() -> None:
    book, _, value = a_question()
    text = QUESTION.format(value)
    asked = Passage(DOCUMENT, f"<ask>{DOCUMENT}02")
    (found,) = book.read([asked], [text.removeprefix("02")])
    assert isinstance(found, Question)
    # What it turns out to be counts, not what was asked for.
    deeper = Passage(DOCUMENT, f"<ask>{DOCUMENT}03")
    assert book.read([deeper], [text.removeprefix("02")]) == [found]


def test_a_key_is_believed_but_has_to_look_like_a_solution() -> None:
    book, question, value = a_question()
    wrong = book.with_key(question, [f"\n x=x*2#{2 * value}\n x=x+1#99\n return x#99"])
    assert wrong.reference == "99"
    assert book.facts(wrong)["key_right"] is False
    right = 2 * value + 1
    true = book.with_key(question, [f"\n x=x*2#{2 * value}\n x=x+1#{right}\n return x#{right}"])
    assert book.facts(true)["key_right"] is True
    for text in (f"\n x=x*2#{2 * value}\n return x#{2 * value}", "", "\n x=x+1#5", "return x#"):
        assert book.with_key(question, [text]) == "no_solution"
        assert book.key_prompt(question, [text]) is None


def test_a_long_key_is_asked_for_in_parts_each_from_the_value_before() -> None:
    book, question, _ = a_question()
    text = "<deduce>\ndef f(x):" + "\n x=x+1" * 5 + "\n return x\nf(7)"
    long = replace(question, prompt=text, text=text)
    first = book.key_prompt(long, [])
    assert first == "<deduce>\ndef f(x):" + "\n x=x+1" * 3 + "\n return x\nf(7)"
    answer = "\n x=x+1#8\n x=x+1#9\n x=x+1#20\n return x#20"
    second = book.key_prompt(long, [answer])
    assert second == "<deduce>\ndef f(x):" + "\n x=x+1" * 2 + "\n return x\nf(20)"
    parts = [answer, "\n x=x+1#21\n x=x+1#22\n return x#22"]
    assert book.key_prompt(long, parts) is None
    keyed = book.with_key(long, parts)
    assert (keyed.reference, keyed.solution) == ("22", "".join(parts))
    assert book.with_key(long, [answer.replace("return x#20", "return x#'a'")]) == "no_solution"


def test_an_example_gives_the_beginning_of_a_question() -> None:
    book, *_ = a_question()
    example = {"id": "t1", "prompt": QUESTION_SHOWN.format(7)}
    (passage,) = book.take_examples(1, random.Random(0), [example])
    assert passage.prompt == "<propose>integers04\ndef f(x):\n x=x*2\n x=x+1"
    rest = "\n x=x+2\n x=x-9\n return x\nf({})"
    found = [book.read([passage], [rest.format(value)])[0] for value in range(20)]
    questions = [one for one in found if isinstance(one, Question)]
    assert questions and all(isinstance(one, Question) or one == "malformed" for one in found)
    whole = "<deduce>\ndef f(x):\n x=x*2\n x=x+1\n x=x+2\n x=x-9\n return x\nf("
    assert all(question.prompt.startswith(whole) for question in questions)


def test_attempts_are_right_by_the_key_or_by_the_vote() -> None:
    book, question, _ = a_question()
    texts = [f"\n x=x*2#1\n x=x+1#2\n return x#{value}" for value in (7, 8, 8)] + ["x"]
    keyed = replace(question, reference="7")
    assert book.judge([keyed] * 4, texts) == ["right", "wrong", "wrong", "malformed"]
    assert book.vote(keyed, texts) == ["wrong", "right", "right", "malformed"]
    assert book.vote(keyed, ["x"]) == ["malformed"]


def test_thin_documents_have_one_line_of_their_topic() -> None:
    book, *_ = a_question()
    passages = book.take(60, random.Random(0), 0, [])
    assert {passage.kind for passage in passages} == {"rich", "mixed", "thin"}
    for passage in passages:
        definitions, rest = read_definitions(passage.prompt.removeprefix("<ask>"))
        assert rest[:2] in ("", "05", "06")
        assert read_definitions(rest[2:])[1] == ("\ndef f(x):" if rest else "")
        lines = {line for kind in OPERATIONS[passage.topic] for line in kind}
        own = sum(line in lines for _, line in definitions)
        # A line may belong to two domains.
        assert own >= {"rich": 5, "mixed": 3, "thin": 1}[passage.kind]
