"""Pipelines that are built to be described and not run, for catalogues: what they read and write may be away,
or not be there yet, as the table that another pipeline of the same project is going to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_DESCRIBED: Final[ContextVar[bool]] = ContextVar("described", default=False)


@contextmanager
def described() -> Iterator[None]:
    """A block inside which pipelines of this thread are built to be described: sinks do not look at their
    targets, and a source that cannot read its columns has unknown ones."""
    token = _DESCRIBED.set(True)
    try:
        yield
    finally:
        _DESCRIBED.reset(token)


def is_described() -> bool:
    """See `described`."""
    return _DESCRIBED.get()
