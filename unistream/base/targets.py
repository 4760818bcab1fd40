"""Where a job runs, by name."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast, get_args

from unistream.base.errors import ConfigError

Target: TypeAlias = Literal["spark", "local", "remote"]
"""Spark's executors, child processes, or a running cluster."""


def known_target(name: str) -> Target:
    """Raises ConfigError: there is no such target.

    >>> known_target("local")
    'local'
    """
    if name not in get_args(Target):
        raise ConfigError(f"target {name!r:.200} is not one of {', '.join(get_args(Target))}")
    return cast(Target, name)
