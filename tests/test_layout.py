"""The rules of the house that no linter knows: names, borders, sizes and docstrings."""

import ast
import importlib.util
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("flows", "substrate", "agents", "policies")
REFERENCE = ROOT / "substrate" / "reference"
REFERENCE_NAMES = ("recipes", "training", "evaluation")
# Folders inside the rooms that hold programs and scripts, not packages.
NOT_PACKAGES = (REFERENCE, ROOT / "substrate" / "library", ROOT / "policies" / "migrations")
EMPTY_NAMES = {"common", "core", "helper", "helpers", "manager", "util", "utils"}
MOST_LINES = 450
SUBSTRATE_MAY_IMPORT = {"substrate", "pydantic"}
BROUGHT_BY_PYDANTIC = {"pydantic_core", "typing_extensions"}

FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
OUTSIDE_PACKAGES = [f for f in FILES if any(f.is_relative_to(folder) for folder in NOT_PACKAGES)]
MODULES = [file for file in FILES if file not in OUTSIDE_PACKAGES]
IN_FORKS = [f for f in FILES if f.is_relative_to(REFERENCE)]
IN_FORKS += sorted((ROOT / "substrate" / "library").glob("*/overlay/**/*.py"))
IN_FORKS += sorted((ROOT / "tests" / "substrates").glob("*/overlay/**/*.py"))


@pytest.mark.parametrize("name", [*ROOMS, *REFERENCE_NAMES])
def test_an_import_name_is_ours_alone(name: str) -> None:
    owners = set(packages_distributions().get(name, ())) - {"seedbed"}
    assert not owners, f"`import {name}` is ours, but {owners} installs it too: uninstall that"
    home = (ROOT if name in ROOMS else REFERENCE) / name
    if not any(home.rglob("*.py")):
        pytest.skip(f"{home.relative_to(ROOT)} holds no Python file")
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations is not None
    # A set: processes that run tests side by side have the same folder in their path twice.
    assert {Path(p).resolve() for p in spec.submodule_search_locations} == {home}


def test_the_docker_folder_does_not_shadow_the_docker_sdk() -> None:
    assert not list((ROOT / "docker").rglob("*.py"))


def test_no_file_in_flows_bears_the_name_of_another_package() -> None:
    # Prefect puts the folder of a flow's file first on sys.path, so such a file would shadow it.
    ours = {path.stem for path in (ROOT / "flows").iterdir()} - {"__init__", "__pycache__"}
    taken = sys.stdlib_module_names | packages_distributions().keys()
    assert not ours & taken


def test_every_module_is_found_by_the_import_contracts() -> None:
    # A folder without __init__.py is invisible to import-linter, whatever it imports.
    orphans = {
        folder.relative_to(ROOT)
        for module in MODULES
        for folder in module.parents
        if folder != ROOT and folder.is_relative_to(ROOT) and not (folder / "__init__.py").exists()
    }
    assert not orphans


def test_imports_keep_to_the_contracts() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    run = _python("-c", program, "--no-cache", "--no-logo")
    assert run.returncode == 0, run.stdout + run.stderr


def test_substrate_imports_only_the_standard_library_and_pydantic() -> None:
    allowed = SUBSTRATE_MAY_IMPORT | BROUGHT_BY_PYDANTIC | sys.stdlib_module_names
    modules = [module for module in MODULES if module.is_relative_to(ROOT / "substrate")]
    assert [(file, name) for file, name in _imports(modules) if name not in allowed] == []


def test_nothing_that_runs_in_a_fork_imports_the_rooms() -> None:
    assert [(file, name) for file, name in _imports(IN_FORKS) if name in ROOMS] == []


def test_the_rooms_import_without_torch() -> None:
    names = [".".join(module.relative_to(ROOT).with_suffix("").parts) for module in MODULES]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, f'{name} brings torch'\n"
    )
    run = _python("-c", program, *names)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_says_what_it_is_and_fits_in_one_sitting(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "wanted a docstring: one sentence on what this is"
    lines = source.count("\n")
    assert lines <= MOST_LINES, f"{lines} lines, at most {MOST_LINES}: give the second noun a file"


def test_no_module_has_a_name_that_says_nothing() -> None:
    paths = [file.relative_to(ROOT).with_suffix("") for file in FILES]
    assert [p for p in paths for part in p.parts if EMPTY_NAMES & set(part.split("_"))] == []


def _imports(files: list[Path]) -> list[tuple[str, str]]:
    """(file, top-level name) of each absolute import, those inside functions too."""
    found: set[tuple[str, str]] = set()
    for file in files:
        where = str(file.relative_to(ROOT))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {(where, alias.name.partition(".")[0]) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add((where, node.module.partition(".")[0]))
    return sorted(found)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
