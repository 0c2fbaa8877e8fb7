"""The screen: which programs are refused for their text, before they run.

The screen is policy. It keeps tasks to pure, deterministic functions and tells a model early, with
a reason, what it may not write. It is no boundary: whoever slips past it is still in the jail
(training/zygote.py), and gains the choice of what value to report.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ENTRY = "f"  # the function that a program defines
MOST_SOURCE_BYTES = 65536

# Deterministic modules that reach neither files, nor time, nor other programs.
ALLOWED_IMPORTS = frozenset(
    [
        *("__future__", "abc", "array", "base64", "binascii", "bisect", "cmath", "collections"),
        *("collections.abc", "contextlib", "copy", "dataclasses", "decimal", "difflib", "enum"),
        *("fractions", "functools", "graphlib", "heapq", "html", "itertools", "json", "keyword"),
        *("math", "numbers", "operator", "re", "statistics", "string", "struct", "textwrap"),
        *("typing", "unicodedata", "zlib"),
    ]
)

# Built-in functions that a program has no use for. A program may give these names to things of its
# own, as many call a parameter `input`; what it did not name itself, it does not get.
BANNED_BUILTINS = frozenset(
    [
        *("breakpoint", "compile", "copyright", "credits", "dir", "eval", "exec", "globals"),
        *("help", "input", "license", "locals", "open", "vars"),
    ]
)

# Attributes that lead from an object to the interpreter: frames, code, tracebacks, classes; and
# two of the library's that look names up and evaluate texts.
BANNED_ATTRIBUTES = frozenset(
    [
        *("ag_await", "ag_code", "ag_frame", "cr_await", "cr_code", "cr_frame", "cr_origin"),
        *("f_back", "f_builtins", "f_code", "f_globals", "f_locals", "f_trace", "gi_code"),
        *("gi_frame", "gi_yieldfrom", "mro", "tb_frame", "tb_lasti", "tb_next", "with_traceback"),
        *("_convert_", "_evaluate"),
    ]
)

# Names of the form __x__ that a program may read, call or assign. As the name of a method every
# other one is allowed too.
ALLOWED_DUNDERS = frozenset(
    f"__{name}__"
    for name in (
        *("name", "qualname", "doc", "class", "slots", "init", "new", "post_init", "call"),
        *("str", "repr", "format", "bytes", "hash", "bool", "int", "float", "complex", "index"),
        *("eq", "ne", "lt", "le", "gt", "ge", "len", "iter", "next", "reversed", "contains"),
        *("getitem", "setitem", "delitem", "missing", "enter", "exit", "copy", "deepcopy"),
        *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "neg"),
        *("lshift", "rshift", "and", "or", "xor", "pos", "abs", "invert", "round", "trunc"),
        *("floor", "ceil", "radd", "rsub", "rmul", "rmatmul", "rtruediv", "rfloordiv", "rmod"),
        *("rdivmod", "rpow", "rlshift", "rrshift", "rand", "ror", "rxor", "iadd", "isub", "imul"),
        *("imatmul", "itruediv", "ifloordiv", "imod", "ipow", "ilshift", "irshift", "iand"),
        *("ior", "ixor", "members", "wrapped", "total", "annotations", "init_subclass"),
        *("set_name", "class_getitem"),
    )
)

# In a text these words have no use but to get at an attribute behind the screen's back.
_TELLTALE = re.compile(
    r"__(base|bases|builtins|closure|code|dict|getattribute|globals|import|loader|match_args|mro"
    r"|reduce|reduce_ex|self|spec|subclasses|traceback)__"
)


class Refused(Exception):
    """A program that does not get to run. `kind` is its verdict, the message says why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class Reading:
    """A program that may run."""

    code: Any  # the compiled module
    doubtful: bool  # it may look at hashes or addresses, which may agree by chance in two runs


def read_program(source: str, *, screen: bool) -> Reading:
    """Parse, screen (if wanted) and compile a program. Raises Refused.

    The parser is C code that may crash or never end on hostile text: call this where that is
    bearable.
    """
    try:
        tree = ast.parse(source, "<program>")
        sight = _look_over(tree)
        if screen:
            sight.check()
        if not _defines_entry(tree):
            raise Refused("no_entry_point", f"wanted a function {ENTRY} at the top level")
        code = compile(tree, "<program>", "exec", dont_inherit=True)
        return Reading(code, sight.doubtful)
    except (SyntaxError, ValueError, RecursionError, OverflowError, SystemError) as error:
        raise Refused("syntax_error", f"{type(error).__name__}: {error}"[:200]) from None
    except MemoryError:  # also what the parser says when its own stack is full
        raise Refused("syntax_error", "MemoryError: too complex to parse") from None


def is_public(name: str) -> bool:
    """Whether a program may name this attribute of an object."""
    return name not in BANNED_ATTRIBUTES and not _is_banned_dunder(name)


@dataclass
class _Sight:
    """What one walk over a program saw."""

    imports: list[str]
    attributes: set[str]
    read: set[str]  # names
    bound: set[str]
    telltale: str | None = None  # in a text
    combines: bool = False  # by an operator that sets share with keys()
    hashes: bool = False

    @property
    def doubtful(self) -> bool:
        views = self.combines and not self.attributes.isdisjoint(("keys", "items"))
        hashed = "__hash__" in self.attributes or not self.read.isdisjoint(_HASHED)
        return self.hashes or views or hashed

    def check(self) -> None:
        """Raise Refused for the first thing that is not allowed, imports before all else."""
        for name in self.imports:
            if name not in ALLOWED_IMPORTS:
                raise Refused("banned_import", f"import of {name}")
        for name in sorted((self.read - self.bound) & BANNED_BUILTINS):
            raise Refused("banned_construct", f"the name {name}")
        for name in sorted(self.read | self.bound):
            if _is_banned_dunder(name):
                raise Refused("banned_construct", f"the name {name}")
        for name in sorted(self.attributes):
            if not is_public(name):
                raise Refused("banned_construct", f"the attribute {name}")
        if self.telltale is not None:
            raise Refused("banned_construct", f"{self.telltale} in a text")


_HASHED = ("set", "frozenset", "id", "hash", "object")


def _look_over(tree: ast.Module) -> _Sight:
    sight = _Sight([], set(), set(), set())
    for node in ast.walk(tree):
        look = _LOOKS.get(type(node))
        if look is not None:
            look(sight, node)
    return sight


def _see_name(sight: _Sight, node: ast.Name) -> None:
    (sight.read if type(node.ctx) is ast.Load else sight.bound).add(node.id)


def _see_attribute(sight: _Sight, node: ast.Attribute) -> None:
    sight.attributes.add(node.attr)


def _see_constant(sight: _Sight, node: ast.Constant) -> None:
    text = node.value
    if isinstance(text, str) and "__" in text and (found := _TELLTALE.search(text)):
        sight.telltale = found[0]


def _see_parameter(sight: _Sight, node: ast.arg) -> None:
    sight.bound.add(node.arg)


def _see_function(sight: _Sight, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    # Any special method may be defined; reading one is another matter.
    if not _is_dunder(node.name) or node.name == "__match_args__":
        sight.bound.add(node.name)


def _see_class(sight: _Sight, node: ast.ClassDef) -> None:
    sight.bound.add(node.name)


def _see_import(sight: _Sight, node: ast.Import) -> None:
    for alias in node.names:
        sight.imports.append(alias.name)
        sight.bound.add(alias.asname or alias.name.partition(".")[0])


def _see_import_from(sight: _Sight, node: ast.ImportFrom) -> None:
    sight.imports.append("." * node.level + (node.module or ""))
    sight.attributes.update(alias.name for alias in node.names)
    sight.bound.update(alias.asname or alias.name for alias in node.names)


def _see_class_pattern(sight: _Sight, node: ast.MatchClass) -> None:
    sight.attributes.update(node.kwd_attrs)


def _see_capture(sight: _Sight, node: ast.MatchAs | ast.MatchStar | ast.ExceptHandler) -> None:
    sight.bound.add(node.name or "_")


def _see_mapping_pattern(sight: _Sight, node: ast.MatchMapping) -> None:
    sight.bound.add(node.rest or "_")


def _see_scope(sight: _Sight, node: ast.Global | ast.Nonlocal) -> None:
    sight.bound.update(node.names)


def _see_set(sight: _Sight, node: ast.Set | ast.SetComp) -> None:
    sight.hashes = True


def _see_operator(sight: _Sight, node: ast.operator) -> None:
    sight.combines = True


_LOOKS: dict[type[ast.AST], Callable[[_Sight, Any], None]] = {
    ast.Name: _see_name,
    ast.Attribute: _see_attribute,
    ast.Constant: _see_constant,
    ast.arg: _see_parameter,
    ast.FunctionDef: _see_function,
    ast.AsyncFunctionDef: _see_function,
    ast.ClassDef: _see_class,
    ast.Import: _see_import,
    ast.ImportFrom: _see_import_from,
    ast.MatchClass: _see_class_pattern,
    ast.MatchAs: _see_capture,
    ast.MatchStar: _see_capture,
    ast.ExceptHandler: _see_capture,
    ast.MatchMapping: _see_mapping_pattern,
    ast.Global: _see_scope,
    ast.Nonlocal: _see_scope,
    ast.Set: _see_set,
    ast.SetComp: _see_set,
    ast.BitAnd: _see_operator,
    ast.BitOr: _see_operator,
    ast.BitXor: _see_operator,
    ast.Sub: _see_operator,
}


def _is_dunder(name: str) -> bool:
    return name[:2] == "__" and name[-2:] == "__"


def _is_banned_dunder(name: str) -> bool:
    return _is_dunder(name) and name not in ALLOWED_DUNDERS


def _defines_entry(tree: ast.Module) -> bool:
    """Whether anything outside of other functions and classes binds the entry's name.

    Whether to a function, its run will say.
    """
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name == ENTRY:
                return True
            continue
        if isinstance(node, ast.Name) and node.id == ENTRY and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (ENTRY, "*"):
            return True
        pending += ast.iter_child_nodes(node)
    return False
