"""Drop-ins found by name, and checked: each rule that a bad one breaks, before any model call."""

import json
import math
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

from substrate import sources
from substrate.constants import rewrite_constants
from substrate.dropin import (
    SETS,
    BadDropIn,
    DropInFolder,
    Finding,
    ProblemSet,
    ScoredSet,
    read_dropin,
)
from substrate.editable import BadEdit
from substrate.tree import BadFile, Progress, content_files, hash_file, silent, tree_sha256

__all__ = ["LIBRARY", "Finding", "check_dropin", "check_parsed", "find_dropin", "list_dropins"]

LIBRARY = Path(__file__).parent / "library"

_JUDGE = "judge"
_SOLVE = "evaluation/solve.py"
# What `seal` puts into a snapshot itself, and what runs write in a fork.
_RESERVED = ("base", "dev", "out", "substrate.toml", sources.TARGET)
FILL_IN = "FILL IN"  # how the template marks what it cannot know
_MOST_NAMED = 5  # ids that one finding lists


def find_dropin(name_or_path: str) -> Path:
    """The folder of a drop-in: a name is looked up in the library, a path from here or the repo.

    Raises BadDropIn, rule `no-such-dropin`, when there is no such folder.
    """
    is_path = "/" in name_or_path or name_or_path in ("", ".", "..")
    folder = Path(name_or_path).expanduser() if is_path else LIBRARY / name_or_path
    if is_path and not folder.is_dir():
        # Whoever fills in a form of `seedbed up` does not know where that was started.
        folder = LIBRARY.parent.parent / folder
    if folder.is_dir() and name_or_path:
        return folder
    there = ", ".join(path.name for path in list_dropins()) or "none"
    hint = "" if is_path else f", or `./{name_or_path}` for a folder here"
    found = f"there is no folder {folder}; the library has: {there}"
    todo = f"choose one of those{hint}; `seedbed substrate new NAME` writes a template"
    raise BadDropIn(Finding("no-such-dropin", repr(name_or_path), found, todo))


def list_dropins() -> list[Path]:
    """The folders of the library that have a manifest, by name."""
    return sorted(path.parent for path in LIBRARY.glob("*/substrate.toml"))


def check_dropin(folder: Path, progress: Progress = silent) -> list[Finding]:
    """Every rule that a drop-in breaks; [] when it can be sealed. The base model is hashed."""
    try:
        dropin = read_dropin(folder)
    except BadDropIn as error:
        return error.findings
    findings = check_parsed(dropin)
    base = dropin.file(dropin.manifest.base.path)
    if base.is_dir() and not any(finding.rule == "symlink" for finding in findings):
        found = tree_sha256(base, progress)
        if found != dropin.manifest.base.sha256:
            findings.append(base_hash_finding(dropin, found))
    return findings


def check_parsed(dropin: DropInFolder) -> list[Finding]:
    """`check_dropin` for a manifest that is read already, without the hash of the base model."""
    return [
        *_check_name(dropin),
        *_check_links(dropin),
        *_check_base(dropin),
        *_check_code(dropin),
        *_check_overlay(dropin),
        *_check_judge(dropin),
        *_check_overrides(dropin),
        *_check_ranges(dropin),
        *_check_directions(dropin),
        *_check_problems(dropin),
    ]


def base_hash_finding(dropin: DropInFolder, found: str) -> Finding:
    """What is wrong with a base model whose hash is not the declared one."""
    base = dropin.manifest.base
    return Finding(
        "base-hash",
        f"base.path {base.path!r}",
        f"its hash is {found}, declared is {base.sha256}",
        f'if these are the right weights, write sha256 = "{found}"',
    )


def _check_name(dropin: DropInFolder) -> Iterator[Finding]:
    name, folder = dropin.manifest.name, dropin.path.name
    if name != folder:
        found = f"it is {name!r}, the folder's is {folder!r}"
        yield Finding("name-mismatch", "`name` in substrate.toml", found, "rename one of them")


def _check_links(dropin: DropInFolder) -> Iterator[Finding]:
    for folder, names, files in os.walk(dropin.path):
        for name in sorted((*names, *files)):
            path = Path(folder, name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                where = path.relative_to(dropin.path).as_posix()
                found = "a link or a special file: what it stands for cannot be sealed"
                yield Finding("symlink", where, found, "put a copy in its place, or remove it")


def _check_base(dropin: DropInFolder) -> Iterator[Finding]:
    for name, text in (
        ("source", dropin.manifest.base.source),
        ("licence", dropin.manifest.base.licence),
    ):
        if text.startswith(FILL_IN):
            yield Finding("fill-in-left", f"base.{name}", f"found {text!r}", "say what it is")
    base = dropin.file(dropin.manifest.base.path)
    where = f"base.path {dropin.manifest.base.path!r}"
    try:
        if not base.is_dir() or not content_files(base):
            found = f"there is no folder with files at {base}"
            todo = f"put the weights there: {dropin.manifest.base.source}"
            yield Finding("missing-file", where, found, todo)
    except BadFile as error:
        yield Finding("symlink", where, f"{error.path} is {error.found}", "put the file there")
    judge = dropin.path / _JUDGE
    if judge.is_relative_to(base.resolve()) or base.resolve().is_relative_to(judge):
        found = "the base model's folder and the judge's are one in the other"
        yield Finding("judge-exposed", where, found, "move the weights to a folder of their own")


def _check_code(dropin: DropInFolder) -> Iterator[Finding]:
    files = sources.code_files(dropin)
    recipe = f"recipes/{dropin.manifest.recipe}.py"
    recipes = [path for path in files if PurePosixPath(path).match("recipes/*.py")]
    for path, what, other in (
        (recipe, "the default recipe", f", or choose one of {recipes}"),
        (_SOLVE, "what the scorer runs", ""),
    ):
        if path not in files:
            found = f"{what} is neither in the reference nor in overlay/"
            yield Finding("missing-file", path, found, f"write overlay/{path}{other}")


def _check_overlay(dropin: DropInFolder) -> Iterator[Finding]:
    for path in sources.overlay_files(dropin):
        for name in _RESERVED:
            if path == name or path.startswith(f"{name}/"):
                found = f"`{name}` is not the overlay's: `seal` or a run writes it"
                todo = "choose another name; the manifest says where data and weights are"
                yield Finding("sealed-overlay", f"overlay/{path}", found, todo)


def _check_judge(dropin: DropInFolder) -> Iterator[Finding]:
    todo = "keep external and lockbox below judge/, and nothing else"
    for name, declared in _sets(dropin).items():
        path = PurePosixPath(declared.path)
        where = f"sets.{name}.path"
        is_judged = name in ("external", "lockbox")
        if path.is_absolute() or ".." in path.parts:
            found = f"{declared.path!r} leads out of the drop-in"
            yield Finding("outside-dropin", where, found, "put the file inside")
        elif (path.parts[:1] == (_JUDGE,)) != is_judged:
            found = f"{declared.path!r} is {'not ' if is_judged else ''}below judge/"
            yield Finding("judge-exposed", where, found, todo)
    judged = [dropin.file(_sets(dropin)[name].path) for name in ("external", "lockbox")]
    secret = {hash_file(path) for path in judged if path.is_file() and not path.is_symlink()}
    for path, source in sources.overlay_files(dropin).items():
        is_copy = not source.is_symlink() and hash_file(source) in secret
        if _JUDGE in PurePosixPath(path).parts or is_copy:
            found = "the overlay goes into every fork, and this is a part of the judge"
            yield Finding("judge-exposed", f"overlay/{path}", found, todo)


def _check_overrides(dropin: DropInFolder) -> Iterator[Finding]:
    files = sources.code_files(dropin)
    for path, values in dropin.manifest.overrides.items():
        if path not in files:
            found = "there is no such file in the reference or the overlay"
            yield Finding("bad-override", f"overrides.{path!r}", found, f"one of {list(files)}")
            continue
        for name, value in values.items():
            where = f"overrides.{path!r}.{name}"
            try:
                rewrite_constants(files[path].read_text(encoding="utf-8"), {name: value})
            except (BadEdit, UnicodeDecodeError) as error:
                yield Finding("bad-override", where, str(error), "correct name or value")


def _check_ranges(dropin: DropInFolder) -> Iterator[Finding]:
    for name, declared in _sets(dropin).items():
        if isinstance(declared, ScoredSet):
            low, high = declared.range
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                found = f"[{low}, {high}] has no inside, or no end"
                todo = "give the metric's least and greatest possible value, such as [0.0, 1.0]"
                yield Finding("bad-range", f"sets.{name}.range", found, todo)
            elif declared.ceiling is not None and not low <= declared.ceiling <= high:
                found = f"{declared.ceiling} is not in the range [{low}, {high}]"
                todo = "say the best score that is possible, or leave it out"
                yield Finding("bad-ceiling", f"sets.{name}.ceiling", found, todo)


def _check_directions(dropin: DropInFolder) -> Iterator[Finding]:
    """Dev stands in for external: a better dev score must mean a better external one."""
    sets = dropin.manifest.sets
    for name, scored in (("external", sets.external), ("lockbox", sets.lockbox)):
        if scored.direction != sets.dev.direction:
            found = f"it is {scored.direction!r}, that of dev is {sets.dev.direction!r}"
            todo = "use metrics of one direction, such as 1 - loss beside an accuracy"
            yield Finding("directions-differ", f"sets.{name}.direction", found, todo)


@dataclass(frozen=True)
class _Problem:
    id: str
    domain: str
    content: str  # everything but the id, normalised


def _check_problems(dropin: DropInFolder) -> Iterator[Finding]:
    ids_by_content: dict[str, dict[str, str]] = {}  # by set, the first id with that content
    for name, declared in _sets(dropin).items():
        path = dropin.file(declared.path)
        where = f"{declared.path} (sets.{name})"
        if not path.is_file():
            todo = "write it: JSON Lines, one problem a line with `id` and `domain`"
            yield Finding("missing-file", where, f"there is no file {path}", todo)
            continue
        problems: list[_Problem] = []
        for item in _read_problems(path, declared.path):
            if isinstance(item, Finding):
                yield item
            else:
                problems.append(item)
        yield from _check_set(where, declared, problems)
        ids_by_content[name] = {problem.content: problem.id for problem in reversed(problems)}
    yield from _check_overlaps(ids_by_content)


def _read_problems(path: Path, name: str) -> Iterator[_Problem | Finding]:
    todo = 'one JSON object a line, with the strings "id" and "domain"'
    content = path.read_bytes().removesuffix(b"\n")
    for number, line in enumerate(content.split(b"\n") if content else [], start=1):
        where = f"{name} line {number}"
        try:
            problem = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            yield Finding("problem-syntax", where, f"no JSON: {error}", todo)
            continue
        if not isinstance(problem, dict):
            yield Finding("problem-syntax", where, "no JSON object", todo)
        elif bad := [key for key in ("id", "domain") if not _is_name(problem.get(key))]:
            found = f"{' and '.join(bad)} missing, empty or no string"
            yield Finding("problem-syntax", where, found, todo)
        else:
            rest = {key: value for key, value in problem.items() if key != "id"}
            normal = json.dumps(_normalise(rest), sort_keys=True)
            yield _Problem(problem["id"], problem["domain"], normal)


def _check_set(where: str, declared: ProblemSet, problems: list[_Problem]) -> Iterator[Finding]:
    if not problems:
        yield Finding("empty-set", where, "it has no problem", "write at least one")
    twice = [name for name, n in Counter(problem.id for problem in problems).items() if n > 1]
    if twice:
        found = f"{len(twice)} ids occur more than once: {_named(twice)}"
        yield Finding("duplicate-id", where, found, "give each problem its own id")
    domains = {problem.domain for problem in problems}
    for domain in sorted(domains - set(declared.domains)):
        ids = [problem.id for problem in problems if problem.domain == domain]
        found = f"domain {domain!r} of {_named(ids)} is not declared"
        yield Finding("unknown-domain", where, found, "add it to the set's `domains`")
    for domain in sorted(set(declared.domains) - domains):
        found = f"no problem of the declared domain {domain!r}"
        yield Finding("empty-domain", where, found, "write one, or remove the domain")


def _check_overlaps(ids_by_content: dict[str, dict[str, str]]) -> Iterator[Finding]:
    for one, other in combinations(ids_by_content, 2):
        ones, others = ids_by_content[one], ids_by_content[other]
        shared = sorted(ones.keys() & others.keys(), key=lambda content: ones[content])
        if shared:
            pairs = [f"{one} {ones[content]!r} = {other} {others[content]!r}" for content in shared]
            found = f"{len(shared)} of their problems are the same: {_named(pairs)}"
            todo = "remove them from one: the four sets must be disjoint by content"
            yield Finding("overlapping-splits", f"sets.{one} and sets.{other}", found, todo)


def _normalise(value: Any) -> Any:
    """One spelling of what reads the same: Unicode forms and runs of white space."""
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFC", value).split())
    if isinstance(value, list):
        return [_normalise(item) for item in value]
    if isinstance(value, dict):
        return {_normalise(key): _normalise(item) for key, item in value.items()}
    return value


def _sets(dropin: DropInFolder) -> dict[str, ProblemSet]:
    sets = dropin.manifest.sets
    return dict(zip(SETS, (sets.target, sets.dev, sets.external, sets.lockbox), strict=True))


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
