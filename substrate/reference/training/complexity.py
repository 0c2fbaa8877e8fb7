"""Complexity: numbers that say how large and how involved a program is.

They are taken from the syntax tree, without docstrings and comments, so that talk is not taken for
substance; `steps` alone is of a run, and no spelling can blow it up.
"""

import ast
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from training.syntax import depth_of, parts


@dataclass(frozen=True)
class Complexity:
    depth: int  # nodes of the syntax tree from the root to the deepest leaf
    nodes: int  # of the syntax tree, without Load, Store and Del
    cyclomatic: int  # 1 and every decision of the whole program (McCabe, IEEE TSE 2, 1976)
    cognitive: int  # breaks in the flow, each dearer the deeper it is nested (Campbell, 2018)
    lines: int  # on which a node of the tree begins
    variables: int  # different names that values are bound to, parameters among them
    halstead_volume: float  # bits (Halstead, Elements of Software Science, 1977)
    halstead_effort: float
    steps: int | None = None  # see training/steps.py; None where they could not be counted


def measure(tree: ast.Module, steps: int | None = None) -> Complexity:
    """The complexity of a program, from its tree of `without_texts`."""
    nodes = list(_walk(tree))
    volume, effort = _halstead(nodes)
    return Complexity(
        depth=depth_of(tree),
        nodes=len(nodes),
        cyclomatic=1 + sum(_decisions(node) for node in nodes),
        cognitive=_cognitive_of(tree, 0),
        lines=len({node.lineno for node in nodes if isinstance(node, _PLACED)}),
        variables=len({name for node in nodes for name in _variables(node)}),
        halstead_volume=volume,
        halstead_effort=effort,
        steps=steps,
    )


_PLACED = (ast.stmt, ast.expr, ast.ExceptHandler, ast.arg, ast.keyword, ast.alias, ast.pattern)

# Nodes that stand for nothing that is written, or for what their parts count for.
_SILENT = (ast.Module, ast.Expr, ast.arguments, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare)
# Nodes that are a name or a constant, or hold one beside another node.
_OPERANDS = (ast.Name, ast.Constant, ast.arg, ast.keyword, ast.alias)


def _walk(tree: ast.AST) -> list[ast.AST]:
    nodes, pending = [], [tree]
    while pending:
        node = pending.pop()
        nodes.append(node)
        pending += parts(node)
    return nodes


def _decisions(node: ast.AST) -> int:
    """How many ways a node adds: one for each condition, loop, handler and case that can fail."""
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.Assert():
            return 1
        case ast.ExceptHandler():
            return 1
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=conditions):
            return 1 + len(conditions)
        case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):
            return 0
        case ast.match_case():
            return 1
    return 0


def _cognitive(nodes: Iterable[ast.AST], nesting: int) -> int:
    """Cognitive complexity: 1 for each break of the flow and 1 for each level that it is nested in;
    1 alone for `elif`, `else` and each run of one boolean operator; recursion is not looked for.

    Breaks are if, loops, handlers, match and conditional expressions, and comprehensions with
    their conditions, which the paper does not name, as the loops that they are. What is defined
    inside a function is nested one deeper than it.
    """
    return sum(_cognitive_of(node, nesting) for node in nodes)


def _cognitive_of(node: ast.AST, nesting: int) -> int:
    match node:
        case ast.If(test=test, body=body, orelse=orelse):
            found = 1 + nesting + _cognitive([test], nesting) + _cognitive(body, nesting + 1)
            return found + _else(orelse, nesting)
        case ast.For() | ast.AsyncFor() | ast.While():
            head = [node.test] if isinstance(node, ast.While) else [node.target, node.iter]
            found = 1 + nesting + _cognitive(head, nesting) + _cognitive(node.body, nesting + 1)
            return found + _else(node.orelse, nesting)
        case ast.ExceptHandler(body=body) | ast.Match(cases=body):
            return 1 + nesting + _cognitive(body, nesting + 1)
        case ast.IfExp():
            return 1 + nesting + _cognitive(parts(node), nesting + 1)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            loops = [1 + nesting + len(each.ifs) for each in node.generators]
            return sum(loops) + _cognitive(parts(node), nesting + 1)
        case ast.BoolOp():
            return 1 + _cognitive(parts(node), nesting)
        case ast.Module(body=body) | ast.ClassDef(body=body):
            outermost = (ast.FunctionDef, ast.AsyncFunctionDef)
            return sum(
                _cognitive(parts(each) if isinstance(each, outermost) else [each], nesting)
                for each in body
            )
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return _cognitive(parts(node), nesting + 1)
    return _cognitive(parts(node), nesting)


def _else(nodes: Sequence[ast.stmt], nesting: int) -> int:
    """Of an `else`; of an `elif`, which is an `if` alone in it, as one that is nested no deeper."""
    if len(nodes) == 1 and isinstance(nodes[0], ast.If):
        return _cognitive_of(nodes[0], nesting) - nesting
    return 1 + _cognitive(nodes, nesting + 1) if nodes else 0


def _variables(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return [name]
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def _halstead(nodes: list[ast.AST]) -> tuple[float, float]:
    """Volume N log2 n and effort D N log2 n, with difficulty D = n1 / 2 * N2 / n2.

    n1 and n2 are the different operators and operands, N1 and N2 all of them, n and N the sums.
    Operands are names and constants, wherever they stand; operators are all other nodes, of which
    `a and b and c` has two, and the keywords, calls and brackets that a node is written with are
    the one operator that the node is.
    """
    operators: Counter[str] = Counter()
    operands: Counter[str] = Counter()
    for node in nodes:
        operands.update(_operands(node))
        if isinstance(node, ast.BoolOp):
            operators[type(node.op).__name__] += len(node.values) - 2  # one is its own node
        elif not isinstance(node, (*_SILENT, *_OPERANDS)):
            operators[type(node).__name__] += 1
    # A BoolOp of two values leaves a zero behind that is no operator.
    different = sum(count > 0 for count in operators.values()), len(operands)
    total = operators.total() + operands.total()
    if min(different) == 0:
        return 0.0, 0.0
    volume = total * math.log2(sum(different))
    return volume, different[0] / 2 * operands.total() / different[1] * volume


def _operands(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            return [name]
        case ast.Constant(value=value):
            # Hexadecimal: an int may have more digits than Python writes.
            return [f"{type(value).__name__} {value:x}" if type(value) is int else repr(value)]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.keyword(arg=str(name)) | ast.alias(name=name) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
    return []
