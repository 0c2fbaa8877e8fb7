"""The check of drop-ins: one test for each rule, and how drop-ins are found."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.check import LIBRARY, Finding, check_dropin, find_dropin, list_dropins
from substrate.dropin import BadDropIn, read_dropin, schema
from substrate.store import tree_sha256


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def write_problems(path: Path, *problems: dict[str, object]) -> None:
    path.write_text("".join(json.dumps(problem) + "\n" for problem in problems))


def manifest(old: str, new: str) -> Callable[[Path], None]:
    return lambda folder: replace(folder / "substrate.toml", old, new)


def append(name: str, text: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(text)

    return do


def override(text: str) -> Callable[[Path], None]:
    return append("substrate.toml", f"\n[overrides.{text}\n")


def overlay(name: str, text: str = "") -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        path = folder / "overlay" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return do


def _copy_external(folder: Path) -> None:
    (folder / "overlay/training/hints.txt").write_bytes(
        (folder / "judge/external.jsonl").read_bytes()
    )


def _expose_dev(folder: Path) -> None:
    (folder / "dev.jsonl").rename(folder / "judge/dev.jsonl")
    replace(folder / "substrate.toml", '"dev.jsonl"', '"judge/dev.jsonl"')


def _expose_external(folder: Path) -> None:
    (folder / "judge/external.jsonl").rename(folder / "external.jsonl")
    replace(folder / "substrate.toml", '"judge/external.jsonl"', '"external.jsonl"')


def _base_is_all(folder: Path) -> None:
    text = (folder / "substrate.toml").read_text()
    text = text.replace('path = "base"', 'path = "."')
    (folder / "substrate.toml").write_text(text)


# Rule, what breaks it, and what the finding must say.
BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("manifest-missing", lambda folder: (folder / "substrate.toml").unlink(), "substrate new"),
    ("manifest-syntax", append("substrate.toml", "\nname =\n"), "not TOML"),
    ("manifest-syntax", append("substrate.toml", '\nname = "twice"\n[base]\n'), "not TOML"),
    ("unknown-key", manifest("rank = 2", "rank = 2\nranks = 3"), "`adapter.ranks`"),
    ("missing-key", manifest('source = "made by a test"\n', ""), "`base.source`"),
    ("missing-key", manifest("[budget]\nrollouts = 8\n", ""), "`budget`"),
    ("undeclared-direction", manifest('direction = "maximise"\n', ""), "`sets.dev.direction`"),
    ("bad-value", manifest('"maximise"', '"up"'), "'up'"),
    ("bad-value", manifest("rank = 2", "rank = 0"), "`adapter.rank`"),
    ("bad-value", manifest('sha256 = "', 'sha256 = "x'), "`base.sha256`"),
    ("name-mismatch", manifest('name = "tiny"', 'name = "other"'), "'other'"),
    ("missing-file", lambda folder: (folder / "target.jsonl").unlink(), "target.jsonl"),
    ("missing-file", lambda folder: (folder / "judge/lockbox.jsonl").unlink(), "lockbox"),
    ("missing-file", manifest('path = "base"', 'path = "nowhere"'), "nowhere"),
    ("missing-file", manifest('recipe = "tiny"', 'recipe = "none"'), "recipes/none.py"),
    ("base-hash", append("base/config.json", " "), "sha256 = "),
    ("problem-syntax", append("dev.jsonl", "{'id': 1}\n"), "dev.jsonl line 5"),
    ("problem-syntax", append("dev.jsonl", "\n"), "dev.jsonl line 5"),
    ("problem-syntax", append("dev.jsonl", '{"id": "x", "domain": ""}\n'), "line 5: domain"),
    ("problem-syntax", append("dev.jsonl", '{"id": 7}\n'), "line 5: id and domain"),
    ("problem-syntax", append("dev.jsonl", "[1]\n"), "no JSON object"),
    (
        "problem-syntax",
        append("dev.jsonl", '{"id": "x", "domain": "sums", "answer": NaN}\n'),
        "NaN is not JSON",
    ),
    ("unknown-domain", append("dev.jsonl", '{"id": "x", "domain": "maths"}\n'), "'maths' of x"),
    ("empty-domain", manifest('["sums", "words"]', '["sums", "words", "maths"]'), "'maths'"),
    ("empty-set", lambda folder: (folder / "target.jsonl").write_text(""), "target.jsonl"),
    ("duplicate-id", append("dev.jsonl", '{"id": "dev-sums-1", "domain": "sums"}\n'), "dev-sums-1"),
    ("judge-exposed", _expose_external, "sets.external.path"),
    ("judge-exposed", _expose_dev, "sets.dev.path"),
    ("judge-exposed", overlay("judge/more.jsonl"), "overlay/judge/more.jsonl"),
    ("judge-exposed", _copy_external, "overlay/training/hints.txt"),
    ("judge-exposed", _base_is_all, "base.path"),
    ("outside-dropin", manifest('"dev.jsonl"', '"../tiny/dev.jsonl"'), "sets.dev.path"),
    ("sealed-overlay", overlay("data/target.jsonl"), "overlay/data/target.jsonl"),
    ("sealed-overlay", overlay("base/config.json"), "overlay/base/config.json"),
    ("sealed-overlay", overlay("substrate.toml"), "overlay/substrate.toml"),
    ("bad-override", override('"recipes/none.py"]\nSTEPS = 1'), "recipes/none.py"),
    ("bad-override", override('"recipes/tiny.py"]\nSTEP = 1'), "`STEP`"),
    ("bad-override", override('"recipes/tiny.py"]\nSTEPS = "1"'), "`STEPS`"),
    ("symlink", lambda folder: (folder / "judge/x").symlink_to("/etc/hosts"), "judge/x"),
    ("symlink", lambda folder: (folder / "overlay/d").symlink_to("/etc"), "overlay/d"),
    ("symlink", lambda folder: os.mkfifo(folder / "pipe"), "pipe"),
    ("bad-range", manifest("[0.0, 1.0]", "[1.0, 1.0]"), "sets.dev.range"),
    ("bad-range", manifest("[0.0, 1.0]", "[0.0, inf]"), "sets.dev.range"),
]


def test_a_good_drop_in_has_no_finding(tiny_dropin: Path) -> None:
    assert check_dropin(tiny_dropin) == []


@pytest.mark.parametrize(
    ("rule", "spoil", "says"), BROKEN, ids=[f"{n}-{rule}" for n, (rule, _, _) in enumerate(BROKEN)]
)
def test_a_broken_rule_is_named(
    tiny_dropin: Path, rule: str, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(tiny_dropin)
    findings = check_dropin(tiny_dropin)
    assert rule in {finding.rule for finding in findings}
    texts = [str(finding) for finding in findings if finding.rule == rule]
    assert any(says in text for text in texts), texts


def test_all_findings_are_told_at_once(tiny_dropin: Path) -> None:
    (tiny_dropin / "dev.jsonl").unlink()
    (tiny_dropin / "overlay/recipes/tiny.py").unlink()
    (tiny_dropin / "base/config.json").write_text("[]")
    replace(tiny_dropin / "substrate.toml", "[0.0, 1.0]", "[1.0, 0.0]")
    rules = sorted(finding.rule for finding in check_dropin(tiny_dropin))
    assert rules == ["bad-range", "base-hash", "missing-file", "missing-file"]


def test_all_mistakes_of_a_manifest_are_told_at_once(tiny_dropin: Path) -> None:
    path = tiny_dropin / "substrate.toml"
    replace(path, 'direction = "maximise"\n', "")
    replace(path, "rank = 2", "rnk = 2")
    rules = sorted(finding.rule for finding in check_dropin(tiny_dropin))
    assert rules == ["missing-key", "undeclared-direction", "unknown-key"]


def test_the_hash_that_is_told_is_the_one_to_paste(tiny_dropin: Path) -> None:
    replace(tiny_dropin / "substrate.toml", 'sha256 = "', 'sha256 = "' + "0" * 64 + '" # "')
    (finding,) = check_dropin(tiny_dropin)
    found = tree_sha256(tiny_dropin / "base")
    assert finding.rule == "base-hash"
    assert finding.todo.endswith(f'sha256 = "{found}"')
    replace(tiny_dropin / "substrate.toml", "0" * 64, found)
    assert check_dropin(tiny_dropin) == []


def test_a_problem_in_two_sets_is_found_by_its_content(tiny_dropin: Path) -> None:
    write_problems(
        tiny_dropin / "dev.jsonl",
        {"id": "d1", "domain": "sums", "prompt": "Caf\u00e9:  1 + 1?\n", "answer": "2"},
        {"id": "d2", "domain": "words", "prompt": "only here", "answer": "2"},
        {"id": "same-id", "domain": "sums", "prompt": "also here", "answer": "2"},
    )
    write_problems(
        tiny_dropin / "judge/lockbox.jsonl",
        {"answer": "2", "prompt": "Cafe\u0301: 1 + 1?", "id": "l1", "domain": "sums"},
        {"id": "same-id", "domain": "sums", "prompt": "also here", "answer": "3"},
    )
    (finding,) = check_dropin(tiny_dropin)
    assert finding == Finding(
        rule="overlapping-splits",
        where="sets.dev and sets.lockbox",
        found="1 of their problems are the same: dev 'd1' = lockbox 'l1'",
        todo="remove them from one: the four sets must be disjoint by content",
    )


def test_a_base_may_lie_elsewhere_and_be_made_of_links(tiny_dropin: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    for name in ("config.json", "parts"):
        (tiny_dropin / "base" / name).rename(tmp_path / name)
    (tiny_dropin / "base").rmdir()
    (hub / "config.json").symlink_to(tmp_path / "config.json")
    (hub / "parts").mkdir()
    (hub / "parts/weights.bin").symlink_to(tmp_path / "parts/weights.bin")
    replace(tiny_dropin / "substrate.toml", 'path = "base"', f'path = "{hub}"')
    assert check_dropin(tiny_dropin) == []
    (tmp_path / "config.json").unlink()
    (finding,) = check_dropin(tiny_dropin)
    assert (finding.rule, "config.json" in finding.found) == ("symlink", True)


def test_a_drop_in_is_found_by_path_or_by_name(tiny_dropin: Path) -> None:
    assert find_dropin(str(tiny_dropin)) == tiny_dropin
    for folder in list_dropins():
        assert find_dropin(folder.name) == folder == LIBRARY / folder.name
        assert read_dropin(folder).manifest.name == folder.name
    with pytest.raises(BadDropIn, match=r"no-such-dropin: 'nope'.*the library has: .*\./nope"):
        find_dropin("nope")
    with pytest.raises(BadDropIn, match="no-such-dropin"):
        find_dropin("./nope")


def test_the_schema_describes_every_key(tiny_dropin: Path) -> None:
    described = schema()
    assert set(described["required"]) <= set(described["properties"])
    for name in ("sets", "limits", "overrides"):
        assert name in described["properties"]
    for table in described["$defs"].values():
        for key, value in table.get("properties", {}).items():
            assert "description" in value, key
