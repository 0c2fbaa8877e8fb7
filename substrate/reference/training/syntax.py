"""A program's syntax tree, as its shape and its complexity are taken from it.

Only programs that the jail has parsed, compiled and run come here (training/executor.py): to parse
a stranger's text for the first time is nothing for a trainer.
"""

import ast
import contextlib
import threading
import warnings
from collections.abc import Iterator

from training.screen import ENTRY

MOST_DEPTH = 64  # of nodes: no more than what the walks over a tree can recurse into

_one_at_a_time = threading.Lock()


class TooDeep(ValueError):
    """This program is nested deeper than MOST_DEPTH."""


def read_tree(program: str) -> ast.Module:
    """The tree of a program. Raises TooDeep, and SyntaxError for what is no program."""
    with unwarned():
        tree = ast.parse(program)
    depth = depth_of(tree)
    if depth > MOST_DEPTH:
        raise TooDeep(f"wanted at most {MOST_DEPTH} nodes from root to leaf, found {depth}")
    return tree


def without_texts(program: str) -> ast.Module:
    """The tree without docstrings and other statements that are a bare constant, or `pass`.

    A body of nothing else is one `pass`, an `else` of nothing else goes. Raises as `read_tree`.
    """
    tree = read_tree(program)
    for node in ast.walk(tree):
        for name, body in bodies(node):
            something = [statement for statement in body if not _says_nothing(statement)]
            if not something and name == "body" and node is not tree:
                something = [ast.copy_location(ast.Pass(), body[0])]
            body[:] = something
    return tree


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Parse what a model wrote without Python's opinion on its escapes. Filters are the whole
    process's, so that one thread at a time is in here.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def bodies(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The lists of statements that are parts of a node, to be changed in place, and their names."""
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody") and isinstance(value, list):
            yield name, value


def depth_of(tree: ast.AST) -> int:
    """Nodes on the longest way from the root to a leaf, both included."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [child for node in level for child in parts(node)]
    return depth


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node but for Load, Store and Del, which say nothing of their own."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context):
            yield child


def entry_of(tree: ast.Module) -> ast.FunctionDef | None:
    """The last plain definition of the entry at the top level."""
    for statement in reversed(tree.body):
        if isinstance(statement, ast.FunctionDef) and statement.name == ENTRY:
            return statement
    return None


def parameters_of(function: ast.FunctionDef) -> set[str]:
    """The names of a function's parameters."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {parameter.arg for parameter in every if parameter is not None}


def reads_its_arguments(function: ast.FunctionDef) -> bool:
    """Whether the body reads the name of a parameter."""
    wanted = parameters_of(function)
    names = (node for statement in function.body for node in ast.walk(statement))
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in wanted
        for node in names
    )


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)
