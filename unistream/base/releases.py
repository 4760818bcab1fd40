"""Releases of unistream. A job's graph, its pickled code and its state have no format that two releases have
to agree on: programs that share them are of one release, which major and minor number say."""

from __future__ import annotations

import re
from typing import Final

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)")


def is_same_release(one: str, other: str) -> bool:
    """Whether programs of these versions may share jobs.

    >>> is_same_release("0.1.0", "0.1.4"), is_same_release("0.1.0", "0.2.0")
    (True, False)
    >>> is_same_release("1.10.0", "1.1.0")
    False
    """
    return release(one) == release(other)


def release(version: str) -> str:
    """Its major and minor number.

    >>> release("1.10.3"), release("unknown")
    ('1.10', 'unknown')
    """
    found = _RELEASE.match(version)
    return found[0] if found else version
