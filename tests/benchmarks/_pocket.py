"""Trials on the pocket substrate for benchmarks: arms and seeds in, right and wrong answers out.

Lines are kept in a file, and a trial that has one is not run again as long as what decides it is
the same. Two trials run at a time, each on one thread.
"""

import ast
import asyncio
import hashlib
import json
import multiprocessing
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from substrate.dropin import DropInFolder, read_dropin
from substrate.fork import make_fork
from substrate.measure import Measured, seal_adapter
from substrate.run import job_for, run_recipe
from substrate.store import Store
from tests.benchmarks._deciding import without_docstrings

REPO = Path(__file__).parent.parent.parent
POCKET = REPO / "substrate" / "library" / "pocket"
REFERENCE = REPO / "substrate" / "reference"
LINES = REPO / "docs" / "benchmarks" / "pocket_trials.jsonl"
AT_A_TIME = 2
SECONDS = 3600  # of a trial: a net, for arms of many times the substrate's budget
SETS = {
    "dev": "dev/problems.jsonl",
    "external": "judge/external.jsonl",
    "lockbox": "judge/lockbox.jsonl",
}
BOTH = ("dev", "external")
PARTS = 5  # of a run, for its METRICS
DOMAINS = ("integers", "strings", "lists", "booleans", "bits")
METRICS = (
    ("complexity", "steps"),
    ("complexity", "nodes"),
    ("coverage", "behaviours"),
    ("coverage", "shapes"),
    ("generator_reward",),
    ("key_right",),
    ("probe", "rank_correlation"),
    ("proposals", "valid"),
    ("proposals", "invalid"),
    ("proposals", "duplicate"),
    ("question_depth",),
    ("questions", "valid"),
    ("score", "mean"),
    ("score", "with_cosine"),
    ("score", "with_variance"),
    *(("score_by_topic", domain) for domain in DOMAINS),
    ("solve_rate",),
    ("solve_rates", "some"),
    ("student_entropy",),
    ("student_reward",),
    ("target", "reliability"),
    ("target", "sometimes"),
    ("teacher_entropy",),
    ("teacher_reward",),
    ("trained",),
    ("useful_depth",),
)


@dataclass(frozen=True)
class Arm:
    """A recipe with other values of its constants, and its budget."""

    name: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    rollouts: int | None = None  # None: the substrate's budget
    recipe: str = "rlvr"
    tokens: int | None = None  # after which no further step is begun


@dataclass(frozen=True)
class Line:
    """What one trial of an arm came to."""

    arm: str
    key: str  # hash of what decides a trial but for its seed
    seed: int
    rollouts: int
    seconds: float
    cpu_seconds: float
    right: dict[str, str]  # by set, a 1 or 0 for each of its problems in their order
    tokens: int = 0  # that were sampled; 0 in lines of runs that were not bounded by them
    students: dict[str, dict[str, str]] = field(default_factory=dict)  # of a population, likewise
    steps: list[dict[str, Any]] = field(default_factory=list)  # METRICS of some of its steps

    def accuracy(self, problems: str) -> float:
        return self.right[problems].count("1") / len(self.right[problems])


def trials(
    arms: Sequence[Arm], seeds: Sequence[int], sets: Sequence[str] = BOTH
) -> dict[str, list[Line]]:
    """The lines of each arm, by name, one for each seed: from the file, or measured now."""
    keys = {arm.name: _key(arm) for arm in arms}
    wanted = [(arm, seed) for seed in seeds for arm in arms]
    texts = LINES.read_text(encoding="utf-8").splitlines() if LINES.exists() else []
    lines = {(line.key, line.seed): line for line in (Line(**json.loads(t)) for t in texts)}
    missing = [
        (arm, seed, keys[arm.name], tuple(sets))
        for arm, seed in wanted
        if (line := lines.get((keys[arm.name], seed))) is None or not {*sets} <= {*line.right}
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_A_TIME, mp_context=context) as pool:
        for line in pool.map(_trial, missing):
            lines[line.key, line.seed] = line
            with LINES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line)) + "\n")
            shown = " ".join(f"{name} {line.accuracy(name):.3f}" for name in sets)
            print(f"  {line.arm}, seed {line.seed}: {shown}, {line.seconds:.0f} s", flush=True)
    return {arm.name: [lines[keys[arm.name], seed] for seed in seeds] for arm in arms}


def _trial(order: tuple[Arm, int, str, tuple[str, ...]]) -> Line:
    """One run and its measurement, through the product's own doors."""
    arm, seed, key, sets = order
    with tempfile.TemporaryDirectory() as scratch:
        snapshot = Store(Path(scratch) / "store").seal(_dropin(Path(scratch)))
        overrides = {f"recipes/{arm.recipe}.py": dict(arm.overrides)} if arm.overrides else {}
        fork = make_fork(snapshot, Path(scratch) / "fork", overrides=overrides, patches=[])
        job = job_for(snapshot, recipe=arm.recipe, seed=seed, rollouts=arm.rollouts)
        budget = job.budget.model_copy(update={"tokens": arm.tokens})
        job = job.model_copy(update={"budget": budget})
        record = asyncio.run(run_recipe(fork, job))
        if record.outcome is not None or record.result is None:
            raise RuntimeError(f"{arm.name}: {record.outcome}, {record.reason}")
        if record.result.state != "finished":
            raise RuntimeError(f"{arm.name}: wanted a run to its budget's end: slow machine")
        adapter = seal_adapter(fork, record.result, Path(scratch) / "adapters")
        if isinstance(adapter, Measured):
            raise RuntimeError(f"{arm.name}: {adapter.outcome}, {adapter.reason}")
        right = {name: solve(adapter.path, read(name)) for name in sets}
        students = {
            member.name: {name: solve(member, read(name)) for name in sets}
            for member in sorted(fork.root.glob("out/population/student-*"))
        }
        ending = record.ending
        return Line(
            arm=arm.name,
            key=key,
            seed=seed,
            rollouts=record.result.rollouts,
            seconds=ending.seconds,
            cpu_seconds=ending.cpu_seconds,
            right=right,
            tokens=record.result.tokens if arm.tokens else 0,
            students=students,
            steps=_steps(fork.root / "out" / "metrics.jsonl") if arm.tokens else [],
        )


def of_base(problems: list[dict[str, Any]]) -> str:
    """A 1 or 0 for each problem, of the base model: with an adapter that changes next to nothing.

    One that changes nothing at all is refused.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shape = read_dropin(POCKET).manifest.adapter
    lora = LoraConfig(
        r=shape.rank, target_modules=list(shape.target_modules), task_type="CAUSAL_LM"
    )
    with tempfile.TemporaryDirectory() as folder:
        base = AutoModelForCausalLM.from_pretrained(POCKET / "base")
        model = get_peft_model(base, lora)
        with torch.no_grad():
            next(w for name, w in model.named_parameters() if "lora_B" in name)[0, 0] = 2.0**-20
        model.save_pretrained(folder)
        return solve(Path(folder), problems)


def forced(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same problems with the first line of their trace given."""
    changed = []
    for problem in problems:
        line, sign, rest = problem["answer"].partition("#")
        answer = "\n" + sign + rest  # the world puts a line break before what it is given
        changed.append(problem | {"prompt": problem["prompt"] + line, "answer": answer})
    return changed


def gain(after: Sequence[str], before: Sequence[str], chosen: Sequence[int]) -> tuple[float, float]:
    """Mean gain on the chosen problems, paired by seed and problem, and half its 95 % interval.

    The variance is that over seeds plus that over problems, each over its number; t has the degrees
    of freedom of the sum (Satterthwaite, Biometrics Bulletin 2, 1946).
    """
    pairs = zip(after, before, strict=True)
    gains_S_N = np.array([[int(a[n]) - int(b[n]) for n in chosen] for a, b in pairs])
    seeds, problems = gains_S_N.shape
    parts = [
        (gains_S_N.mean(axis).var(ddof=1) / count, count - 1)
        for axis, count in ((1, seeds), (0, problems))
    ]
    variance = sum(part for part, _ in parts)
    if variance == 0:  # nothing differs at all, which is no certainty
        return float(gains_S_N.mean()), float("nan")
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return float(gains_S_N.mean()), float(t.ppf(0.975, freedom) * variance**0.5)


def by_part(arm: str, lines: Sequence[Line]) -> dict[str, str]:
    """METRICS of an arm over the parts of a run, means over seeds."""
    figures = {}
    for metric in sorted({name for line in lines for step in line.steps for name in step}):
        parts = zip(*(line.steps for line in lines), strict=True)
        means = [
            statistics.fmean(step[metric] for step in part if metric in step)
            for part in parts
            if any(metric in step for step in part)
        ]
        figures[f"{arm}, {metric} by part"] = " ".join(f"{mean:.3g}" for mean in means)
    return figures


def read(name: str) -> list[dict[str, Any]]:
    """The problems of one of the sets."""
    lines = (POCKET / SETS[name]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def solve(adapter: Path, problems: list[dict[str, Any]]) -> str:
    """A 1 or 0 for each problem, as the substrate's own evaluation finds it."""
    if str(REFERENCE) not in sys.path:  # as in a snapshot: the overlay lies over the reference
        sys.path[:0] = [str(POCKET / "overlay"), str(REFERENCE)]
    import torch

    from evaluation.grade import grade
    from evaluation.solve import solve as evaluate

    torch.set_num_threads(1)
    questions = [{**problem, "room": len(problem["answer"])} for problem in problems]
    answers = evaluate(POCKET / "base", adapter, questions)
    return "".join(str(int(value)) for value in grade(problems, answers))


def _dropin(scratch: Path) -> DropInFolder:
    """The substrate, with time enough for any arm."""
    copy = scratch / "pocket"
    shutil.copytree(POCKET, copy)
    manifest = copy / "substrate.toml"
    text, found = re.subn(r"(?m)^seconds = .*$", f"seconds = {SECONDS}.0", manifest.read_text())
    assert found == 1
    manifest.write_text(text)
    return read_dropin(copy)


def _steps(metrics: Path) -> list[dict[str, Any]]:
    """Means of METRICS over each of PARTS parts of a run."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    parts = [rows[n * len(rows) // PARTS : (n + 1) * len(rows) // PARTS] for n in range(PARTS)]
    return [
        {
            "/".join(path): statistics.fmean(found)
            for path in METRICS
            if (found := [value for row in part if (value := _at(row, path)) is not None])
        }
        for part in parts
    ]


def _at(row: Any, path: Sequence[str]) -> float | None:
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _key(arm: Arm) -> str:
    """Hash of the code (comments aside), the problems, the weights and the arm's own values."""
    manifest = read_dropin(POCKET).manifest
    whole = hashlib.sha256()
    seen: set[Path] = set()
    recipe = _with_imports(REFERENCE / "recipes" / f"{arm.recipe}.py", seen)
    for path in (*recipe, *_with_imports(REFERENCE / "evaluation" / "solve.py", seen)):
        whole.update(ast.dump(without_docstrings(path)).encode())
    for path in ("data/target.jsonl", *(SETS[name] for name in BOTH), "base/model.safetensors"):
        whole.update((POCKET / path).read_bytes())
    values: list[Any] = [dict(arm.overrides), arm.rollouts or manifest.budget.rollouts]
    values += [arm.tokens] if arm.tokens else []
    values.append(manifest.adapter.model_dump(mode="json"))
    whole.update(json.dumps(values, sort_keys=True).encode())
    return whole.hexdigest()[:16]


def _with_imports(path: Path, seen: set[Path]) -> list[Path]:
    """A file of a fork, and the files of `training` that it and they import."""
    if path in seen:
        return []
    seen.add(path)
    found = [path]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
            for root in (POCKET / "overlay", REFERENCE):
                module = root / f"{name.replace('.', '/')}.py"
                if name.startswith("training") and module.is_file():
                    found += _with_imports(module, seen)
                    break
    return found
