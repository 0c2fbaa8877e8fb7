"""The template of a drop-in: what it leaves to fill in, and that nothing else is wrong with it."""

import json
from pathlib import Path

import pytest

from substrate.check import check_dropin
from substrate.dropin import BadDropIn, read_dropin
from substrate.store import Store, tree_sha256
from substrate.template import write_template


def test_a_template_passes_the_check_once_its_base_is_filled_in(tmp_path: Path) -> None:
    folder = tmp_path / "my-model.v2"
    written = write_template(folder, "my-model.v2")
    assert sorted(written) == sorted(path for path in folder.rglob("*") if path.is_file())
    assert {finding.rule for finding in check_dropin(folder)} == {"missing-file", "fill-in-left"}

    base = tmp_path / "weights"
    base.mkdir()
    (base / "model.safetensors").write_bytes(bytes(64))
    manifest = folder / "substrate.toml"
    manifest.write_text(manifest.read_text().replace('path = "base"', f'path = "{base}"'))
    assert {finding.rule for finding in check_dropin(folder)} == {"base-hash", "fill-in-left"}
    text = manifest.read_text()
    text = text.replace("FILL IN: where the weights come from, with the revision", "made here")
    manifest.write_text(text.replace("FILL IN: SPDX identifier, such as Apache-2.0", "MIT"))
    (finding,) = check_dropin(folder)
    assert finding.rule == "base-hash"
    manifest.write_text(manifest.read_text().replace("0" * 64, tree_sha256(base)))
    assert check_dropin(folder) == []
    store = Store(tmp_path / "store")
    store.verify(store.seal(read_dropin(folder)))


def test_each_set_of_a_template_has_two_problems_of_its_own(tmp_path: Path) -> None:
    write_template(tmp_path / "new", "new")
    prompts: list[str] = []
    for name in ("target", "dev", "judge/external", "judge/lockbox"):
        lines = (tmp_path / "new" / f"{name}.jsonl").read_text().splitlines()
        problems = [json.loads(line) for line in lines]
        assert [set(problem) for problem in problems] == [{"id", "domain", "prompt", "answer"}] * 2
        prompts += [problem["prompt"] for problem in problems]
    assert len(set(prompts)) == 8


def test_a_template_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(BadDropIn, match="folder-exists"):
        write_template(tmp_path / "there", "there")
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("name", ["", "Upper", "-dash", "a/b", "a b", "x" * 64, "a\n"])
def test_a_name_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(BadDropIn, match="bad-value"):
        write_template(tmp_path / "new", name)
    assert list(tmp_path.iterdir()) == []
