"""The constants of a recipe: literal top-level assignments, read and rewritten by syntax tree.

    LEARNING_RATE = 3e-3        # such as this one; also annotated, also a list or a tuple of them

A constant is rewritten in one spelling, that of its value; every other byte of the file stays.
"""

import ast
import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from substrate.dropin import Constant, Overrides
from substrate.editable import BadEdit


@dataclass(frozen=True)
class ConstantEdit:
    """What an edit did to the constants of one file."""

    values: dict[str, Constant]  # new values of constants, by name
    rest: str  # the edited text with its constants as they were spelled before


def read_constants(text: str) -> dict[str, Constant]:
    """Top-level literal assignments, plain and annotated; tuples come as lists.

    A name that is assigned more than once is left out. Raises BadEdit when `text` is not Python.
    """
    return {name: _value(node) for name, node in _literals(text).items()}


def rewrite_constants(text: str, values: Mapping[str, Constant]) -> str:
    """`text` with those constants rewritten.

    The new value must have the type of the literal that stands there; an int will do for a float,
    anything where None stands, and for a list a list of what some element of it would accept.
    Raises BadEdit for an unknown name, what is not a literal, a wrong type.
    """
    literals = _literals(text)
    spans: list[tuple[ast.expr, str]] = []
    for name, value in values.items():
        if name not in literals:
            raise BadEdit(
                f"wanted one literal top-level assignment of `{name}`, found none; the constants "
                f"there are {sorted(literals)}"
            )
        if not _accepts(literals[name], value):
            there = _value(literals[name])
            raise BadEdit(
                f"wanted for `{name}` a value of the type of {there!r} "
                f"({type(there).__name__}), found {value!r} ({type(value).__name__})"
            )
        spans.append((literals[name], _spell(value, literals[name])))
    return _splice(text, spans)


def set_constants(root: Path, overrides: Overrides) -> None:
    """Rewrite constants in the files of a tree: all of them, or none when BadEdit is raised.

    Raises BadEdit for what `rewrite_constants` refuses, and for a file that is not there, is no
    UTF-8 text, or is a link or without permission to write, as sealed files are.
    """
    rewritten: dict[Path, str] = {}
    for name, values in overrides.items():
        if not values:
            continue
        path = root / name
        if not path.is_file():
            raise BadEdit(f"wanted to override constants of {name}, found no such file")
        is_own = path.resolve() == root.resolve() / name
        if not is_own or not path.stat().st_mode & stat.S_IWUSR:
            raise BadEdit(
                f"wanted to override constants of an editable file, found {name}: sealed, or "
                "outside the fork"
            )
        rewritten[path] = _rewritten(name, path.read_bytes(), values)
    for path, text in rewritten.items():
        path.write_bytes(text.encode())


def override(files: Mapping[str, bytes], overrides: Overrides) -> dict[str, bytes]:
    """`set_constants` for files held in memory, by path."""
    changed = dict(files)
    for name, values in overrides.items():
        if not values:
            continue
        if name not in files:
            raise BadEdit(f"wanted to override constants of {name}, found no such editable file")
        changed[name] = _rewritten(name, files[name], values).encode()
    return changed


def changed_constants(before: str, prepared: str, edited: str) -> ConstantEdit:
    """Split an edit of a file into values of constants and the rest of it.

    `before` is the text without any override, `prepared` the one that was edited: it differs from
    `before` in constants only. Setting those values again in the rest of the edit gives `edited`,
    but for the spelling of a number or a string. Text that is not Python has no constants.
    """
    try:
        old, known, new = _literals(before), _literals(prepared), _literals(edited)
    except BadEdit:
        return ConstantEdit({}, edited)
    values: dict[str, Constant] = {}
    spans: list[tuple[ast.expr, str]] = []
    for name in sorted(old.keys() & known.keys() & new.keys()):
        value = _value(new[name])
        if not _accepts(old[name], value) or not _would_be(value, old[name], new[name]):
            continue
        spelled = _source(before, old[name])
        if _stands_alone(spelled):
            spans.append((new[name], spelled))
        if _exact(new[name]) != _exact(known[name]):
            values[name] = value
    return ConstantEdit(values, _splice(edited, spans))


def same_constants(one: str, other: str) -> set[str]:
    """Names of the constants that have the same value, types and brackets included, in both."""
    try:
        ones, others = _literals(one), _literals(other)
    except BadEdit:
        return set()
    shared = ones.keys() & others.keys()
    return {name for name in shared if _exact(ones[name]) == _exact(others[name])}


def is_same_program(one: bytes, other: bytes) -> bool:
    """Whether two files of Python do the same: but for comments, docstrings, spaces, spelling."""
    try:
        return _program(one) == _program(other)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return one == other


def _program(source: bytes) -> str:
    """The syntax tree of a program, without the texts that stand alone unless it asks for them."""
    tree = ast.parse(source)
    if b"__doc__" not in source:
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = [part for part in node.body if not _is_text(part)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def _rewritten(name: str, content: bytes, values: Mapping[str, Constant]) -> str:
    try:
        return rewrite_constants(content.decode(), values)
    except UnicodeDecodeError as error:
        raise BadEdit(f"wanted to override constants of {name}, found no UTF-8: {error}") from error
    except BadEdit as error:
        raise BadEdit(f"{name}: {error}") from error


def _literals(text: str) -> dict[str, ast.expr]:
    try:
        body = ast.parse(text).body
    # Besides SyntaxError: null bytes, and what nests deeper than the parser goes.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadEdit(f"wanted Python source, found {error!r}") from error
    found: dict[str, ast.expr] = {}
    assigned: list[str] = []
    for statement in body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            continue
        assigned += [
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if _is_literal(value):
                found[name] = value
    return {name: node for name, node in found.items() if assigned.count(name) == 1}


def _is_literal(node: ast.expr, depth: int = 0) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=value)):
            return type(value) is int or (isinstance(value, float) and _is_sayable(value))
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return _is_sayable(value)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return depth < 20 and all(_is_literal(element, depth + 1) for element in elements)
    return False


def _value(node: ast.expr) -> Constant:
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element) for element in node.elts]
    value: Constant = ast.literal_eval(node)
    return value


def _accepts(literal: ast.expr, value: Constant) -> bool:
    if not _is_sayable(value):
        return False
    if isinstance(literal, ast.List | ast.Tuple):
        return isinstance(value, list) and all(
            _element(literal, index, element) is not None or not literal.elts
            for index, element in enumerate(value)
        )
    there = _value(literal)
    if isinstance(there, float):
        return type(value) in (int, float)
    return there is None or type(value) is type(there)


def _element(literal: ast.List | ast.Tuple, index: int, value: Constant) -> ast.expr | None:
    """The element of a list that a new element takes its type from: that of its place, or any."""
    near = literal.elts[index : index + 1] + literal.elts
    return next((node for node in near if _accepts(node, value)), None)


def _spell(value: Constant, literal: ast.expr | None) -> str:
    """Source text of a value in the place of a literal, whose type and brackets it takes."""
    if isinstance(value, list):
        parts = [
            _spell(
                element,
                _element(literal, index, element)
                if isinstance(literal, ast.List | ast.Tuple)
                else None,
            )
            for index, element in enumerate(value)
        ]
        if isinstance(literal, ast.Tuple):
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        return f"[{', '.join(parts)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and literal is not None and isinstance(_value(literal), float):
        return repr(float(value))
    return repr(value)


def _would_be(value: Constant, literal: ast.expr, edited: ast.expr) -> bool:
    """Whether `value`, set where `literal` stands, is what `edited` says."""
    return repr(ast.literal_eval(_spell(value, literal))) == _exact(edited)


def _exact(literal: ast.expr) -> str:
    return repr(ast.literal_eval(literal))  # tells 1 from 1.0 and a list from a tuple


def _stands_alone(source: str) -> bool:
    """Whether it needs no brackets around it, as strings joined over several lines do."""
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return False
    return True


def _source(text: str, node: ast.expr) -> str:
    start, end = _span(_line_starts(text), node)
    return text.encode()[start:end].decode()


def _splice(text: str, spans: list[tuple[ast.expr, str]]) -> str:
    """`text` with the source of some of its nodes replaced."""
    starts = _line_starts(text)
    content = text.encode()
    places = sorted((_span(starts, node), spelled) for node, spelled in spans)
    for (start, end), spelled in reversed(places):
        content = content[:start] + spelled.encode() + content[end:]
    return content.decode()


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(starts: list[int], node: ast.expr) -> tuple[int, int]:
    """Byte offsets of a node; ast counts lines from 1 and columns in bytes of UTF-8."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return (
        starts[node.lineno - 1] + node.col_offset,
        starts[node.end_lineno - 1] + node.end_col_offset,
    )


def _is_sayable(value: Constant) -> bool:
    """Whether source can say it and JSON too: finite numbers, strings without lone surrogates."""
    if isinstance(value, list):
        return all(map(_is_sayable, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or not re.search("[\ud800-\udfff]", value)
