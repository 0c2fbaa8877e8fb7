"""Literals: model-written inputs and answers, read as data and never evaluated.

A text is parsed, and every node of it has to be part of a literal, as `ast.literal_eval` has it but
for Ellipsis, and within the size of a value (training/canonical.py). So an answer that closes the
call it is pasted into, or that is a piece of code, is not one, whatever it would evaluate to.

Texts are parsed in the jail, because a parser in C is no place for a stranger's text in a trainer.
"""

import ast
from typing import Any

from training.canonical import NotAValue, encode

MOST_CHARACTERS = 65536  # of one text

Call = tuple[tuple[Any, ...], dict[str, Any]]  # the positional and the named arguments

# What parsing and reading raise for a text that is no literal. The parser raises MemoryError when
# its own stack is full.
_REFUSALS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError)


class NotALiteral(ValueError):
    """This text is not a literal; the message says why not."""


def read_arguments(text: str) -> Call:
    """The arguments of a call that `text` writes between its parentheses: `1, 'a', key=[2]`.

    Raises NotALiteral.
    """
    _check_length(text)
    source = f"f(\n{text}\n)"
    try:
        call = ast.parse(source, mode="eval").body
    except _REFUSALS as error:
        raise NotALiteral(f"does not parse: {_reason(error)}") from None
    # Exactly one call of f, whose parentheses are the ones put around the text: anything that
    # closes them early is an operator, a tuple or a call of a call.
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        raise NotALiteral("does not parse as the arguments of one call")
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in named:
            raise NotALiteral("wanted each named argument once, and no **")
        named[keyword.arg] = _read_node(keyword.value)
    return tuple(_read_node(argument) for argument in call.args), named


def read_value(text: str) -> Any:
    """The value that `text` writes; `1, 2` is a tuple. Raises NotALiteral."""
    _check_length(text)
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except _REFUSALS as error:
        raise NotALiteral(f"does not parse: {_reason(error)}") from None
    return _read_node(node)


def _read_node(node: ast.expr) -> Any:
    try:
        value = _value_of(node)
        encode(value)
    except NotAValue as error:
        raise NotALiteral(f"not a value: {error}") from None
    except (TypeError, RecursionError) as error:  # an unhashable key; deep nesting
        raise NotALiteral(_reason(error)) from None
    return value


# `ast.literal_eval` leaves reference cycles behind, which a zygote without garbage collector keeps.
def _value_of(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and node.value is not ...:
        return node.value
    if isinstance(node, ast.List):
        return [_value_of(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple([_value_of(item) for item in node.elts])
    if isinstance(node, ast.Dict) and None not in node.keys:  # None is where `**` stands
        pairs = zip(filter(None, node.keys), node.values, strict=True)
        return {_value_of(key): _value_of(item) for key, item in pairs}
    if isinstance(node, ast.Set):
        return {_value_of(item) for item in node.elts}
    match node:
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return set()
        case ast.UnaryOp(
            op=ast.USub() | ast.UAdd() as sign,
            operand=ast.Constant(value=int() | float() | complex() as number),
        ) if type(number) is not bool:
            return -number if isinstance(sign, ast.USub) else +number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=ast.Constant(value=part)):
            if type(part) is complex and isinstance(left, ast.Constant | ast.UnaryOp):
                real = _value_of(left)
                if type(real) in (int, float):
                    return real + part if isinstance(sign, ast.Add) else real - part
    raise NotALiteral(f"not a literal: {type(node).__name__}")


def _check_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise NotALiteral(f"wanted at most {MOST_CHARACTERS} characters, found {len(text)}")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"[:200]
