"""Names of columns: which those of a row may have, and what no key is called. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

RESERVED: Final = frozenset({"__key_group", "__expires_at", "__timestamp", "__pane", "__run"})
"""Columns that are added to keys where these are stored or grouped."""


def refused_names(names: Sequence[str]) -> str | None:
    r"""What is wrong with rows of these columns, to follow "rows with"; None: nothing.

    >>> refused_names(["a", "b", "a"])
    "two columns 'a'; rename one of them"
    >>> refused_names(["a", "a\0b"])
    "a column 'a\\x00b', whose name readers of files end at the NUL character; rename it"
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"two columns {twice[0]!r}; rename one of them"
    cut = [name for name in names if "\0" in name]
    if cut:
        return f"a column {cut[0]!r}, whose name readers of files end at the NUL character; rename it"
    return None


def refused_keys(names: Sequence[str]) -> str | None:
    """What is wrong with the columns of a key and what is stored with it, to follow "rows with"; None:
    nothing.

    >>> refused_keys(["a", "__pane"])
    "a column '__pane', which is a name of unistream's own; rename it"
    """
    taken = [name for name in names if name in RESERVED]
    if taken:
        return f"a column {taken[0]!r}, which is a name of unistream's own; rename it"
    return refused_names(names)


def numbered(rows: pa.Table) -> pa.Table:
    """The same columns with the names "0", "1", …, for what takes some names for a path: Arrow's `group_by`
    and `sort_by` those that begin with a dot.

    >>> numbered(pa.table({".a": [1]})).schema.names
    ['0']
    """
    return rows.rename_columns([str(number) for number in range(rows.num_columns)])


def distinct(rows: pa.Table) -> pa.Table:
    """The rows that differ, each once.

    >>> distinct(pa.table({".a": [1, 2, 1]})).to_pydict()
    {'.a': [1, 2]}
    """
    found = numbered(rows)
    return (
        found.group_by(found.schema.names, use_threads=False).aggregate([]).rename_columns(rows.schema.names)
    )
