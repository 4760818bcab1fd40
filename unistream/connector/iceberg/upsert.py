"""Rows that replace those of the same key: which files of a table have some of the keys, and what is put in
their place.

A writer stages them (`connector.common.keyed_rows`) as files that no snapshot ever names. The committer then

    reads       those of a checkpoint; the last row of each key counts
    plans       data files of the head that may have the keys, by partitions and statistics
    looks       at the key columns of these, one row group after the other
    writes      the rows of the files that do have a key, without those of the keys, and the new rows
    commits     one snapshot: these files instead of the old ones (`snapshot`)

All of it is done for one head, and the commit succeeds on that head only. After a conflict it is done again
for the new one; what is known of a file stays known, since files never change, and what was written is used
again if the new head has the same files of the keys, in the same columns and partitions.

In memory: the rows of the checkpoint, a row group, and 128 MiB of rows that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.connector import common
from unistream.connector.common.columns_by_id import id_of, plain_schema
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.plan import DELETES_FIELD, WritePlan
from unistream.connector.iceberg.record import BRANCH
from unistream.connector.iceberg.source_deletes import equal_rows
from unistream.connector.iceberg.source_read import Decoder, IcebergSpec
from unistream.connector.iceberg.source_split import (
    Deletes,
    IcebergSplit,
    LakeFile,
    check_columns_of_deletes,
    file_bounds,
    whole_file,
)
from unistream.connector.iceberg.source_storage import LakeFiles
from unistream.connector.iceberg.source_table import IcebergSourceTable
from unistream.connector.iceberg.stage import IcebergCommittable, Key, StagedDataFile

LISTED_MAX: Final = 200  # keys by which files are chosen one by one; more: by the least and the greatest one


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What takes the place of what.

    Attributes:
        schema_id, spec_id: With which the files were written.
        files: New ones.
        removed: Files that they replace, by the paths of their manifests.
    """

    schema_id: int
    spec_id: int
    files: tuple[StagedDataFile, ...]
    removed: Mapping[str, frozenset[str]]

    def instead_of(self, staged: Sequence[IcebergCommittable]) -> IcebergCommittable:
        """The files, as if they had been staged to be appended."""
        return msgspec.structs.replace(
            staged[-1], schema_id=self.schema_id, spec_id=self.spec_id, files=self.files, upsert=None
        )


class UpsertRows:
    """The rows of a checkpoint, as they go into a table.

    Args:
        address: Of the table.
        staged: With the same `Upsert`, in the order of their rows.
        target_bytes: See `PartitionBuffers`.
        file_name: Makes one, unique among all attempts.
    """

    def __init__(
        self,
        address: TableAddress,
        staged: Sequence[IcebergCommittable],
        *,
        target_bytes: int,
        file_name: Callable[[], str],
    ) -> None:
        (upsert,) = {one.upsert for one in staged}
        assert upsert is not None, "the rows have a key"
        self._where = f"table {address.text}"
        self._address = address
        self._staged = staged
        self._upsert: common.Upsert = upsert
        self._target_bytes = target_bytes
        self._file_name = file_name
        self._rows: _NewRows | None = None
        self._known: dict[tuple[str, tuple[Deletes, ...]], bool] = {}
        self._written: tuple[Any, Rewritten, WritePlan] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the staged files."""
        return tuple(file.path for one in self._staged for file in one.files)

    def on(self, table: Any) -> Rewritten:
        """What they make of the loaded head of a `pyiceberg.table.Table`.

        Raises:
            ConfigError: the table has no such key any more, or columns or files that cannot be written again.
            Unreachable: the storage does not answer.
            UserCodeError: a file of the table is damaged.
        """
        reading = _Reading(self._where, self._address, table)
        rows = self._rows
        if rows is None or not rows.schema.equals(reading.schema, check_metadata=True):
            rows = self._rows = _NewRows(reading, self._staged, self._upsert)
            self._known.clear()
        old = [one for one in reading.candidates(rows) if self._has_a_key(reading, rows, one)]
        plan = WritePlan(self._address.table, table, plain_schema(reading.schema))
        head = (plan.schema_id, plan.spec_id, [(one.file.path, one.split.deletes) for one in old])
        if self._written is None or self._written[0] != head:
            self.discard()
            files = self._write(plan, reading, rows, old)
            self._written = (head, _rewritten(plan, files, old), plan)
        _, done, _ = self._written
        return _rewritten(plan, done.files, old)

    def discard(self) -> None:
        """Removes what was written for a head that is not that of the table any more."""
        written, self._written = self._written, None
        if written is not None:
            _, done, plan = written
            for file in done.files:
                plan.remove(file.path)

    def keep(self) -> None:
        """What was written may be part of the table, or become one."""
        self._written = None

    def _has_a_key(self, reading: _Reading, rows: _NewRows, one: _Old) -> bool:
        known = (one.file.path, one.split.deletes)
        if known not in self._known:
            self._known[known] = any(rows.among(found).any() for found in reading.keys_of(one, rows))
        return self._known[known]

    def _write(
        self, plan: WritePlan, reading: _Reading, rows: _NewRows, old: Sequence[_Old]
    ) -> tuple[StagedDataFile, ...]:
        files: list[StagedDataFile] = []

        def write_out(key: Key, batches: list[pa.RecordBatch]) -> None:
            files.append(plan.write(key, batches, self._file_name()))

        buffers = common.PartitionBuffers(self._target_bytes, write_out)
        try:
            for batch in self._kept(reading, rows, old):
                for key, records in plan.split(batch) if batch.num_rows else ():
                    buffers.add(key, records)
            buffers.flush()
        except Exception:
            for file in files:
                plan.remove(file.path)
            raise
        return tuple(files)

    def _kept(self, reading: _Reading, rows: _NewRows, old: Sequence[_Old]) -> Iterator[pa.RecordBatch]:
        """What the files have besides the keys, and the new rows: each next to the one that it replaces, so
        that a table whose files have ranges of keys stays one."""
        left = np.ones(rows.written.num_rows, dtype=bool)
        for one in old:
            for found in reading.rows_of(one):
                replaced = rows.among(found)
                yield found.filter(pa.array(~replaced))
                if replaced.any():
                    near = left & rows.instead_of(found.filter(pa.array(replaced)))
                    left &= ~near
                    yield from rows.written.filter(pa.array(near)).to_batches()
        yield from rows.written.filter(pa.array(left)).to_batches()


def _rewritten(plan: WritePlan, files: tuple[StagedDataFile, ...], old: Sequence[_Old]) -> Rewritten:
    removed: dict[str, set[str]] = {}
    for one in old:
        removed.setdefault(one.file.manifest, set()).add(one.file.path)
    return Rewritten(
        schema_id=plan.schema_id,
        spec_id=plan.spec_id,
        files=files,
        removed={manifest: frozenset(paths) for manifest, paths in removed.items()},
    )


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Old:
    """A data file of the head, and how it is read."""

    file: LakeFile
    split: IcebergSplit


class _Reading:
    """What is read of one head of the table. `schema`: all columns of the table, with ids."""

    def __init__(self, where: str, address: TableAddress, table: Any) -> None:
        self._where = where
        self._address = address
        self.table = table
        self._source = IcebergSourceTable(where, table)
        self._files = LakeFiles(address)
        self._files.use(table.io)
        columns = self._source.columns(None)
        check_rewritable(where, columns.unreadable)
        self.schema: pa.Schema = columns.schema
        self._all = self._decoder(self.schema)

    def candidates(self, rows: _NewRows) -> list[_Old]:
        """Files of the head that may have some of the keys, by their least one."""
        history = self._source.history(BRANCH)
        if history.head is None or not rows.keys.num_rows:
            return []
        found: list[tuple[Any, _Old]] = []
        for file, deletes in self._source.files(history.snapshots[history.head], rows.row_filter, rows.key):
            check_columns_of_deletes(self._where, deletes, self._source.keys)
            least = file_bounds(file, rows.key, rows.key.names[0]).least
            found.append((least, _Old(file, whole_file(file, history.head, deletes, None))))
        known = [one for one in found if one[0] is not None]
        known.sort(key=lambda one: one[0])
        return [one for _, one in (*known, *(one for one in found if one[0] is None))]

    def keys_of(self, one: _Old, rows: _NewRows) -> Iterator[pa.RecordBatch]:
        """The key columns, of row groups that may have some of the keys."""
        decoder = self._decoder(rows.key, rows.row_filter)
        return (chunk.records for chunk in decoder.decode(one.split))

    def rows_of(self, one: _Old) -> Iterator[pa.RecordBatch]:
        return (chunk.records for chunk in self._all.decode(one.split))

    def staged(self, file: StagedDataFile, has_deletes: bool) -> Iterator[pa.RecordBatch]:
        """Reads the rows of a staged file, in the columns of the table, with `DELETES` if they have it."""
        split = IcebergSplit(snapshot=0, path=file.path, size=file.size)
        return (chunk.records for chunk in self._decoder(self.staged_schema(has_deletes)).decode(split))

    def staged_schema(self, has_deletes: bool) -> pa.Schema:
        return self.schema.append(DELETES_FIELD) if has_deletes else self.schema

    def _decoder(self, schema: pa.Schema, row_filter: common.RowFilter = ()) -> Decoder:
        spec = IcebergSpec(
            address=self._address,
            schema=schema,
            read=schema,
            keys=self._source.keys,
            mapping=self._source.name_mapping,
            row_filter=row_filter,
        )
        return Decoder(spec, self._files)


def check_rewritable(where: str, unreadable: Mapping[str, str]) -> None:
    """Raises ConfigError: rows would lose a column when they are written again. `unreadable`: see
    `TableColumns`."""
    for name, kind in unreadable.items():
        raise ConfigError(
            f"{where}: column {name!r} is {kind}, which unistream does not read, so the files that have rows "
            "to be replaced cannot be written again; append to the table, or drop the column"
        )


# --- the rows -------------------------------------------------------------------------------------


class _NewRows:
    """
    Attributes:
        schema: The columns of the table.
        key: Those of the key.
        keys: Of all rows, each once.
        written: The last row of each key, without those that only delete.
        row_filter: For files that may have some of the keys.
    """

    def __init__(
        self, reading: _Reading, staged: Sequence[IcebergCommittable], upsert: common.Upsert
    ) -> None:
        self.schema = reading.schema
        self.key = _key(reading, staged, upsert)
        has_deletes = upsert.deletes
        batches = [
            batch for one in staged for file in one.files for batch in reading.staged(file, has_deletes)
        ]
        columns = plain_schema(reading.staged_schema(has_deletes))
        rows = common.last_of_each_key(pa.Table.from_batches(batches, columns), self.key.names)
        self.keys = rows.select(self.key.names)
        if has_deletes:
            rows = rows.filter(pc.invert(rows.column(common.DELETES))).drop_columns([common.DELETES])
        self.written = rows
        self.row_filter = _bounds(self.keys, self.key)

    def among(self, found: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """True for rows that have one of the keys."""
        return equal_rows(pa.Table.from_batches([found]).select(self.key.names), self.keys)

    def instead_of(self, found: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """True for those of `written` that have the key of one of these rows."""
        names = self.key.names
        return equal_rows(self.written.select(names), pa.Table.from_batches([found]).select(names))


def _key(reading: _Reading, staged: Sequence[IcebergCommittable], upsert: common.Upsert) -> pa.Schema:
    """The columns of the key in the table as it is now, which may have other names. Raises ConfigError."""
    now = {id_of(field): field for field in reading.schema}
    found = []
    for name in upsert.key:
        schemas = reading.table.schemas()
        (id_, *others) = {schemas[one.schema_id].find_field(name).field_id for one in staged}
        if others or id_ not in now:
            raise ConfigError(
                f"table {'.'.join(reading.table.name())}: rows of checkpoint {staged[0].checkpoint_id} "
                f"replace others by column {name!r}, which somebody has dropped; nothing of this checkpoint "
                "was committed. Start with another key, from an older savepoint"
            )
        found.append(now[id_])
    return pa.schema(found)


def _bounds(keys: pa.Table, key: pa.Schema) -> common.RowFilter:
    """What all of the keys fulfil, of columns whose values can be compared with statistics."""
    conditions: list[tuple[str, str, Any]] = []
    for field in key:
        if isinstance(field.type, pa.BaseExtensionType) or not keys.num_rows:
            continue
        distinct = keys.column(field.name).unique()
        listed = len(distinct) <= LISTED_MAX
        ends = pc.min_max(distinct) if not listed else None
        try:
            values = distinct.to_pylist() if ends is None else [ends["min"].as_py(), ends["max"].as_py()]
        except (ValueError, OverflowError):
            continue  # times beyond the years of Python
        if all(common.lenient(value, field.type) is not None for value in values):
            conditions += (
                [(field.name, "in", values)]
                if listed
                else [(field.name, ">=", values[0]), (field.name, "<=", values[1])]
            )
    return common.checked_filter([conditions], plain_schema(key), "upsert") if conditions else ()
