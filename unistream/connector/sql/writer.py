"""Copies the rows of one subtask into the staging table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Table

from unistream.base.crash_points import crash_point
from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.connector.common import deletes
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.stage import SqlCommittable, SqlTable
from unistream.connector.sql.statements import (
    DELETED,
    OURS,
    SqlStagedRows,
    attempt_of,
    remove_left,
    remove_part,
    stage_name,
    stage_table,
)
from unistream.model.elements import Batch
from unistream.model.metric_names import ROWS_SENT
from unistream.port.sink import SinkContext


class SqlWriter:
    """See `unistream.port.sink.SinkWriter`. The staging table is made with the first rows, which have the
    columns."""

    def __init__(self, table: SqlTable, batch_rows: int, delete_when: pc.Expression | None = None) -> None:
        self._table = table
        self._delete_when = delete_when
        self._stored = table.without_password()
        self._target = table.target
        self._batch_rows = batch_rows
        self._database: SinkDatabase | None = None
        self._stage: Table | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._count = 0
        self._staged = 0  # rows of the next checkpoint that are in the database

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._context = context
        self._attempt = attempt_of(context.job, context.attempt.attempt)
        self._label = (context.restored or 0) + 1
        self._database = SinkDatabase(self._table.url)

    def write(self, batch: Batch) -> None:
        if batch.num_rows:
            self._gathered.append(self._with_deleted(batch.records))
            self._count += batch.num_rows
        if self._count >= self._batch_rows:
            self._put()

    def _with_deleted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with a column that says which of them delete, if any can."""
        if self._delete_when is None:
            return rows
        columns = [*rows.columns, deletes(self._delete_when, rows)]
        return pa.RecordBatch.from_arrays(columns, names=[*rows.schema.names, DELETED])

    def flush(self, end_of_input: bool) -> None:
        """All rows are in the staging table, in transactions of their own."""
        self._put()

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        label, self._label = self._label, checkpoint_id + 1
        rows, self._staged = self._staged, 0
        if not rows or self._stage is None:
            return []
        crash_point("sql.staged")
        columns = [str(column.name) for column in self._stage.columns][len(OURS) :]
        committable = SqlCommittable(
            table=self._stored,
            stage=str(self._stage.name),
            columns=tuple(name for name in columns if name != DELETED),
            deletes=DELETED in columns,
            subtask=self._context.index,
            label=label,
            attempt=self._attempt,
            checkpoint=checkpoint_id,
            rows=rows,
        )
        return [committable.encoded()]

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return []

    def close(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return
        try:
            if self._staged and self._stage is not None:
                part = SqlStagedRows(self._context.index, self._label, self._attempt)
                with database.write("removing staged rows") as connection:
                    connection.execute(remove_part(self._stage, part))
        finally:
            database.close()

    def _put(self) -> None:
        gathered, self._gathered, self._count = self._gathered, [], 0
        if not gathered:
            return
        assert self._database is not None, "open() comes first"
        rows = pa.Table.from_batches(gathered).combine_chunks().to_batches()[0]
        stage = self._begin(rows.schema) if self._stage is None else self._stage
        if [column.name for column in stage.columns][len(OURS) :] != rows.schema.names:
            raise UserCodeError(f"SQL sink: the rows have other columns than before: {rows.schema.names}")
        for name in self._table.key:
            if rows.column(name).null_count:
                raise UserCodeError(
                    f"SQL sink: a row without {name!r}, which is in the key of {self._target}"
                )
        if not self._staged:
            self._database.create(stage)  # an empty one may have been dropped since
        with self._database.write(f"staging rows for table {self._target}") as connection:
            before = (self._context.index, self._label, self._attempt, self._staged)
            self._database.append(connection, stage, before, rows)
        self._staged += rows.num_rows
        self._context.metrics.add(ROWS_SENT, rows.num_rows)

    def _begin(self, schema: pa.Schema) -> Table:
        assert self._database is not None
        context = self._context
        columns = [(field.name, str(field.type)) for field in schema]
        name = stage_name(context.lineage, context.sink_uid, columns)
        stage = self._stage = stage_table(name, self._target.schema, schema)
        self._database.create(stage)
        if context.exclusive:
            with self._database.write("removing what a dead attempt has staged") as connection:
                connection.execute(
                    remove_left(
                        stage,
                        job=context.job,
                        index=context.index,
                        parallelism=context.parallelism,
                        restored=context.restored or 0,
                        attempt=self._attempt,
                    )
                )
        return stage
