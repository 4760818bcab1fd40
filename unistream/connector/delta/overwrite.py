"""Rows that replace what is in their partitions: what is staged for them, and which partitions they are.

A writer stages them as it does for a merge (`upsert`): as files that no version of the table ever has, with
all columns. The committer hands them to deltalake, together with a condition on the columns of partitions. So
deltalake itself names the files that it removes, with all that the log knows of them, and refuses a row that
is not in one of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.parquet_files import parquet_file
from unistream.connector.common import StageFiles
from unistream.connector.delta.schema import TableShape
from unistream.connector.delta.stage import DeltaFile, reading_staged
from unistream.connector.delta.upsert import quoted
from unistream.model.columns.column_names import distinct

BATCH_ROWS: Final = 64 * 1024


def partitions_of(stage: StageFiles, files: Sequence[DeltaFile], partition_by: Sequence[str]) -> pa.Table:
    """The partitions that staged rows are in, one row for each. Raises Unreachable."""
    tables = []
    with reading_staged(stage):
        for file in files:
            with stage.system.open(f"{stage.root}/{file.path}", "rb") as content:
                tables.append(distinct(parquet_file(content).read(columns=list(partition_by))))
    return distinct(pa.concat_tables(tables))


def staged_rows(stage: StageFiles, files: Sequence[DeltaFile], shape: TableShape) -> pa.RecordBatchReader:
    """All staged rows, one file after the other, in the columns of the table; those that only the table has
    are null."""

    def column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array[Any]:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        values = batch.column(field.name).cast(field.type)
        if field.name in shape.partition_by and pa.types.is_string(field.type):
            return pc.if_else(pc.equal(values, ""), None, values)  # as the Delta protocol requires
        return values

    def batches() -> Iterator[pa.RecordBatch]:
        with reading_staged(stage):
            for file in files:
                with stage.system.open(f"{stage.root}/{file.path}", "rb") as content:
                    for batch in parquet_file(content).iter_batches(BATCH_ROWS):
                        columns = [column(batch, field) for field in shape.schema]
                        yield pa.RecordBatch.from_arrays(columns, schema=shape.schema)

    return pa.RecordBatchReader.from_batches(shape.schema, batches())


def condition(partitions: pa.Table) -> str:
    """SQL that holds for the rows of these partitions.

    >>> print(condition(pa.table({"day": ["a", None, "b"]})))
    ("day" IN ('a', 'b')) OR (("day" IS NULL OR "day" = ''))
    >>> print(condition(pa.table({"day": ["a", "a", "b"], "hour": [1, 2, None]})))
    ("day" IN ('a') AND "hour" IN (1, 2)) OR ("day" IN ('b') AND "hour" IS NULL)
    """
    *outer, last = partitions.schema.names
    values = [_literals(partitions.column(name)) for name in partitions.schema.names]
    of_last: dict[tuple[str | None, ...], list[str | None]] = {}
    for *heads, value in zip(*values, strict=True):
        of_last.setdefault((*heads, None if value is None else "some"), []).append(value)
    parts = []
    for (*heads, _), found in of_last.items():
        equal = [_among(partitions, name, [head]) for name, head in zip(outer, heads, strict=True)]
        parts.append(" AND ".join([*equal, _among(partitions, last, found)]))
    return " OR ".join(f"({part})" for part in sorted(parts))


def _among(partitions: pa.Table, name: str, literals: Sequence[str | None]) -> str:
    """The value of a column is among these, which are all null or none of them."""
    values = [one for one in literals if one is not None]
    if values:
        return f"{quoted(name)} IN ({', '.join(values)})"
    null = f"{quoted(name)} IS NULL"
    is_text = pa.types.is_string(partitions.schema.field(name).type)
    return f"({null} OR {quoted(name)} = '')" if is_text else null


def _literals(column: pa.ChunkedArray) -> list[str | None]:
    """A literal of SQL for each row; None is null, as is the empty text in a partition of Delta."""
    kind = column.type
    if pa.types.is_string(kind):
        return ["'" + one.replace("'", "''") + "'" if one else None for one in column.to_pylist()]
    texts: list[Any] = pc.cast(column, pa.string()).to_pylist()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return texts
    return [None if one is None else f"arrow_cast('{one}', '{_named(kind)}')" for one in texts]


def _named(kind: pa.DataType) -> str:
    """A type as DataFusion's `arrow_cast` has it."""
    if pa.types.is_timestamp(kind):
        zone = 'Some("UTC")' if kind.tz else "None"
        return f"Timestamp(Microsecond, {zone})"
    return "Date32"
