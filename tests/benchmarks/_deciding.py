"""The code that decides what a campaign tries and believes, as a hash: figures are of one code."""

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

REPO = Path(__file__).parent.parent.parent
DECIDING = (
    *(f"agents/{name}.py" for name in ("axes", "candidates", "collector", "reviser", "sampler")),
    *(f"agents/{name}.py" for name in ("trust", "window")),
    *(f"policies/{name}.py" for name in ("confirmation", "decoupling", "evidence", "noise")),
    "policies/spending.py",
)


def hash_of(paths: Iterable[Path]) -> str:
    """16 digits over files: of Python what it does, whatever its comments and docstrings say."""
    whole = hashlib.sha256()
    for path in paths:
        if path.suffix == ".py":
            whole.update(ast.dump(without_docstrings(path)).encode())
        else:
            whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def deciding(*globs: str) -> list[Path]:
    """The files of the deciding code and of these patterns below the repository, in order."""
    paths = {path for glob in (*DECIDING, *globs) for path in REPO.glob(glob) if path.is_file()}
    return sorted(path for path in paths if "__pycache__" not in path.parts)


def without_docstrings(path: Path) -> ast.AST:
    """The syntax tree of a module, where a docstring is `pass`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body[0] = ast.Pass()
    return tree
