"""Buffers rows for each partition value and writes them as staged Parquet files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.crash_points import crash_point
from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.connector import common
from unistream.connector.delta.schema import changed_in_partitions, stored_schema
from unistream.connector.delta.stage import (
    DeltaCommittable,
    DeltaFile,
    split_columns,
    statistics,
    write_parquet,
)
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext


class DeltaWriter:
    """The `SinkWriter` of one subtask.

    Args:
        table_uri: Absolute.
        target_file_bytes: Rows of a partition are written to a file when they take this much memory.
        stage: The folder of the table.
        create: A missing table may be created at the first commit.
        upsert: The rows replace those of the same keys; see `unistream.connector.delta.upsert`.
        delete_when: Of the rows, which of them only delete.
        overwrite: The rows replace what is in their partitions; see `unistream.connector.delta.overwrite`.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        partition_by: tuple[str, ...],
        target_file_bytes: int,
        stage: common.StageFiles,
        create: bool,
        upsert: common.Upsert | None = None,
        delete_when: pc.Expression | None = None,
        overwrite: bool = False,
    ) -> None:
        self._table_uri = table_uri
        self._partition_by = partition_by
        self._stage = stage
        self._create = create
        self._upsert = upsert
        self._delete_when = delete_when
        self._overwrite = overwrite
        self._goes_in_whole = upsert is None and not overwrite  # a staged file becomes one of the table
        self._folders = partition_by if self._goes_in_whole else ()  # of the staged files
        self._context: SinkContext | None = None
        self._source_schema: pa.Schema | None = None
        self._schema = pa.schema([])
        self._buffers = common.PartitionBuffers[common.PartitionKey](target_file_bytes, self._write_out)
        self._staged: list[DeltaFile] = []

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """The writer has no state: flushed rows are in committables, the others are replayed. Raises
        ConfigError: partitions cannot be overwritten by one checkpoint after the other."""
        if self._overwrite and context.checkpointing:
            raise common.overwrites_once(f"table {self._table_uri}")
        self._context = context

    def write(self, batch: Batch) -> None:
        """Raises UserCodeError, naming the column, for values that the table cannot hold."""
        stored = self._stored(batch.records)
        if self._upsert is not None:
            common.check_keys(f"table {self._table_uri}", self._upsert.key, stored)
        if self._delete_when is not None:
            stored = common.with_deletes(stored, common.deletes(self._delete_when, batch.records))
        for key, records in common.by_partition(stored, self._folders):
            self._buffers.add(key, records)

    def flush(self, end_of_input: bool) -> None:
        self._buffers.flush()

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        context = self._opened()
        assert not self._buffers, "prepare_commit without flush"
        if not self._staged:
            return ()
        committable = DeltaCommittable(
            table_uri=self._table_uri,
            schema=bytes(self._schema.serialize()),
            partition_by=self._partition_by,
            files=tuple(self._staged),
            checkpoint_id=checkpoint_id,
            subtask=context.index,
            create=self._create,
            upsert=self._upsert,
            overwrite=self._overwrite,
        )
        self._staged = []
        return (msgspec.msgpack.encode(committable),)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        for file in self._staged:
            self._stage.remove(file.path)
        self._staged = []
        self._buffers.clear()

    def _stored(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the types of the table."""
        if self._source_schema is None or not records.schema.equals(self._source_schema):
            stored = stored_schema(records.schema, self._partition_by)
            if self._source_schema is not None and not stored.equals(self._schema):
                raise UserCodeError(
                    f"table {self._table_uri}: the stream's schema changed from "
                    f"{common.columns_text(self._schema)} to {common.columns_text(stored)}"
                )
            self._source_schema, self._schema = records.schema, stored
        columns = [self._stored_column(records.column(i), field) for i, field in enumerate(self._schema)]
        for name in self._partition_by:
            self._check_partition(name, columns[self._schema.get_field_index(name)])
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check_partition(self, name: str, values: pa.Array) -> None:
        lost = changed_in_partitions(values, rewritten=not self._goes_in_whole)
        if lost is not None:
            text = values.filter(lost)[0].as_py()
            raise UserCodeError(
                f"table {self._table_uri} is partitioned by {name!r}, where {text!r} would come back as "
                "null: give such rows another text, or null, before the sink"
            )

    def _stored_column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.null_count and not field.nullable:
            raise UserCodeError(
                f"table {self._table_uri}: column {field.name!r} is declared without nulls but has some"
            )
        if column.type.equals(field.type):
            return column
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise UserCodeError(
                f"table {self._table_uri}: column {field.name!r} ({column.type}) cannot be stored "
                f"as {field.type}: {error}"
            ) from error

    def _write_out(self, key: common.PartitionKey, batches: list[pa.RecordBatch]) -> None:
        schema = split_columns(self._schema, self._partition_by) if self._goes_in_whole else None
        table = pa.Table.from_batches(batches, schema)
        values = dict(zip(self._folders, key, strict=True))
        path = common.partition_folder(values) + common.staged_name(self._opened())
        size, modified_ms = self._stage.write(path, lambda file: write_parquet(file, table))
        self._staged.append(
            DeltaFile(
                path=path,
                size=size,
                rows=table.num_rows,
                partition_values=values,
                stats=statistics(table),
                modification_ms=modified_ms,
            )
        )
        crash_point("delta.staged")
        common.count_sent(self._opened().metrics, table.num_rows, size)

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the writer is not open"
        return self._context
