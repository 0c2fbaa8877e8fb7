"""The program's digest: any module that decides is part of it, and nothing else is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("program")
    for room in ("agents", "flows", "policies", "substrate"):
        leave = shutil.ignore_patterns("__pycache__", "library", "reference")
        shutil.copytree(REPO / room, copy / room, ignore=leave)
    return copy


def digest(copy: Path) -> str:
    program = "from flows.program import program_sha256; print(program_sha256())"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=copy, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("agents/reviser.py", True),
        ("policies/clauses/belief.py", True),
        ("policies/constitution.md", True),
        ("policies/prices.toml", False),
        ("substrate/measure.py", True),
    ],
)
def test_another_program_has_another_digest(copy: Path, file: str, counts: bool) -> None:
    before, text = digest(copy), (copy / file).read_text()
    (copy / file).write_text(text + "\n# Another word.\n")
    assert (digest(copy) != before) == counts
    (copy / file).write_text(text)
    assert digest(copy) == before
