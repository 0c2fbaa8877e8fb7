"""Forks: what is copied and what is bound, constants and patches, and edits read and applied."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.constants import rewrite_constants
from substrate.dropin import Constant, Overrides, read_dropin
from substrate.fork import (
    BadEdit,
    Fork,
    ForkEdit,
    apply_edit,
    is_idle,
    make_fork,
    read_constants,
    read_edit,
    sealed_changes,
    set_constants,
)
from substrate.patch import apply_patch, make_patch
from substrate.store import Snapshot, SnapshotDamaged, Store

RECIPE = "recipes/tiny.py"


@pytest.fixture
def snapshot(tmp_path: Path, tiny_dropin: Path) -> Snapshot:
    return Store(tmp_path / "store").seal(read_dropin(tiny_dropin))


@pytest.fixture
def fork(tmp_path: Path, snapshot: Snapshot) -> Fork:
    return make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])


def snapshot_with(tmp_path: Path, dropin: Path, files: str) -> Snapshot:
    """The snapshot of a drop-in whose manifest has that [files] table."""
    with (dropin / "substrate.toml").open("a") as manifest:
        manifest.write(f"\n[files]\n{files}\n")
    return Store(tmp_path / "store").seal(read_dropin(dropin))


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# The fork's folder


def test_code_is_copied_and_data_and_weights_are_bound(fork: Fork, snapshot: Snapshot) -> None:
    for name in ("evaluation/solve.py", "substrate.toml"):
        assert not (fork.root / name).is_symlink()
        assert (fork.root / name).read_bytes() == (snapshot.root / name).read_bytes()
    for name in ("data", "base"):
        assert os.readlink(fork.root / name) == str(snapshot.root / name)
    assert sorted(os.listdir(fork.root)) == [
        "base", "data", "evaluation", "recipes", "substrate.toml", "training",
    ]  # fmt: skip
    recipe = fork.root / RECIPE
    assert not recipe.is_symlink()
    assert recipe.read_bytes() == (snapshot.root / RECIPE).read_bytes()
    recipe.write_text("changed")
    assert (snapshot.root / RECIPE).read_text() != "changed"


def test_copies_are_writable_and_what_can_be_run_stays_so(
    tmp_path: Path, tiny_dropin: Path
) -> None:
    (tiny_dropin / "overlay/recipes/tool.sh").write_text("#!/bin/sh\n")
    (tiny_dropin / "overlay/recipes/tool.sh").chmod(0o755)
    snapshot = Store(tmp_path / "store").seal(read_dropin(tiny_dropin))
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    assert (fork.root / RECIPE).stat().st_mode & 0o300 == 0o200
    assert (fork.root / "recipes/tool.sh").stat().st_mode & 0o300 == 0o300
    assert (fork.root / "recipes").stat().st_mode & 0o700 == 0o700


def test_a_sealed_file_between_editable_ones_is_bound_alone(
    tmp_path: Path, tiny_dropin: Path
) -> None:
    snapshot = snapshot_with(tmp_path, tiny_dropin, 'sealed = ["training/words.py"]')
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    assert (fork.root / "training/words.py").is_symlink()
    assert not (fork.root / "training").is_symlink()
    (fork.root / "training/new.py").write_text("NEW = 1\n")
    assert sealed_changes(fork) == []
    (fork.root / "training/words.py").unlink()
    (fork.root / "training/words.py").write_text("WORDS = 3\n")
    assert sealed_changes(fork) == ["training/words.py"]


def test_what_is_not_editable_is_sealed(tmp_path: Path, tiny_dropin: Path) -> None:
    table = 'editable = ["recipes/*.py"]\nsealed = ["**/*.json"]'
    snapshot = snapshot_with(tmp_path, tiny_dropin, table)
    fork = make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    assert (fork.root / "training").is_symlink()
    assert not (fork.root / "recipes").is_symlink()
    (fork.root / "recipes/new.py").write_text("")
    (fork.root / "out").mkdir()
    (fork.root / "out/result.json").write_text("{}")
    (fork.root / "recipes/__pycache__").mkdir()
    (fork.root / "recipes/__pycache__/new.pyc").write_text("")
    assert sealed_changes(fork) == []
    (fork.root / "recipes/deeper").mkdir()
    (fork.root / "recipes/deeper/new.py").write_text("")
    (fork.root / "note.txt").write_text("")
    assert sealed_changes(fork) == ["note.txt", "recipes/deeper/new.py"]


def test_a_fork_is_made_once_and_a_bad_recipe_leaves_none(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    with pytest.raises(BadEdit):
        make_fork(snapshot, tmp_path / "fork", overrides={RECIPE: {"X": 1}}, patches=[])
    assert not (tmp_path / "fork").exists()
    make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])
    with pytest.raises(FileExistsError):
        make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])


def test_a_damaged_snapshot_is_not_forked(tmp_path: Path, snapshot: Snapshot) -> None:
    (snapshot.root / RECIPE).chmod(0o644)
    (snapshot.root / RECIPE).write_text("LEARNING_RATE = 1.0\n")
    with pytest.raises(SnapshotDamaged, match=RECIPE):
        make_fork(snapshot, tmp_path / "fork", overrides={}, patches=[])


# Sealed files


def test_an_untouched_fork_has_no_sealed_changes(fork: Fork) -> None:
    assert sealed_changes(fork) == []


def test_a_sealed_folder_replaced_by_its_copy_is_a_change(fork: Fork, snapshot: Snapshot) -> None:
    (fork.root / "data").unlink()
    shutil.copytree(snapshot.root / "data", fork.root / "data")
    changed = sealed_changes(fork)
    assert changed[0] == "data"
    assert "data/target.jsonl" in changed


def test_a_sealed_copy_that_is_written_to_or_replaced_is_a_change(
    fork: Fork, snapshot: Snapshot, tmp_path: Path
) -> None:
    sealed = fork.root / "evaluation" / "solve.py"
    before = sealed.read_bytes()
    for content in (before + b"#", b"x" * len(before)):
        sealed.chmod(0o644)
        sealed.write_bytes(content)
        assert sealed_changes(fork) == ["evaluation/solve.py"]
        assert (snapshot.root / "evaluation" / "solve.py").read_bytes() == before
    sealed.unlink()
    assert sealed_changes(fork) == ["evaluation/solve.py"]
    sealed.symlink_to(snapshot.root / "evaluation" / "solve.py")
    assert sealed_changes(fork) == ["evaluation/solve.py"]
    shutil.rmtree(fork.root / "evaluation")
    (fork.root / "evaluation").symlink_to(snapshot.root / "evaluation")
    assert "evaluation/solve.py" in sealed_changes(fork)


def test_a_sealed_link_led_elsewhere_or_removed_is_a_change(fork: Fork, tmp_path: Path) -> None:
    (fork.root / "base").unlink()
    (fork.root / "base").symlink_to(tmp_path)
    (fork.root / "substrate.toml").unlink()
    assert sealed_changes(fork) == ["base", "substrate.toml"]


def test_what_is_added_where_only_the_snapshot_may_be_is_a_change(fork: Fork) -> None:
    (fork.root / "dev").mkdir()
    (fork.root / "dev/problems.jsonl").write_text("")
    assert sealed_changes(fork) == ["dev/problems.jsonl"]


# Constants

TEXT = '''\
"""A docstring."""
import os

RATE = 3e-3  # Table 2
STEPS: int = 1_000
SIGN = -1
NAME = 'it''s'
ON = True
NOTHING = None
PAIR = 0.9, 0.99
NESTED = [[1, 2], ["a"]]
LONG = [
    0.1,
    0.2,
]
ü = "é"; AFTER = 5  # columns are counted in bytes
TWICE = 1
TWICE = 2
SUM = 1 + 1
CALL = os.getcwd()
DICT = {}
HUGE = 1e999


def f():
    RATE = 7
'''


def test_constants_are_top_level_literals_assigned_once() -> None:
    assert read_constants(TEXT) == {
        "RATE": 0.003,
        "STEPS": 1000,
        "SIGN": -1,
        "NAME": "its",
        "ON": True,
        "NOTHING": None,
        "PAIR": [0.9, 0.99],
        "NESTED": [[1, 2], ["a"]],
        "LONG": [0.1, 0.2],
        "ü": "é",
        "AFTER": 5,
    }


@pytest.mark.parametrize(
    ("name", "value", "old", "new"),
    [
        ("RATE", 0.01, "RATE = 3e-3  # Table 2\n", "RATE = 0.01  # Table 2\n"),
        ("RATE", 1, "RATE = 3e-3  # Table 2\n", "RATE = 1.0  # Table 2\n"),
        ("RATE", 1e-05, "RATE = 3e-3  # Table 2\n", "RATE = 1e-05  # Table 2\n"),
        ("STEPS", -5, "STEPS: int = 1_000\n", "STEPS: int = -5\n"),
        ("SIGN", 1, "SIGN = -1\n", "SIGN = 1\n"),
        ("NAME", 'a "b"\n', "NAME = 'it''s'\n", 'NAME = "a \\"b\\"\\n"\n'),
        ("ON", False, "ON = True\n", "ON = False\n"),
        ("NOTHING", None, "NOTHING = None\n", "NOTHING = None\n"),
        ("NOTHING", [1, None, "x"], "NOTHING = None\n", 'NOTHING = [1, null, "x"]\n'),
        ("PAIR", [0.5, 1], "PAIR = 0.9, 0.99\n", "PAIR = (0.5, 1.0)\n"),
        ("PAIR", [0.5], "PAIR = 0.9, 0.99\n", "PAIR = (0.5,)\n"),
        ("NESTED", [["b", "c"]], 'NESTED = [[1, 2], ["a"]]\n', 'NESTED = [["b", "c"]]\n'),
        ("LONG", [2], "LONG = [\n    0.1,\n    0.2,\n]\n", "LONG = [2.0]\n"),
        ("ü", "ß→", 'ü = "é"; AFTER = 5', 'ü = "ß→"; AFTER = 5'),
        ("AFTER", 6, 'ü = "é"; AFTER = 5', 'ü = "é"; AFTER = 6'),
    ],
)
def test_a_constant_is_rewritten_and_nothing_else(
    name: str, value: Constant, old: str, new: str
) -> None:
    new = new.replace("null", "None")
    assert TEXT.count(old) == 1
    assert rewrite_constants(TEXT, {name: value}) == TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RATE", "0.01"),
        ("RATE", True),
        ("RATE", None),
        ("RATE", float("nan")),
        ("RATE", [0.1]),
        ("STEPS", 10.0),
        ("STEPS", True),
        ("ON", 1),
        ("NAME", 3),
        ("NAME", "\ud800"),
        ("PAIR", 0.5),
        ("PAIR", ["a"]),
        ("LONG", [float("inf")]),
        ("NOTHING", float("inf")),
        ("TWICE", 3),
        ("SUM", 3),
        ("CALL", "x"),
        ("MISSING", 1),
        ("f", 1),
    ],
)
def test_an_unknown_name_a_wrong_type_and_what_is_no_literal_are_refused(
    name: str, value: Constant
) -> None:
    with pytest.raises(BadEdit, match=f"wanted.*`{name}`"):
        rewrite_constants(TEXT, {name: value})


def test_line_ends_and_the_rest_of_the_bytes_are_kept() -> None:
    text = "A = 1\r\nB = (\r\n    2.0\r\n)\r\n# \x0c end without newline"
    new = rewrite_constants(text, {"B": 3.5, "A": 4})
    assert new == "A = 4\r\nB = (\r\n    3.5\r\n)\r\n# \x0c end without newline"


@pytest.mark.parametrize("text", ["A = (", "A = 1\0", "A = " + "[" * 5000 + "]" * 5000])
def test_what_is_not_python_is_refused(text: str) -> None:
    with pytest.raises(BadEdit, match="wanted Python source"):
        read_constants(text)


def test_set_constants_changes_all_files_or_none(fork: Fork) -> None:
    before = (fork.root / RECIPE).read_bytes()
    with pytest.raises(BadEdit, match=r"training/words\.py"):
        set_constants(fork.root, {RECIPE: {"STEPS": 1}, "training/words.py": {"WORDS": "x"}})
    assert (fork.root / RECIPE).read_bytes() == before
    set_constants(fork.root, {RECIPE: {"STEPS": 1}, "training/words.py": {"WORDS": 9}})
    assert read_constants((fork.root / RECIPE).read_text())["STEPS"] == 1
    assert (fork.root / "training/words.py").read_text() == "WORDS = 9\n"


@pytest.mark.parametrize(
    "name", ["evaluation/solve.py", "../outside.py", "recipes/none.py", "/etc/passwd"]
)
def test_set_constants_refuses_sealed_files_and_what_is_not_in_the_fork(
    fork: Fork, name: str
) -> None:
    (fork.root.parent / "outside.py").write_text("ENGINE = 'x'\n")
    with pytest.raises(BadEdit):
        set_constants(fork.root, {name: {"ENGINE": "y"}})


# Patches

OLD = {"a.py": b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n", "gone.txt": b"x\n", "same": b"=\n"}
NEW = {
    "a.py": b"one\ntwo\nthree\nFOUR\nfive\nsix\nseven",
    "added/n.txt": b"n1\n\nn2\n",
    "empty": b"",
    "same": b"=\n",
}
DIFF = r"""--- a/a.py
+++ b/a.py
@@ -1,7 +1,7 @@
 one
 two
 three
-four
+FOUR
 five
 six
-seven
+seven
\ No newline at end of file
--- /dev/null
+++ b/added/n.txt
@@ -0,0 +1,3 @@
+n1
+
+n2
--- /dev/null
+++ b/empty
--- a/gone.txt
+++ /dev/null
@@ -1,1 +0,0 @@
-x
"""


def test_a_patch_is_a_unified_diff_as_git_writes_it_and_applies_exactly() -> None:
    assert make_patch(OLD, NEW) == DIFF
    assert apply_patch(OLD, DIFF) == NEW
    assert make_patch(NEW, NEW) == ""


def test_a_patch_made_by_git_is_read() -> None:
    patch = (
        "diff --git a/a.py b/a.py\nindex 1234567..89abcde 100644\n--- a/a.py\t2020\n+++ b/a.py\n"
        "@@ -2 +2 @@ one\n-two\n+TWO\n"
    )
    assert apply_patch(OLD, patch)["a.py"] == OLD["a.py"].replace(b"two", b"TWO")


def test_a_hunk_moves_to_the_only_place_that_has_its_lines() -> None:
    moved = {"a.py": b"new\nnew\n" + OLD["a.py"]}
    patch = "--- a/a.py\n+++ b/a.py\n@@ -4,1 +4,1 @@\n-four\n+FOUR\n@@ -7,1 +7,1 @@\n-seven\n+7\n"
    assert apply_patch(moved, patch)["a.py"] == (b"new\nnew\none\ntwo\nthree\nFOUR\nfive\nsix\n7\n")
    twice = {"a.py": b"new\nfour\nfour\n"}
    with pytest.raises(BadEdit, match="exactly one other place"):
        apply_patch(twice, "--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-four\n+FOUR\n")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("--- a/a.py\n+++ b/a.py\n@@ -2,1 +2,1 @@\n-Two\n+TWO\n", "hunk 1 of a.py"),
        ("--- a/a.py\n+++ b/a.py\n@@ -2,1 +2,1 @@\n-two \n+TWO\n", "hunk 1 of a.py"),
        ("--- a/b.py\n+++ b/b.py\n@@ -1,1 +1,1 @@\n-one\n+1\n", "no such file"),
        ("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,1 @@\n+x\n", "found it there"),
        ("--- /dev/null\n+++ b/a.py/x\n@@ -0,0 +1,1 @@\n+x\n", "in its way"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-one\n", "wanted to delete a.py"),
        ("--- a/a.py\n+++ b/c.py\n@@ -1,1 +1,1 @@\n-one\n+1\n", "no renames"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,1 @@\n-one\n+1\n", "correct its header"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-one\n+1", "cut off"),
        ("--- a.py\n+++ a.py\n@@ -1,1 +1,1 @@\n-one\n+1\n", "starts with a/"),
        ("Here is the patch:\n--- a/a.py\n+++ b/a.py\n", "unified diff"),
        (
            "--- a/a.py\n+++ b/a.py\n@@ -7,1 +7,1 @@\n-seven\n+7\n@@ -1,1 +1,1 @@\n-one\n+1\n",
            "hunk 2",
        ),
        ("--- a/a.py\n+++ b/a.py\n" * 2, "each file once"),
        ("--- a/bin\n+++ b/bin\n@@ -1,1 +1,1 @@\n-one\n+1\n", "UTF-8"),
        ("@@ -1,1 +1,1 @@\n-one\n+1\n", "unified diff"),
        ("\n", "unified diff"),
    ],
)
def test_a_patch_that_does_not_fit_exactly_is_refused(patch: str, message: str) -> None:
    files = OLD | {"bin": b"\xff\xfe"}
    before = dict(files)
    with pytest.raises(BadEdit, match=message):
        apply_patch(files, patch)
    assert files == before


def test_a_long_file_is_diffed_in_one_hunk_around_what_changed() -> None:
    lines = [f"line {n}\n" for n in range(5000)]
    changed = [*lines]
    changed[1000:1002] = ["other\n"]
    changed[3000] = "else\n"
    old, new = {"f": "".join(lines).encode()}, {"f": "".join(changed).encode()}
    patch = make_patch(old, new)
    assert patch.splitlines()[2] == "@@ -998,2008 +998,2007 @@"
    assert apply_patch(old, patch) == new


# Edits


def test_new_values_of_constants_become_overrides_and_the_rest_a_patch(fork: Fork) -> None:
    replace(fork.root / RECIPE, "LEARNING_RATE = 3e-3", "LEARNING_RATE = 1e-2")
    replace(fork.root / RECIPE, "STEPS: int = 20", "STEPS: int = 40")
    replace(fork.root / RECIPE, "* STEPS", "* STEPS + 1")
    (fork.root / "recipes/notes.md").write_text("why\n")
    edit = read_edit(fork)
    assert edit.overrides == {RECIPE: {"LEARNING_RATE": 0.01, "STEPS": 40}}
    assert edit.patch == (
        "--- /dev/null\n+++ b/recipes/notes.md\n@@ -0,0 +1,1 @@\n+why\n"
        "--- a/recipes/tiny.py\n+++ b/recipes/tiny.py\n@@ -8,4 +8,4 @@\n \n \n def main():\n"
        "-    return LEARNING_RATE * STEPS\n+    return LEARNING_RATE * STEPS + 1\n"
    )
    assert "\n-LEARNING_RATE = 3e-3  # Table 2\n-STEPS: int = 20\n" in edit.diff
    assert "\n+LEARNING_RATE = 1e-2  # Table 2\n+STEPS: int = 40\n" in edit.diff


def test_an_untouched_fork_has_an_empty_edit(fork: Fork) -> None:
    (fork.root / "out").mkdir()
    (fork.root / "out/run.log").write_bytes(b"\xff" * (2 << 20))
    (fork.root / "recipes/__pycache__").mkdir()
    (fork.root / "recipes/__pycache__/tiny.cpython-311.pyc").write_bytes(b"\0\xff")
    (fork.root / ".pytest_cache").mkdir()
    (fork.root / ".pytest_cache/README.md").write_text("cache")
    assert read_edit(fork) == ForkEdit(overrides={}, patch=None, diff="")


def test_another_spelling_of_the_same_value_is_no_edit(fork: Fork) -> None:
    replace(fork.root / RECIPE, "3e-3", "0.003")
    assert read_edit(fork) == ForkEdit(overrides={}, patch=None, diff="")


@pytest.mark.parametrize(
    ("added", "idle"),
    [
        ("", True),
        ("# a comment\n\n\n", True),
        ('"""A text that stands alone."""\n', True),
        ('"""A text that stands alone."""\nprint(__doc__)\n', False),
        ("pass\n", False),
        ("def f():\n    return 1\n", False),
        ("def (\n", False),
    ],
)
def test_an_edit_is_idle_where_no_program_changes(added: str, idle: bool, fork: Fork) -> None:
    path = fork.root / RECIPE
    path.write_text(path.read_text() + added)
    assert is_idle(fork) is idle


def test_a_file_that_is_added_is_not_idle(fork: Fork) -> None:
    (fork.root / "training" / "more.txt").parent.mkdir(exist_ok=True)
    (fork.root / "training" / "more.txt").write_text("")
    assert not is_idle(fork)


def test_a_change_of_type_is_a_patch_that_wins_over_the_standing_override(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    standing: Overrides = {RECIPE: {"LEARNING_RATE": 0.5, "STEPS": 7}}
    fork = make_fork(snapshot, tmp_path / "fork", overrides=standing, patches=[])
    replace(fork.root / RECIPE, "LEARNING_RATE = 0.5", 'LEARNING_RATE = "warm"')
    edit = read_edit(fork)
    assert edit.overrides == {}
    again = make_fork(snapshot, tmp_path / "again", overrides=standing, patches=[])
    apply_edit(again, edit.overrides, edit.patch)
    assert (again.root / RECIPE).read_bytes() == (fork.root / RECIPE).read_bytes()
    assert "STEPS: int = 7\n" in (again.root / RECIPE).read_text()


def test_a_constant_set_back_to_the_clean_value_is_an_override(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    standing: Overrides = {RECIPE: {"STEPS": 7}}
    fork = make_fork(snapshot, tmp_path / "fork", overrides=standing, patches=[])
    replace(fork.root / RECIPE, "STEPS: int = 7", "STEPS: int = 20")
    edit = read_edit(fork)
    assert (edit.overrides, edit.patch) == ({RECIPE: {"STEPS": 20}}, None)
    again = make_fork(snapshot, tmp_path / "again", overrides=standing, patches=[])
    apply_edit(again, edit.overrides, edit.patch)
    assert "STEPS: int = 20\n" in (again.root / RECIPE).read_text()


def test_two_edits_of_different_constants_both_stand(tmp_path: Path, snapshot: Snapshot) -> None:
    edits: list[ForkEdit] = []
    for n, (old, new) in enumerate([("3e-3", "0.01"), ("= 20", "= 40")]):
        fork = make_fork(snapshot, tmp_path / f"{n}", overrides={}, patches=[])
        replace(fork.root / RECIPE, old, new)
        edits.append(read_edit(fork))
    both = {RECIPE: edits[0].overrides[RECIPE] | edits[1].overrides[RECIPE]}
    fork = make_fork(snapshot, tmp_path / "both", overrides=both, patches=[])
    text = (fork.root / RECIPE).read_text()
    assert "LEARNING_RATE = 0.01  # Table 2\nSTEPS: int = 40\n" in text


def test_standing_patches_come_before_standing_overrides(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    patch = (
        "--- a/training/words.py\n+++ b/training/words.py\n@@ -1,1 +1,1 @@\n-WORDS = 3\n+W = 1\n"
    )
    second = "--- a/training/words.py\n+++ b/training/words.py\n@@ -1,1 +1,1 @@\n-W = 1\n+W = 2\n"
    overrides: Overrides = {"training/words.py": {"W": 5}}
    fork = make_fork(snapshot, tmp_path / "fork", overrides=overrides, patches=[patch, second])
    assert fork.patched["training/words.py"] == b"W = 2\n"
    assert fork.prepared["training/words.py"] == b"W = 5\n"
    assert (fork.root / "training/words.py").read_text() == "W = 5\n"
    assert read_edit(fork) == ForkEdit(overrides={}, patch=None, diff="")


def test_strings_joined_over_lines_survive_an_edit_that_joins_them(
    tmp_path: Path, tiny_dropin: Path
) -> None:
    path = "training/text.py"
    (tiny_dropin / "overlay" / path).write_text('PROMPT = (\n    "a"\n    "b"\n)\nN = 1\n')
    snapshot = Store(tmp_path / "store").seal(read_dropin(tiny_dropin))
    standing: Overrides = {path: {"PROMPT": "z"}}
    for n, new in enumerate(['PROMPT = "c"\n', 'PROMPT = "ab"\n', 'PROMPT = "z"\n']):
        fork = make_fork(snapshot, tmp_path / f"{n}", overrides=standing, patches=[])
        (fork.root / path).write_text(new + "N = 2\n")
        edit = read_edit(fork)
        again = make_fork(snapshot, tmp_path / f"{n}-again", overrides=standing, patches=[])
        apply_edit(again, edit.overrides, edit.patch)
        assert (again.root / path).read_text() == new + "N = 2\n"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "recipes/data.bin").write_bytes(b"\xff\xfe"), "UTF-8"),
        (lambda root: (root / "recipes/nul.txt").write_bytes(b"a\0b"), "null byte"),
        (lambda root: (root / RECIPE).write_bytes(b"\xff\xfe"), "UTF-8"),
        (lambda root: (root / "big.txt").write_bytes(b"x" * ((1 << 20) + 1)), "at most 1048576"),
        (lambda root: (root / "recipes/link").symlink_to("/etc/passwd"), "link or special"),
        (lambda root: os.mkfifo(root / "recipes/pipe"), "link or special"),
        (lambda root: (root / "recipes/a\nb").write_text(""), "printable"),
        (
            lambda root: [(root / f"{n}.txt").write_bytes(b"x" * (1 << 20)) for n in range(9)],
            "added files",
        ),
    ],
)
def test_what_an_edit_cannot_carry_is_refused(
    fork: Fork, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(fork.root)
    with pytest.raises(BadEdit, match=message):
        read_edit(fork)


@pytest.mark.parametrize(
    ("overrides", "patch"),
    [
        ({"evaluation/solve.py": {"ENGINE": "x"}}, None),
        ({"recipes/none.py": {"X": 1}}, None),
        ({RECIPE: {"STEPS": "many"}}, None),
        ({}, "--- /dev/null\n+++ b/evaluation/x.py\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- /dev/null\n+++ b/evaluation\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- /dev/null\n+++ b/dev/problems.jsonl\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- /dev/null\n+++ b/out/result.json\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- /dev/null\n+++ b/../x.py\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- /dev/null\n+++ b//etc/x\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- /dev/null\n+++ b/recipes/__pycache__/x.pyc\n@@ -0,0 +1,1 @@\n+x\n"),
        ({}, "--- a/recipes/tiny.py\n+++ b/recipes/tiny.py\n@@ -1,1 +1,1 @@\n-x\n+y\n"),
    ],
)
def test_an_edit_of_sealed_or_foreign_paths_is_refused_and_changes_nothing(
    fork: Fork, overrides: Overrides, patch: str | None
) -> None:
    with pytest.raises(BadEdit):
        apply_edit(fork, overrides, patch)
    assert read_edit(fork) == ForkEdit(overrides={}, patch=None, diff="")
    assert sealed_changes(fork) == []


# Any edit, read and applied again, gives the same files

STANDING: Overrides = {"recipes/tiny.py": {"LEARNING_RATE": 0.01, "LIMIT": 5}}
PATCH = (
    "--- a/training/words.py\n+++ b/training/words.py\n@@ -1,1 +1,2 @@\n WORDS = 3\n+MORE = 0.5\n"
)
LINES = [
    "LEARNING_RATE = 0.02",
    "LEARNING_RATE = 0.003",
    "LEARNING_RATE = 'fast'",
    "STEPS: int = 21",
    "STEPS = 22",
    "STEPS: float = 2.5",
    "BETAS = (0.8, 0.9)",
    "BETAS = [0.8, 0.9]",
    "LIMIT = None",
    "LIMIT = [1, 2.5]",
    'NAME = "ü"; WORDS = 4',
    "MORE = 1.5",
    "def main(:",
    "    return 1",
    "# a comment\r",
    "",
    "\x0c",
    "x = '''",
    'naïve = "\u2028"',
    "-- a/recipes/tiny.py",
    "@@ -1 +1 @@",
]


def scramble(root: Path, dice: random.Random) -> None:
    """A few random changes of the editable files, many of them to constants, some breaking them."""
    for _ in range(dice.randint(1, 6)):
        paths = [root / RECIPE, root / "training/words.py", *(root / "training").glob("sub*/*")]
        files = sorted(path for path in paths if path.is_file())
        if not files:
            return
        path = dice.choice(files)
        lines = path.read_bytes().decode().split("\n")
        at = dice.randrange(len(lines))
        action = dice.randrange(10)
        if action == 0:
            path.unlink()
            continue
        if action == 1:
            path = root / f"training/sub{dice.randrange(3)}" / f"new {dice.randrange(9)}.py"
            path.parent.mkdir(exist_ok=True)
            lines = dice.choices(LINES, k=dice.randrange(4))
        elif action == 2:
            lines[at:] = []
        elif action == 3:
            lines.insert(at, dice.choice(LINES))
        elif action == 4:
            lines[at : at + dice.randint(1, 3)] = []
        elif action == 5:
            lines = [line.removesuffix("\r") + "\r" for line in lines]
        else:
            name = lines[at].split("=")[0]
            same = [line for line in LINES if line.split(" ")[0].split(":")[0] == name.strip()]
            lines[at] = dice.choice(same or LINES)
        path.write_bytes("\n".join(lines).encode())


def editable(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in ("recipes", "training")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }


def test_an_edit_applied_to_a_new_fork_gives_the_same_bytes(
    tmp_path: Path, tiny_dropin: Path
) -> None:
    # In one spelling throughout: what is rewritten takes it, whatever the worker wrote.
    replace(tiny_dropin / "overlay" / RECIPE, "3e-3", "0.003")
    snapshot = Store(tmp_path / "store").seal(read_dropin(tiny_dropin))
    kinds = {"overrides": 0, "patch": 0, "both": 0}
    for seed in range(60):
        fork = make_fork(snapshot, tmp_path / f"{seed}a", overrides=STANDING, patches=[PATCH])
        scramble(fork.root, random.Random(seed))
        edit = read_edit(fork)
        again = make_fork(snapshot, tmp_path / f"{seed}b", overrides=STANDING, patches=[PATCH])
        apply_edit(again, edit.overrides, edit.patch)
        assert editable(again.root) == editable(fork.root), f"seed {seed}"
        assert read_edit(again) == edit, f"seed {seed}"
        kinds["both"] += bool(edit.overrides and edit.patch)
        kinds["overrides"] += bool(edit.overrides)
        kinds["patch"] += bool(edit.patch)
        shutil.rmtree(fork.root)
        shutil.rmtree(again.root)
    assert min(kinds.values()) > 5, kinds


def test_only_the_spelling_of_a_rewritten_constant_may_differ(
    tmp_path: Path, snapshot: Snapshot, fork: Fork
) -> None:
    replace(fork.root / RECIPE, "LEARNING_RATE = 3e-3", "LEARNING_RATE = 5e-4")
    replace(fork.root / RECIPE, "BETAS = (0.9, 0.99)", "BETAS = (\n    0.8,\n    0.9,\n)")
    edit = read_edit(fork)
    assert edit.overrides == {RECIPE: {"LEARNING_RATE": 0.0005, "BETAS": [0.8, 0.9]}}
    assert edit.patch is None
    again = make_fork(snapshot, tmp_path / "again", overrides={}, patches=[])
    apply_edit(again, edit.overrides, edit.patch)
    text = (again.root / RECIPE).read_text()
    assert "LEARNING_RATE = 0.0005  # Table 2\n" in text
    assert "BETAS = (0.8, 0.9)\n" in text
