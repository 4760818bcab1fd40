"""Rows that replace those of the same key: what is staged for them, and which of them count.

A writer stages them (`connector.common.keyed_rows`) as files that no version of the table ever has, with
all columns, also those that the table is partitioned by. The committer reads those of a checkpoint, keeps the
last row of each key, and merges these into the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.parquet_files import parquet_file
from unistream.connector.common import StageFiles, Upsert, last_of_each_key
from unistream.connector.delta.stage import DeltaFile, reading_staged


def rows_to_merge(stage: StageFiles, files: Sequence[DeltaFile], upsert: Upsert) -> pa.Table:
    """The last row of each key of all files, in their order. Raises Unreachable."""
    tables = []
    with reading_staged(stage):
        for file in files:
            with stage.system.open(f"{stage.root}/{file.path}", "rb") as content:
                tables.append(parquet_file(content).read())
    return last_of_each_key(pa.concat_tables(tables), upsert.key)


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
