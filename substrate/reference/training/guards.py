"""What a screened program finds at run time in place of the built-ins and the modules it imports.

The screen sees texts. These guards see what a text can hide: an attribute's name that is put
together at run time, a module reached through another. They end the program at once, by no
exception that it could catch. Like the screen they are policy and no boundary.
"""

import builtins
import functools
import importlib
import operator
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NoReturn

from training.screen import ALLOWED_IMPORTS, BANNED_BUILTINS, is_public

# Public names of allowed modules that fetch an attribute by its name, or evaluate a text.
_WITHHELD = {
    "contextlib": ("chdir", "redirect_stderr", "redirect_stdout"),
    "dataclasses": ("make_dataclass",),
    "enum": ("global_enum",),
    "functools": ("singledispatch", "singledispatchmethod"),
    "string": ("Formatter",),
    "typing": ("ForwardRef", "evaluate_forward_ref", "get_type_hints", "io", "re"),
}

_OF_A_WRAPPER = functools.WRAPPER_ASSIGNMENTS + functools.WRAPPER_UPDATES

End = Callable[[str, str], NoReturn]  # ends the program with a verdict and its reason


def guarded_builtins(end: End) -> dict[str, Any]:
    """The built-ins of a screened program. Reading a banned one is allowed, calling it is not."""
    names = dict(vars(builtins))
    for name in ("__doc__", "__loader__", "__package__", "__spec__"):
        del names[name]

    def check(name: object) -> None:
        if type(name) is not str:
            end("banned_construct", "an attribute that is not named by a plain text")
        if not is_public(name):
            end("banned_construct", f"the attribute {name[:100]!r}")

    def guard(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(target: object, name: object, *rest: object) -> Any:
            check(name)
            return function(target, name, *rest)

        return guarded

    def refusal(name: str) -> Callable[..., NoReturn]:
        def refuse(*arguments: object, **named: object) -> NoReturn:
            end("banned_construct", f"a call of {name}")

        return refuse

    for function in (getattr, setattr, delattr, hasattr):
        names[function.__name__] = guard(function)
    for name in BANNED_BUILTINS:
        names[name] = refusal(name)
    names["exit"] = names["quit"] = leave
    names["__import__"] = _importer(_proxies(check), end)
    return names


def leave(code: object = None) -> NoReturn:
    """What `exit` and `quit` are: an interpreter without `site` has neither."""
    raise SystemExit(code)


def _importer(proxies: dict[str, ModuleType], end: End) -> Callable[..., Any]:
    def import_module(
        name: str,
        globals: object = None,
        locals: object = None,
        fromlist: object = (),
        level: int = 0,
    ) -> Any:
        if type(fromlist) is list:
            # An import by C code (PyImport_Import), as `re.sub` does for itself. The importer's
            # answer goes nowhere: C takes the module from sys.modules.
            return importlib.import_module(name)
        if level or name not in proxies:
            end("banned_import", f"import of {name[:100]}")
        return proxies[name if fromlist else name.partition(".")[0]]

    return import_module


def _proxies(check: Callable[[object], None]) -> dict[str, ModuleType]:
    """For each allowed module a copy without private names and without modules that it imported."""
    proxies: dict[str, ModuleType] = {}
    for name in sorted(ALLOWED_IMPORTS):
        module = importlib.import_module(name)
        proxy = ModuleType(name)
        public = vars(module).get("__all__") or [n for n in vars(module) if n[0] != "_"]
        for attribute in public:
            value = vars(module).get(attribute)
            if value is not None and type(value) is not ModuleType:
                vars(proxy)[attribute] = value
        for attribute in _WITHHELD.get(name, ()):
            vars(proxy).pop(attribute, None)
        proxies[name] = proxy
        parent, _, child = name.rpartition(".")
        if parent:
            vars(proxies[parent])[child] = proxy

    def attrgetter(*names: str) -> Any:
        for name in names:
            for part in name.split(".") if type(name) is str else [name]:
                check(part)
        return operator.attrgetter(*names)

    def methodcaller(name: str, /, *arguments: object, **named: object) -> Any:
        check(name)
        return operator.methodcaller(name, *arguments, **named)

    def update_wrapper(
        wrapper: Any,
        wrapped: Any,
        assigned: Iterable[str] = functools.WRAPPER_ASSIGNMENTS,
        updated: Iterable[str] = functools.WRAPPER_UPDATES,
    ) -> Any:
        assigned, updated = tuple(assigned), tuple(updated)
        for name in (*assigned, *updated):
            if type(name) is not str or name not in _OF_A_WRAPPER:
                check(name)
        return functools.update_wrapper(wrapper, wrapped, assigned, updated)

    def wraps(
        wrapped: Any,
        assigned: Iterable[str] = functools.WRAPPER_ASSIGNMENTS,
        updated: Iterable[str] = functools.WRAPPER_UPDATES,
    ) -> Callable[[Any], Any]:
        return lambda wrapper: update_wrapper(wrapper, wrapped, assigned, updated)

    vars(proxies["operator"]).update(attrgetter=attrgetter, methodcaller=methodcaller)
    vars(proxies["functools"]).update(update_wrapper=update_wrapper, wraps=wraps)
    return proxies
