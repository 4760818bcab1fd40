"""Whether a user's function can be called as it will be: found when the pipeline is put together.

A function with `yield` in it, or an `async` one, does nothing when it is called: it gives an object that
nobody looks into. As a filter it would let every row through; as `process_element` it would lose every row.
"""

from __future__ import annotations

import inspect
from typing import Any

from unistream.base.errors import ConfigError


def check_callable(function: Any, what: str, *, may_yield: bool = False) -> None:
    """Refuses what cannot be called, or would do nothing when it is.

    Args:
        function: What the user gave.
        what: The operator, as its user calls it.
        may_yield: Whether a generator is a result that is read.

    Raises:
        ConfigError: `function` is not callable, is asynchronous, or yields where a value is wanted.

    >>> check_callable(len, "map")
    """
    if not callable(function):
        raise ConfigError(f"{what} takes a function, not {function!r:.200}")
    kind = _never_runs(function) or _never_runs(type(function).__call__)
    if kind == "yields" and not may_yield:
        raise ConfigError(
            f"{what}: {_name(function)} yields, so a call gives a generator and no value; return the value"
        )
    if kind == "is asynchronous":
        raise ConfigError(
            f"{what}: {_name(function)} is asynchronous, and nothing awaits it; use a plain def"
        )


def check_methods(function: object, *names: str) -> None:
    """Refuses an object with methods that would do nothing when they are called.

    Raises:
        ConfigError: one of the methods `names` yields or is asynchronous.
    """
    for name in names:
        kind = _never_runs(getattr(function, name, None))
        if kind is not None:
            raise ConfigError(
                f"{type(function).__name__}.{name} {kind}, so nothing of it would run and its rows would be"
                " lost; use a plain def that hands rows to out.emit(row)"
            )


def check_returned_nothing(returned: object) -> None:
    """What a method of a process function returns goes nowhere.

    Raises:
        TypeError: there is something; for the operator to say where.
    """
    if returned is not None:
        raise TypeError(f"it returned {returned!r:.200}, which would be lost; hand rows to out.emit(row)")


def _never_runs(function: Any) -> str | None:
    if inspect.isgeneratorfunction(function):
        return "yields"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is asynchronous"
    return None


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
