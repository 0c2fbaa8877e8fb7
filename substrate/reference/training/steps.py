"""Executed steps: a program that counts its own statements as it runs, in the same jail as ever.

A step is a statement executed in a call of the entry, an element that a comprehension goes over or
a call of a `lambda`; what a built-in function does inside counts as nothing. The statements of the
module itself run before the call and are not counted. Unlike the length of a program, steps cannot
be had by writing more of it.

The counter is Python in the program's own text, so that nothing of the jail has to know of it, and
a program that guesses its name could set it. Steps are a metric and no reward.
"""

import ast
from dataclasses import dataclass

from training.screen import ENTRY
from training.syntax import bodies, read_tree


@dataclass(frozen=True)
class CountingProgram:
    source: str
    keyword: str  # with this argument, True, the entry returns the number of steps, not its value


def counting(program: str) -> CountingProgram | None:
    """The same program, which can tell its steps; None where it cannot be written.

    It does what the program does, at two to three times the cost. Raises as `read_tree` does.
    """
    name = "steps"
    while name in program:
        name += "_"
    tree = read_tree(program)
    _count(tree, name)
    futures = 0
    while futures < len(tree.body) and _is_future(tree.body[futures]):
        futures += 1
    first, rest = tree.body[:futures], tree.body[futures:]
    if first and isinstance(first[0], ast.Expr):
        del first[0]  # the docstring, which would stand before the first import
    try:
        pieces = [ast.unparse(ast.Module(part, [])) for part in (first, rest)]
    except (ValueError, RecursionError):  # an f-string, or an int, that Python cannot write
        return None
    before, after = _BEFORE.replace("STEPS", name), _AFTER.replace("STEPS", name)
    return CountingProgram(f"{pieces[0]}\n{before}\n{pieces[1]}\n{after}", name)


def _count(tree: ast.Module, name: str) -> None:
    for node in list(ast.walk(tree)):
        for _, body in bodies(node):
            if node is not tree:
                body[:] = [part for one in body for part in (_tick(name), one)]
        if isinstance(node, ast.comprehension) and not node.is_async:
            node.iter = _call(f"{name}_each", node.iter)
        if isinstance(node, ast.Lambda):
            node.body = _call(f"{name}_one", node.body)


def _tick(name: str) -> ast.stmt:
    (statement,) = ast.parse(f"{name}_count[0] += 1").body
    return statement


def _call(name: str, argument: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def _is_future(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


_BEFORE = """
STEPS_count = [0]
def STEPS_one(value):
    STEPS_count[0] += 1
    return value
def STEPS_each(values):
    for value in values:
        STEPS_count[0] += 1
        yield value
"""

# The entry's own calls of itself meet the program's function: only calls from outside start anew.
_AFTER = f"""
STEPS_entry = {ENTRY}
def {ENTRY}(*arguments, STEPS=False, **named):
    global {ENTRY}
    outermost, {ENTRY} = {ENTRY}, STEPS_entry
    STEPS_count[0] = 0
    try:
        value = STEPS_entry(*arguments, **named)
    finally:
        {ENTRY} = outermost
    return STEPS_count[0] if STEPS else value
"""
