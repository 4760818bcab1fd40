"""Names of columns: those of a row differ, and no key has one of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

RESERVED: Final = frozenset({"__key_group", "__expires_at", "__timestamp", "__pane", "__run"})
"""Columns that are added to keys where these are stored or grouped."""


def repeated_name(names: Sequence[str]) -> str | None:
    """What is wrong with rows of these columns, to follow "rows with"; None: nothing.

    >>> repeated_name(["a", "b", "a"])
    "two columns 'a'; rename one of them"
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    return f"two columns {twice[0]!r}; rename one of them" if twice else None


def refused_keys(names: Sequence[str]) -> str | None:
    """The same of the columns of a key and what is stored with it.

    >>> refused_keys(["a", "__pane"])
    "a column '__pane', which is a name of unistream's own; rename it"
    """
    taken = [name for name in names if name in RESERVED]
    if taken:
        return f"a column {taken[0]!r}, which is a name of unistream's own; rename it"
    return repeated_name(names)
