"""Objects of JSON as a table, for a few rows that are read to be shown or processed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError


def table_of_objects(rows: Sequence[Mapping[str, Any]], where: str) -> pa.Table:
    """A column for each name, null where an object has none; in the type that Arrow infers.

    Raises ConfigError: the values of a column are of types that cannot be together; `where` they are.

    >>> table_of_objects([{"a": 1}, {"b": "x"}], "a topic").to_pylist()
    [{'a': 1, 'b': None}, {'a': None, 'b': 'x'}]
    """
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, OverflowError) as error:
            raise ConfigError(f"{where}: the values of {name!r} are of several types: {error}") from error
    return pa.table(columns)
