"""Rows that replace those of the same key: what is staged for them, and which of them count.

A writer stages them as files that no version of the table ever has: with all columns, also those that the
table is partitioned by, in the order of the rows, and with a column `DELETED` if rows can delete others. The
committer reads those of a checkpoint, keeps the last row of each key, and merges these into the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.parquet_files import parquet_file
from unistream.connector.common import StageFiles
from unistream.connector.delta.stage import DeltaFile, Upsert, reading_staged
from unistream.model.column_names import numbered

DELETED: Final = "_unistream_deleted"


def check_key(key: Sequence[str], stored: pa.Schema) -> None:
    """Raises ConfigError: rows cannot be found by these columns of the stored schema, or it has ours."""
    if DELETED in map(str.lower, stored.names):
        raise ConfigError(f"a column cannot be called {DELETED!r}: the sink has one of its own; rename it")
    for name in key:
        if name not in stored.names:
            raise ConfigError(f"key {name!r} is no column of the stream, which has {', '.join(stored.names)}")
        kind = stored.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise ConfigError(f"rows of a Delta table cannot be found by column {name!r}, which is {kind}")


def check_keys(where: str, key: Sequence[str], records: pa.RecordBatch) -> None:
    """Raises UserCodeError: a row has no key, so nothing can be replaced by it."""
    for name in key:
        if records.column(name).null_count:
            raise UserCodeError(f"{where}: column {name!r} is part of the key, and null in some rows")


def with_deleted(records: pa.RecordBatch, deleted: pa.Array[Any]) -> pa.RecordBatch:
    """With the column `DELETED`."""
    names = [*records.schema.names, DELETED]
    return pa.RecordBatch.from_arrays([*records.columns, deleted], names=names)


def rows_to_merge(stage: StageFiles, files: Sequence[DeltaFile], upsert: Upsert) -> pa.Table:
    """The last row of each key of all files, in their order. Raises Unreachable."""
    tables = []
    with reading_staged(stage):
        for file in files:
            with stage.system.open(f"{stage.root}/{file.path}", "rb") as content:
                tables.append(parquet_file(content).read())
    return last_of_each_key(pa.concat_tables(tables), upsert.key)


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows.

    >>> rows = pa.table({"id": [1, 2, 1], "n": [1, 2, 3]})
    >>> last_of_each_key(rows, ["id"]).to_pylist()
    [{'id': 2, 'n': 2}, {'id': 1, 'n': 3}]
    """
    places: Any = pa.array(np.arange(rows.num_rows))
    keys = numbered(rows.select(list(key)))
    last = keys.append_column("place", places).group_by(keys.schema.names, use_threads=False)
    kept = last.aggregate([("place", "max")]).column("place_max")
    return rows.take(kept.take(pc.sort_indices(kept)))


def predicate(rows: pa.Table, key: Sequence[str]) -> str:
    """SQL: a row of the table ``t`` and one of the rows ``s`` have the same key. With the bounds of the keys,
    so that files without any of them are not read."""
    parts = [f"t.{quoted(name)} = s.{quoted(name)}" for name in key]
    for name in key:
        if pa.types.is_integer(rows.schema.field(name).type):
            bounds = pc.min_max(rows.column(name)).as_py()
            parts.append(f"t.{quoted(name)} BETWEEN {bounds['min']} AND {bounds['max']}")
    return " AND ".join(parts)


def quoted(name: str) -> str:
    """An identifier of DataFusion.

    >>> quoted("Id")
    '"Id"'
    """
    return '"' + name.replace('"', '""') + '"'
