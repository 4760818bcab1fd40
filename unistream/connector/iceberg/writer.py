"""Buffers rows for each partition and writes them as staged Parquet files of the table. Rows that replace
others are staged together, in their order: to which partitions they go is seen when they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.crash_points import crash_point
from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.connector import common
from unistream.connector.iceberg.catalog import TableAddress, TableSettings
from unistream.connector.iceberg.stage import IcebergCommittable, Key, StagedDataFile, encode_committable
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext

if TYPE_CHECKING:
    from unistream.connector.iceberg.plan import WritePlan

STATE_FORMAT: Final = 1


class IcebergWriterState(msgspec.Struct, frozen=True, kw_only=True):
    """The table that a writer has staged files for, so that its successor does not make another one in the
    place of one that was removed."""

    address: str
    table_id: str
    format: int = STATE_FORMAT


_STATES: Final = msgspec.msgpack.Decoder(IcebergWriterState)


class IcebergWriter:
    """The `SinkWriter` of one subtask. The first row creates the table, if there is none: files need its
    field ids.

    Args:
        address: Of the table.
        settings: What the sink asks of it.
        overwrite: See `IcebergSink`.
        target_file_bytes: Rows of a partition are written to a file when they take this much memory.
        upsert: The rows replace those of the same keys.
        delete_when: Of the rows, which of them only delete.
    """

    def __init__(
        self,
        *,
        address: TableAddress,
        settings: TableSettings,
        overwrite: bool,
        target_file_bytes: int,
        upsert: common.Upsert | None = None,
        delete_when: pc.Expression | None = None,
    ) -> None:
        self._address = address
        self._settings = settings
        self._overwrite = overwrite
        self._upsert = upsert
        self._delete_when = delete_when
        self._context: SinkContext | None = None
        self._known: IcebergWriterState | None = None
        self._source_schema: pa.Schema | None = None
        self._plan_for: Callable[..., WritePlan] | None = None
        self._plan: WritePlan | None = None
        self._buffers = common.PartitionBuffers[Key](target_file_bytes, self._write_out)
        self._staged: list[StagedDataFile] = []

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """Flushed rows are in committables, the others are replayed. Raises ConfigError: partitions cannot be
        overwritten by one checkpoint after the other."""
        if self._overwrite and context.checkpointing:
            raise common.overwrites_once(f"table {self._address.table}")
        from unistream.connector.iceberg.plan import plan_for  # takes a second; the first row does not wait

        self._plan_for = plan_for
        self._context = context
        what = "the state of a writer of an Iceberg sink"
        states = [
            common.decode_formatted(_STATES, item, what=what, expected=STATE_FORMAT) for item in restored
        ]
        self._known = next((one for one in states if one.address == self._address.text), None)

    def write(self, batch: Batch) -> None:
        """Raises UserCodeError, naming the column, for values that the table cannot hold; ConfigError, for
        columns that it does not have."""
        if not batch.records.num_rows:
            return
        plan = self._planned(batch.records.schema)
        if self._upsert is not None:
            self._buffers.add((), self._keyed(plan, self._upsert, batch.records))
            return
        for key, records in plan.split(batch.records):
            self._buffers.add(key, records)

    def _keyed(self, plan: WritePlan, upsert: common.Upsert, records: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that replace others. Raises UserCodeError."""
        stored = plan.stored(records)
        common.check_keys(f"table {self._address.table}", upsert.key, stored)
        if self._delete_when is None:
            return stored
        return common.with_deletes(stored, common.deletes(self._delete_when, records))

    def flush(self, end_of_input: bool) -> None:
        self._buffers.flush()

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        assert not self._buffers, "prepare_commit without flush"
        plan = self._plan
        if not self._staged or plan is None:
            return ()
        stored = self._address.without_secrets()
        committable = IcebergCommittable(
            catalog=stored.catalog,
            table=stored.table,
            properties={name: str(value) for name, value in stored.properties.items()},
            address=self._address.text,
            table_id=plan.table_id,
            schema_id=plan.schema_id,
            spec_id=plan.spec_id,
            files=tuple(self._staged),
            checkpoint_id=checkpoint_id,
            subtask=self._opened().index,
            overwrite=self._overwrite,
            upsert=self._upsert,
        )
        self._staged = []
        return (encode_committable(committable),)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        known = self._known
        if self._plan is not None:
            known = IcebergWriterState(address=self._address.text, table_id=self._plan.table_id)
        return () if known is None else (msgspec.msgpack.encode(known),)

    def close(self) -> None:
        """Removes staged files that no committable lists."""
        if self._plan is not None:
            for file in self._staged:
                self._plan.remove(file.path)
        self._staged = []
        self._buffers.clear()

    def _planned(self, schema: pa.Schema) -> WritePlan:
        if self._plan is not None and self._source_schema is not None:
            if schema.equals(self._source_schema):
                return self._plan
            raise UserCodeError(
                f"table {self._address.table}: the stream's schema changed from "
                f"{common.columns_text(self._source_schema)} to {common.columns_text(schema)}"
            )
        gone = None
        if self._known is not None:
            done = f"has staged files for the table with id {self._known.table_id}"
            gone = common.changed_target(
                f"table {self._address.table}", self._opened(), done, "there is no such table any more"
            )
        assert self._plan_for is not None, "the writer is not open"
        self._plan = self._plan_for(self._address, self._settings, schema, gone=gone)
        self._source_schema = schema
        return self._plan

    def _write_out(self, key: Key, batches: list[pa.RecordBatch]) -> None:
        plan, name = self._plan, common.staged_name(self._opened())
        assert plan is not None, "rows have a plan"
        file = plan.write(key, batches, name) if self._upsert is None else plan.stage(batches, name)
        self._staged.append(file)
        crash_point("iceberg.staged")
        common.count_sent(self._opened().metrics, file.rows, file.size)

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the writer is not open"
        return self._context
