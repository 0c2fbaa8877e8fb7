"""The shape of a program: a hash that renaming, comments, layout and annotations do not change.

Names that a program binds itself, of variables, parameters, functions, classes, attributes, are
numbered in the order of their appearance, each scope having its own, so that programs which differ
by a consistent renaming have one shape. Constants, built-ins, imported names and methods of
built-in types stay as they are. What says nothing at run time is left out: docstrings and other
bare constants, comments, `pass` beside other statements, annotations (of a dataclass too, where
only their being there counts).

Attributes, and parameters that are passed by keyword to the program's own functions, have one
numbering for the whole program: whose attribute a name is, a text cannot say. Names within texts,
as for `getattr`, are texts.
"""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

_SKIPPED = ("annotation", "ctx", "kind", "returns", "simple", "type_comment", "type_ignores")
_SKIPPED += ("type_params",)  # a field that older Pythons do not have
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def shape(tree: ast.Module) -> str:
    """32 hex digits, from the tree of `without_texts`."""
    spelling = _Spelling(tree)
    spelling.put(tree, _Scope(tree, None))
    text = "".join(spelling.pieces)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(eq=False)
class _Scope:
    """A module, class, function or comprehension, and the names that it binds."""

    node: ast.AST
    parent: "_Scope | None"
    bound: set[str] = field(default_factory=set)
    outer: dict[str, bool] = field(default_factory=dict)  # global (True) and nonlocal names

    def __post_init__(self) -> None:
        node = self.node
        if isinstance(node, _COMPREHENSIONS):
            inside: list[ast.AST] = [generator.target for generator in node.generators]
        elif isinstance(node, ast.Lambda):
            inside = [node.args, node.body]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [node.args, *node.body]
        else:
            assert isinstance(node, ast.Module | ast.ClassDef)
            inside = list(node.body)
        for part in inside:
            self._bind(part, walrus_only=False)
        self.bound -= set(self.outer)

    def _bind(self, node: ast.AST, *, walrus_only: bool) -> None:
        """Note the names that are bound by a part of this scope; what is in others is theirs, but
        for `:=` in a comprehension.
        """
        if isinstance(node, ast.Global | ast.Nonlocal):
            self.outer |= dict.fromkeys(node.names, isinstance(node, ast.Global))
        if isinstance(node, ast.NamedExpr) and isinstance(self.node, _COMPREHENSIONS):
            return
        if isinstance(node, ast.NamedExpr) and walrus_only:
            self.bound.add(node.target.id)
        elif not walrus_only:
            self.bound |= set(_names_bound(node))
        if isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            return
        inner = walrus_only or isinstance(node, _COMPREHENSIONS)
        for child in ast.iter_child_nodes(node):
            self._bind(child, walrus_only=inner)

    def binder(self, name: str) -> "_Scope | None":
        """The scope whose name this is, seen from here. Classes hide theirs from what is inside."""
        scope: _Scope | None = self
        while scope is not None:
            if scope.outer.get(name):
                while scope.parent is not None:
                    scope = scope.parent
                return scope
            visible = scope is self or not isinstance(scope.node, ast.ClassDef)
            if visible and name in scope.bound:
                return scope
            scope = scope.parent
        return None


class _Spelling:
    """A tree, written node by node with numbers for its own names."""

    def __init__(self, tree: ast.Module) -> None:
        self.pieces: list[str] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self._scopes: list[_Scope] = []  # kept, so that no two have one id
        nodes = list(ast.walk(tree))
        self._imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self._own = {name for node in nodes for name in _names_bound(node)} - self._imported
        self._attributes = {name for node in nodes for name in _attributes(node)}
        self._keywords = {
            keyword.arg
            for node in nodes
            if isinstance(node, ast.Call) and self._is_own(node.func)
            for keyword in node.keywords
            if keyword.arg is not None
        }

    def put(self, node: ast.AST, scope: _Scope) -> None:
        """Write a node that stands in this scope."""
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            node = ast.Assign([node.target], node.value)
        self.pieces.append(f"({type(node).__name__}")
        inner = scope
        if isinstance(node, _SCOPES):
            inner = _Scope(node, scope)
            self._scopes.append(inner)
        for name, value in ast.iter_fields(node):
            if name not in _SKIPPED:
                self.pieces.append(f" {name}=")
                self._put_field(node, name, value, scope, inner)
        self.pieces.append(")")

    def _put_field(
        self, node: ast.AST, name: str, value: object, scope: _Scope, inner: _Scope
    ) -> None:
        match node:
            case ast.Name(id=text):
                self._put_name(text, scope)
            case ast.Constant():
                self.pieces.append(_constant(value))
            case ast.Attribute(attr=text) if name == "attr":
                self._put_shared(text)
            case ast.Call(keywords=keywords) if name == "keywords" and self._is_own(node.func):
                for keyword in keywords:
                    self._put_shared(keyword.arg or "**")
                    self.put(keyword.value, scope)
            case ast.MatchClass(kwd_attrs=texts) if name == "kwd_attrs":
                for text in texts:
                    self._put_shared(text)
            case ast.Global(names=texts) | ast.Nonlocal(names=texts):
                for text in texts:
                    self._put_name(text, scope)
            case _ if isinstance(value, str) and not isinstance(node, _FREE):
                self._put_name(value, scope)
            case _ if isinstance(node, _COMPREHENSIONS) and name == "generators":
                assert isinstance(value, list)
                for number, generator in enumerate(value):
                    self._put_generator(generator, scope if number == 0 else inner, inner)
            case _ if isinstance(value, ast.arguments):
                self._put_arguments(value, scope, inner)
            case _:
                within = inner if name in ("body", "elt", "key", "value") else scope
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, ast.AST):
                        self.put(part, within)
                    else:
                        self.pieces.append(f"{part!r}")

    def _put_generator(self, node: ast.comprehension, outside: _Scope, inner: _Scope) -> None:
        self.put(node.target, inner)
        self.put(node.iter, outside)
        for condition in node.ifs:
            self.put(condition, inner)
        self.pieces.append(f"{node.is_async}")

    def _put_arguments(self, node: ast.arguments, outside: _Scope, inner: _Scope) -> None:
        """Parameters are of the function, their defaults of where it stands."""
        for name, value in ast.iter_fields(node):
            self.pieces.append(f" {name}=")
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.arg):
                    self._put_name(part.arg, inner)
                elif isinstance(part, ast.AST):
                    self.put(part, outside)
                else:
                    self.pieces.append(f"{part!r}")

    def _put_name(self, name: str, scope: _Scope) -> None:
        binder = scope.binder(name)
        if binder is None or name in self._imported:
            self.pieces.append(f"'{name}'")
        elif name in self._keywords or isinstance(binder.node, ast.ClassDef):
            self._put_shared(name)
        else:
            self.pieces.append(self._number(id(binder), name))

    def _put_shared(self, name: str) -> None:
        shared = name in self._attributes or name in self._keywords
        self.pieces.append(self._number(0, name) if shared else f"'{name}'")

    def _number(self, scope: int, name: str) -> str:
        return f"#{self._numbers.setdefault((scope, name), len(self._numbers))}"

    def _is_own(self, function: ast.expr) -> bool:
        """Whether what is called is the program's own, as far as its name tells."""
        if isinstance(function, ast.Name):
            return function.id in self._own
        return isinstance(function, ast.Attribute) and function.attr in self._attributes


# Nodes whose texts are no names that a program binds.
_FREE = (ast.ImportFrom, ast.alias, ast.keyword)


def _names_bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds by itself, imports aside."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name


def _attributes(node: ast.AST) -> Iterator[str]:
    """The names of attributes that a node gives to objects of the program's own classes."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield node.attr
    if isinstance(node, ast.ClassDef):
        yield from (name for name in _Scope(node, None).bound if name[:2] != "__")


def _constant(value: object) -> str:
    # Hexadecimal: an int may have more digits than Python writes.
    return f"int {value:x}" if type(value) is int else f"{type(value).__name__} {value!r}"
