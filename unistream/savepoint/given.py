"""Rows as a user has them, as a table of Arrow columns."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError

_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # what pyarrow calls it of a pandas frame


def table_of(rows: object, what: str) -> pa.Table:
    """A pyarrow Table as it is; a RecordBatch, a pandas DataFrame and all else as `pa.table` makes one of it.

    An unnamed index of a DataFrame is no column (a named one is); its NaN are nulls.

    Args:
        rows: As a user gave them.
        what: Whose rows they are, for the message.

    Raises:
        ConfigError: it is no table, or two of its columns have one name.

    >>> table_of({"user": [1], "value": [2]}, "state 'seen'").num_rows
    1
    """
    table = rows if isinstance(rows, pa.Table) else _made(rows, what)
    names = table.schema.names
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ConfigError(f"{what}: column {twice!r} comes twice; rename or drop one")
    return table


def _made(rows: object, what: str) -> pa.Table:
    try:
        table = pa.table(rows)
    except Exception as error:  # of whatever library made them
        told = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"{what}: its rows are a {type(rows).__name__}, of which pa.table() makes no table ({told}); "
            "give a pyarrow Table or RecordBatch, or a pandas DataFrame"
        ) from error
    columns = [name for name in table.schema.names if not _UNNAMED_INDEX.fullmatch(name)]
    return table if len(columns) == table.num_columns else table.select(columns)
