"""The store: what a snapshot holds, that it never changes unnoticed, and what sealing refuses."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.dropin import BadDropIn, read_dropin
from substrate.store import Snapshot, SnapshotDamaged, Store, tree_sha256

ROOT = Path(__file__).resolve().parents[2]
SEAL = (
    "import sys, time; from pathlib import Path\n"
    "from substrate.dropin import read_dropin\n"
    "from substrate.store import Store\n"
    "store, folder, ready, go = map(Path, sys.argv[1:])\n"
    "ready.touch()\n"
    "while not go.exists(): time.sleep(0.001)\n"
    "print(Store(store).seal(read_dropin(folder)).digest)\n"
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def snapshot(store: Store, tiny_dropin: Path) -> Snapshot:
    return store.seal(read_dropin(tiny_dropin))


def test_a_snapshot_is_reference_overlay_data_and_base_with_the_resolved_manifest(
    snapshot: Snapshot,
) -> None:
    paths = {entry.path for entry in snapshot.entries if entry.type == "file"}
    assert {
        "recipes/tiny.py",
        "training/words.py",
        "evaluation/score.py",  # the reference's
        "evaluation/solve.py",
        "data/target.jsonl",
        "dev/problems.jsonl",
        "base/config.json",
        "base/parts/weights.bin",
        "substrate.toml",
    } <= paths
    assert {path.split("/")[0] for path in paths} == {
        "recipes", "training", "evaluation", "data", "dev", "base", "substrate.toml",
    }  # fmt: skip
    assert (snapshot.root / "evaluation/solve.py").read_text() == 'ENGINE = "tiny"\n'
    manifest = read_dropin(snapshot.root).manifest
    assert manifest == snapshot.manifest
    assert manifest.base.path == "base"
    assert manifest.sets.target.path == "data/target.jsonl"
    assert manifest.sets.dev.path == "dev/problems.jsonl"
    assert manifest.sets.dev.range == (0.0, 1.0)
    assert manifest.title == 'Tiny "quoted" ünïcode\\'


def test_hidden_files_byte_code_and_read_mes_are_left_out(store: Store, tiny_dropin: Path) -> None:
    before = store.seal(read_dropin(tiny_dropin))
    for name in (".hidden", "README.md", "recipes/__pycache__/tiny.pyc", "base.txt/../.x"):
        path = tiny_dropin / "overlay" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left out")
    (tiny_dropin / "base" / ".cache").mkdir()
    (tiny_dropin / "base" / ".cache" / "lock").write_text("left out")
    assert store.seal(read_dropin(tiny_dropin)).digest == before.digest


def test_the_judges_problems_are_in_no_snapshot(snapshot: Snapshot) -> None:
    content = b"".join(p.read_bytes() for p in snapshot.root.rglob("*") if p.is_file())
    assert b"dev question" in content
    assert b"external question" not in content
    assert b"lockbox question" not in content


def test_everything_sealed_is_read_only_and_what_can_be_run_stays_so(
    store: Store, tiny_dropin: Path
) -> None:
    (tiny_dropin / "overlay/recipes/tool.sh").write_text("#!/bin/sh\n")
    (tiny_dropin / "overlay/recipes/tool.sh").chmod(0o700)
    snapshot = store.seal(read_dropin(tiny_dropin))
    modes = {entry.path: entry.mode for entry in snapshot.entries}
    assert modes.pop("recipes/tool.sh") == 0o555
    found = {(entry.type, modes[entry.path]) for entry in snapshot.entries if entry.path in modes}
    assert found == {("file", 0o444), ("dir", 0o555)}


def test_the_manifests_overrides_are_applied(store: Store, tiny_dropin: Path) -> None:
    with (tiny_dropin / "substrate.toml").open("a") as manifest:
        manifest.write('[overrides."recipes/tiny.py"]\nLEARNING_RATE = 1\nBETAS = [0.5, 0.9]\n')
    snapshot = store.seal(read_dropin(tiny_dropin))
    text = (snapshot.root / "recipes/tiny.py").read_text()
    assert "LEARNING_RATE = 1.0  # Table 2\n" in text
    assert "BETAS = (0.5, 0.9)\n" in text
    assert snapshot.manifest.overrides == {
        "recipes/tiny.py": {"LEARNING_RATE": 1, "BETAS": [0.5, 0.9]}
    }
    store.verify(snapshot)


def test_sealing_twice_gives_the_same_snapshot(store: Store, tiny_dropin: Path) -> None:
    first = store.seal(read_dropin(tiny_dropin))
    os.utime(tiny_dropin / "target.jsonl", (0, 0))
    (tiny_dropin / "target.jsonl").chmod(0o600)
    again = store.seal(read_dropin(tiny_dropin))
    assert again == first == store.open(first.digest)
    assert store.snapshots() == [first.digest]


def test_one_changed_byte_gives_another_digest(store: Store, tiny_dropin: Path) -> None:
    first = store.seal(read_dropin(tiny_dropin))
    (tiny_dropin / "overlay/training/words.py").write_text("WORDS = 4\n")
    second = store.seal(read_dropin(tiny_dropin))
    assert store.snapshots() == sorted([first.digest, second.digest])
    assert first.digest != second.digest
    store.verify(first)
    store.verify(second)


def test_two_processes_that_seal_at_once_get_the_same_snapshot(
    tmp_path: Path, tiny_dropin: Path
) -> None:
    # Large enough for the two to meet in the middle of it.
    (tiny_dropin / "base/parts/weights.bin").write_bytes(bytes(64 << 20))
    manifest = tiny_dropin / "substrate.toml"
    old = read_dropin(tiny_dropin).manifest.base.sha256
    manifest.write_text(manifest.read_text().replace(old, tree_sha256(tiny_dropin / "base")))
    command = [sys.executable, "-c", SEAL, str(tmp_path / "store"), str(tiny_dropin)]
    ready, go = [tmp_path / "ready0", tmp_path / "ready1"], tmp_path / "go"
    both = [
        subprocess.Popen(
            [*command, str(mark), str(go)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for mark in ready
    ]
    while not all(mark.exists() for mark in ready) and all(p.poll() is None for p in both):
        time.sleep(0.001)
    go.touch()
    digests = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    store = Store(tmp_path / "store")
    assert store.snapshots() == [digests[0]] == [digests[1]]
    store.verify(store.open(digests[0]))
    assert sorted(os.listdir(store.root)) == ["bases", "lock", "snapshots"]


def test_what_a_killed_seal_left_behind_is_cleared(store: Store, tiny_dropin: Path) -> None:
    left = store.root / "staging" / "abc" / "tree"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    left.chmod(0o555)
    store.seal(read_dropin(tiny_dropin))
    assert not (store.root / "staging").exists()


def test_snapshots_with_one_base_share_its_files(store: Store, tiny_dropin: Path) -> None:
    first = store.seal(read_dropin(tiny_dropin))
    (tiny_dropin / "overlay/training/words.py").write_text("WORDS = 4\n")
    second = store.seal(read_dropin(tiny_dropin))
    weights = "base/parts/weights.bin"
    assert (first.root / weights).samefile(second.root / weights)
    assert not (first.root / weights).samefile(tiny_dropin / weights)


def test_the_hash_of_a_folder_is_of_paths_sizes_and_content_alone(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "b").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("hidden")
    (folder / "a.txt").write_bytes(b"hi")
    (tmp_path / "blob").write_bytes(b"")
    (folder / "b" / "c").symlink_to(tmp_path / "blob")  # as in a model hub's cache
    hi, empty = hashlib.sha256(b"hi").hexdigest(), hashlib.sha256(b"").hexdigest()
    lines = f'seedbed content 1\n["a.txt", 2, "{hi}"]\n["b/c", 0, "{empty}"]\n'
    expected = hashlib.sha256(lines.encode()).hexdigest()
    assert tree_sha256(folder) == expected
    (folder / "a.txt").chmod(0o700)
    assert tree_sha256(folder) == expected
    (folder / "a.txt").rename(folder / "z.txt")
    assert tree_sha256(folder) != expected


def test_the_digest_is_the_hash_of_the_entries_under_a_version_tag(snapshot: Snapshot) -> None:
    lines = (snapshot.root.parent / "entries.jsonl").read_bytes()
    assert hashlib.sha256(b"seedbed snapshot 1\n" + lines).hexdigest() == snapshot.digest
    assert [entry.path for entry in snapshot.entries] == sorted(e.path for e in snapshot.entries)


def _edit(path: Path, content: bytes) -> None:
    """Change a sealed file as whoever may do anything can: mode, size and times look as before."""
    info = path.stat()
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(info.st_mode & 0o7777)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    mode = path.parent.stat().st_mode & 0o7777
    path.parent.chmod(0o755)
    if path.exists():
        path.unlink()
    make(path)
    path.parent.chmod(mode)


DAMAGES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "byte edited, same size and time": (
        "evaluation/solve.py",
        "changed: sha256",
        lambda path: _edit(path, b'ENGINE = "evil"\n'),
    ),
    "byte appended": (
        "data/target.jsonl",
        "changed: ",
        lambda path: _edit(path, path.read_bytes() + b"\n"),
    ),
    "file missing": ("recipes/tiny.py", "missing", lambda p: _replace(p, lambda _: None)),
    "file added": (
        "evaluation/helper.py",
        "added",
        lambda path: _replace(path, lambda new: new.touch()),
    ),
    "byte code added": (
        "evaluation/__pycache__",
        "added",
        lambda path: _replace(path, lambda new: new.mkdir()),
    ),
    "file made writable": ("substrate.toml", "permissions 0644", lambda path: path.chmod(0o644)),
    "folder made writable": ("evaluation", "permissions 0777", lambda path: path.chmod(0o777)),
    "root made writable": (".", "permissions 0755", lambda path: path.chmod(0o755)),
    "link in the place of a file": (
        "evaluation/solve.py",
        "a link",
        lambda path: _replace(path, lambda new: new.symlink_to("/dev/null")),
    ),
    "pipe in the place of a file": (
        "evaluation/solve.py",
        "a special file",
        lambda path: _replace(path, os.mkfifo),
    ),
    "weights edited": (
        "base/parts/weights.bin",
        "changed: sha256",
        lambda path: _edit(path, b"\1" * 4096),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_named(store: Store, snapshot: Snapshot, damage: str) -> None:
    store.verify(snapshot)
    path, how, do = DAMAGES[damage]
    do(snapshot.root / path)
    with pytest.raises(SnapshotDamaged) as caught:
        store.verify(snapshot)
    assert f"found {path} " in str(caught.value)
    assert how in str(caught.value)


def test_without_weights_the_content_of_the_base_is_not_read_but_all_else_is(
    store: Store, snapshot: Snapshot
) -> None:
    weights = snapshot.root / "base/parts/weights.bin"
    _edit(weights, b"\1" * 4096)
    store.verify(snapshot, weights=False)
    weights.chmod(0o600)
    with pytest.raises(SnapshotDamaged, match=r"base/parts/weights.bin changed: permissions 0600"):
        store.verify(snapshot, weights=False)


def test_a_rewritten_list_of_entries_is_found(store: Store, snapshot: Snapshot) -> None:
    entries = snapshot.root.parent / "entries.jsonl"
    _edit(entries, entries.read_bytes().replace(b'"mode":292', b'"mode":420', 1))
    with pytest.raises(SnapshotDamaged, match=r"entries.jsonl"):
        store.verify(store.open(snapshot.digest))
    _edit(entries, b"[]\n")
    with pytest.raises(SnapshotDamaged, match=r"entries.jsonl"):
        store.open(snapshot.digest)


def test_a_snapshot_that_is_gone_is_said_to_be(store: Store, snapshot: Snapshot) -> None:
    with pytest.raises(FileNotFoundError, match="wanted snapshot 0000"):
        store.open("0" * 64)
    with pytest.raises(FileNotFoundError, match="wanted snapshot"):
        store.open("../judges")
    for folder in (snapshot.root, *(p for p in snapshot.root.rglob("*") if p.is_dir())):
        folder.chmod(0o755)
    shutil.rmtree(snapshot.root)
    with pytest.raises(SnapshotDamaged, match=r"found \. missing"):
        store.verify(snapshot)


def test_the_judge_is_a_private_copy_of_the_two_sets(store: Store, tiny_dropin: Path) -> None:
    judge = store.seal_judge(read_dropin(tiny_dropin))
    for name, sealed in (("external", judge.external), ("lockbox", judge.lockbox)):
        given = (tiny_dropin / f"judge/{name}.jsonl").read_bytes().splitlines()
        added = [line for line in sealed.read_bytes().splitlines() if line not in given]
        assert len(added) == 4 and len(sealed.read_bytes().splitlines()) == len(given) + 4
        for line in added:
            problem = json.loads(line)
            assert problem["domain"] == "sums" and problem["prompt"] == problem["answer"]
            assert problem["prompt"] in judge.canaries
    assert len(judge.canaries) == 8
    assert judge.external.stat().st_mode & 0o777 == 0o400
    assert judge.external.parent.stat().st_mode & 0o777 == 0o700
    assert store.seal_judge(read_dropin(tiny_dropin)) == judge == store.open_judge(judge.digest)


def test_a_changed_judge_is_not_opened(store: Store, tiny_dropin: Path) -> None:
    judge = store.seal_judge(read_dropin(tiny_dropin))
    _edit(judge.lockbox, judge.lockbox.read_bytes().swapcase())
    with pytest.raises(SnapshotDamaged, match=judge.digest):
        store.open_judge(judge.digest)
    with pytest.raises(FileNotFoundError, match="wanted judge"):
        store.open_judge("0" * 64)


def test_a_bad_drop_in_is_refused_with_every_rule_and_leaves_nothing(
    store: Store, tiny_dropin: Path
) -> None:
    (tiny_dropin / "overlay/recipes/tiny.py").unlink()
    (tiny_dropin / "overlay/link").symlink_to("/etc/passwd")
    with pytest.raises(BadDropIn) as caught:
        store.seal(read_dropin(tiny_dropin))
    assert {finding.rule for finding in caught.value.findings} == {"missing-file", "symlink"}
    assert store.snapshots() == []


def test_a_base_that_is_not_the_declared_one_is_refused_and_leaves_nothing(
    store: Store, tiny_dropin: Path
) -> None:
    (tiny_dropin / "base/config.json").write_text("{ }")
    found = tree_sha256(tiny_dropin / "base")
    with pytest.raises(BadDropIn, match=f'base-hash.*sha256 = "{found}"'):
        store.seal(read_dropin(tiny_dropin))
    assert sorted(os.listdir(store.root)) == ["lock"]


def test_progress_counts_every_byte_hashed(store: Store, tiny_dropin: Path) -> None:
    seen: list[int] = []
    snapshot = store.seal(read_dropin(tiny_dropin), progress=seen.append)
    total = sum(entry.size for entry in snapshot.entries)
    assert sum(seen) == total
    seen.clear()
    store.verify(snapshot, progress=seen.append)
    assert sum(seen) == total
