"""Checks a user's function when the pipeline is built.

A call of a generator or `async` function only returns an object that is never run. As a filter it would keep
every row; as `process_element` it would lose every row.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from unistream.base.errors import ConfigError


def check_callable(function: Any, what: str, *, may_yield: bool = False) -> None:
    """Raises ConfigError if `function` is not callable with one argument, is asynchronous, or yields unless
    `may_yield`. `what`: the operation, for messages."""
    if not callable(function):
        raise ConfigError(f"{what} takes a function, not {function!r:.200}")
    _check_takes_one(function, what)
    kind = _never_runs(function) or _never_runs(type(function).__call__)
    if kind == "yields" and not may_yield:
        raise ConfigError(
            f"{what}: {_name(function)} yields, so a call returns a generator and no value; return the value"
        )
    if kind == "is asynchronous":
        raise ConfigError(
            f"{what}: {_name(function)} is asynchronous, and nothing awaits it; use a plain def"
        )


def _check_takes_one(function: Any, what: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a built-in function; nobody knows before it is called
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{what}: {_name(function)}{signature} is called with one argument: {error}"
        ) from None


def check_defined(function: object, base: type, name: str) -> None:
    """Raises ConfigError if the class of `function` leaves the method `name` as `base` has it."""
    kind = type(function)
    if getattr(kind, name) is not getattr(base, name):
        return
    own = [other for other in vars(kind) if other not in vars(base) and not other.startswith("__")]
    alike = difflib.get_close_matches(name, own, n=1)
    parameters = ", ".join(list(inspect.signature(getattr(base, name)).parameters)[1:])
    meant = f"; is {alike[0]} meant to be it?" if alike else ""
    raise ConfigError(f"{kind.__name__} must define {name}({parameters}){meant}")


def check_methods(function: object, *names: str) -> None:
    """Raises ConfigError if one of the methods `names` yields or is asynchronous."""
    for name in names:
        kind = _never_runs(getattr(function, name, None))
        if kind is not None:
            raise ConfigError(
                f"{type(function).__name__}.{name} {kind}, so it would never run and its rows would be"
                " lost; use a plain def that passes rows to out.emit(row)"
            )


def check_returned_nothing(returned: object) -> None:
    """Raises TypeError if a method of a process function has returned something."""
    if returned is not None:
        raise TypeError(f"it returned {returned!r:.200}, which would be lost; pass rows to out.emit(row)")


def _never_runs(function: Any) -> str | None:
    if inspect.isgeneratorfunction(function):
        return "yields"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is asynchronous"
    return None


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
