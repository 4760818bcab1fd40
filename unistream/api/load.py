"""Finds the user's pipeline: MODULE:FUNCTION, a function that takes an Environment."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Final

from unistream.base.errors import ConfigError, UnistreamError, UserCodeError
from unistream.base.user_files import raised_at

if TYPE_CHECKING:
    from unistream.api.environment import Environment

_SHAPE: Final = (
    "write def build(env: us.Environment), and add the pipeline to env, which is run by its caller"
)


def load_function(reference: str, folder: str | None = None) -> Callable[[Environment], object]:
    """The function that builds the pipeline. `folder`: that is on Python's path for its modules; None: the
    current one.

    Raises:
        ConfigError: there is no such module or function.
        UserCodeError: importing the module failed.
    """
    module_name, colon, name = reference.partition(":")
    parts = [*module_name.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{reference!r} is not MODULE:FUNCTION, such as flights.pipeline:build")
    found: object = _import(module_name, folder or os.getcwd())
    for part in name.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, [one for one in dir(found) if one[0] != "_"], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"module {module_name!r} has no {name!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{reference} is not a function but {type(found).__name__}")
    return found


def build(function: Callable[[Environment], object], environment: Environment) -> None:
    """Lets the user's function add its operators.

    Raises:
        ConfigError: the pipeline is not valid, or it is not added to `environment`.
        UserCodeError: it raised something else; its traceback is in the text.
    """
    name = getattr(function, "__qualname__", repr(function))
    _check_takes_one(function, name)
    try:
        made = function(environment)
    except UnistreamError:
        raise
    except Exception as error:
        raise UserCodeError(f"{name} raised {_described(error)}") from error
    if isinstance(made, type(environment)) and made is not environment:
        raise ConfigError(f"{name} returned an Environment of its own: {_SHAPE}")


def _check_takes_one(function: Callable[..., object], name: str) -> None:
    """Raises ConfigError: it cannot be called with an environment alone."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # what is called, not what that wraps
    except (TypeError, ValueError):  # one in C has none
        return
    try:
        if isinstance(
            function, partial
        ):  # a component's, which gives arguments: what lacks is said when called
            signature.bind_partial(None)
        else:
            signature.bind(None)
    except TypeError:
        raise ConfigError(
            f"{name}{signature} cannot be called with the environment alone: {_SHAPE}"
        ) from None


def _import(name: str, folder: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {name!r} in {folder} or on Python's path") from error
        raise UserCodeError(f"importing {name} raised {_described(error)}") from error
    except UnistreamError:
        raise
    except Exception as error:
        raise UserCodeError(f"importing {name} raised {_described(error)}") from error


def _described(error: Exception) -> str:
    """The error and the last line of the user's code in its traceback."""
    where = raised_at(error.__traceback__)
    return f"{type(error).__name__}: {error}" + (f" at {where}" if where else "")
