"""Objects that are found by name: in a table of ours, or declared by an installed package.

A name stands for "module:object"; the module is imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points

from unistream.base.errors import ConfigError


def installed(group: str) -> Mapping[str, str]:
    """Name -> "module:object" of the packages that declare something in this group."""
    return _installed(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _installed(group: str, path: tuple[str, ...]) -> Mapping[str, str]:  # noqa: ARG001  (the key of the cache)
    """The functions that packages on `path` declare. `path` is `sys.path` and is looked into once, when it is
    first asked for: 20 ms."""
    return {point.name: point.value for point in entry_points(group=group)}


def load(name: str, target: str) -> object:
    """The object that `target` names.

    Raises:
        ConfigError: it cannot be imported.
    """
    module, _, function = target.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"connector {name!r} cannot be loaded from {target!r}: {error}") from error
    return found
