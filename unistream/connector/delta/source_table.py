"""A version of a Delta table, as a source sees it: what its columns are, and which files it has."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.connector.common import packed, partition_text
from unistream.connector.common.columns_by_id import plain_schema
from unistream.connector.delta.access import brief, failed
from unistream.connector.delta.column_mapping import NONE, PHYSICAL, mode_of, physical_name, stored_field
from unistream.connector.delta.source_log import (
    Metadata,
    TableLog,
    check_features,
    checked_path,
    deletion_vectors,
)
from unistream.connector.delta.source_split import DataFile, renamed, trusted
from unistream.connector.delta.source_storage import table_files

_PYTHON_TIMES: Final = (
    (-62_135_596_800_000_000, 253_402_300_799_999_999),  # microseconds
    (-719_162, 2_932_896),  # days
)
DELETED_BYTES_MAX: Final = (
    64 * MIB
)  # of all files of a version; they are in the checkpoint until they are read
FILES_AT_ONCE: Final = 10_000  # whose statistics are Python values at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What a reader must know of a version.

    Attributes:
        schema: As rows have it.
        stored: The same columns with their ids and physical names, see `column_mapping`; without a mapping
            `schema`.
        mapping: How files are read: "none", "name" or "id".
        unreadable: Columns without a form in Arrow.
    """

    table: str
    id: str
    schema: pa.Schema
    stored: pa.Schema
    mapping: str
    partition_by: tuple[str, ...]
    unreadable: frozenset[str]

    def held(self, field: pa.Field) -> pa.Field | None:
        """The column that a job reads as `field`, by its physical name; None: there is none.

        Raises:
            ConfigError: another one has its name now.
        """
        if PHYSICAL not in (field.metadata or {}):
            found = self.stored.field(field.name) if field.name in self.stored.names else None
            if found is not None and physical_name(found) != field.name:
                raise self.another(field.name)
            return found
        wanted = physical_name(field)
        return next((one for one in self.stored if physical_name(one) == wanted), None)

    def another(self, column: str) -> ConfigError:
        """The error for a column whose name another one has now."""
        return ConfigError(
            f"table {self.table}: column {column!r} was dropped and added again since the job was built, or "
            "renamed; start the job again"
        )


def facts_of(table: str, metadata: Metadata) -> TableFacts:
    """Raises ConfigError if the table has a type that deltalake does not know."""
    mapping = mode_of(table, metadata.configuration)
    try:
        schema = pa.schema(Schema.from_json(metadata.schema_string).to_arrow())
    except (DeltaError, ValueError, TypeError) as error:
        raise ConfigError(f"table {table} has a schema that cannot be read: {brief(error)}") from error
    fields = json.loads(metadata.schema_string)["fields"]
    plain = pa.schema([field.remove_metadata() for field in schema])
    is_mapped = mapping != NONE
    stored = pa.schema([stored_field(table, field) for field in schema]) if is_mapped else plain
    return TableFacts(
        table=table,
        id=metadata.id,
        schema=plain_schema(stored) if is_mapped else plain,
        stored=stored,
        mapping=mapping,
        partition_by=tuple(metadata.partition_columns),
        unreadable=frozenset(one["name"] for one in fields if _has_variant(one["type"])),
    )


def _has_variant(kind: Any) -> bool:
    if isinstance(kind, dict):
        inner = [kind.get(key) for key in ("elementType", "keyType", "valueType")]
        return any(_has_variant(one) for one in (*inner, *(f["type"] for f in kind.get("fields", ()))))
    return bool(kind == "variant")


class DeltaSourceTable:
    """One version of a table."""

    def __init__(self, uri: str, table: DeltaTable) -> None:
        self._uri = uri
        self._table = table
        metadata = table.metadata()
        check_features(uri, table.protocol().reader_features)
        self.facts = facts_of(
            uri,
            Metadata(
                id=str(metadata.id),
                schema_string=table.schema().to_json(),
                partition_columns=list(metadata.partition_columns),
                configuration=dict(metadata.configuration),
            ),
        )
        self.in_commit_times = metadata.configuration.get("delta.enableInCommitTimestamps") == "true"

    @classmethod
    def open(cls, uri: str, options: Mapping[str, str]) -> Self | None:
        """The newest version; None: there is no table.

        Raises:
            ConfigError: it cannot be read by this source.
            Unreachable: the storage failed.
        """
        try:
            return cls(uri, DeltaTable(uri, storage_options=dict(options) or None))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise failed(uri, error) from error

    @classmethod
    def open_version(cls, uri: str, options: Mapping[str, str], version: int) -> Self:
        """An older version than the newest. Raises as `open`; ConfigError: it cannot be restored."""
        try:
            return cls(uri, DeltaTable(uri, version=version, storage_options=dict(options) or None))
        except (DeltaError, OSError) as error:
            gone = isinstance(error, TableNotFoundError) or "LogSegment" in str(error)
            if not gone:
                raise failed(uri, error) from error
            raise ConfigError(
                f"table {uri}: version {version} cannot be read any more: its log was cleaned up "
                f"({brief(error)})"
            ) from error

    @property
    def version(self) -> int:
        return int(self._table.version())

    def transaction_version(self, app_id: str) -> int | None:
        """The last version committed under `app_id`. Raises as `open`."""
        try:
            found = self._table.transaction_version(app_id)
        except (DeltaError, OSError) as error:
            raise failed(self._uri, error) from error
        return None if found is None else int(found)

    def files(self, columns: Sequence[pa.Field]) -> Iterator[DataFile]:
        """The files, with the statistics of `columns`, by whose names they are.

        Raises:
            ConfigError: a file is in another folder, or deletion vectors are too large together.
        """
        deleted = self.deleted_by_path()
        kinds = {physical_name(field): field.type for field in columns}
        actions = pa.table(self._table.get_add_actions())
        wanted = pa.table(
            {
                "path": actions["path"],
                "size": actions["size_bytes"],
                "rows": actions["num_records"],
                **{
                    name: _fields(actions, name, list(kinds) if name != "partition" else None)
                    for name in ("partition", "min", "max", "null_count")
                },
            }
        )
        for piece in wanted.to_batches(FILES_AT_ONCE):
            for row in piece.to_pylist():
                file = _data_file(self._uri, row, kinds, deleted.get(row["path"], b""))
                yield file if self.facts.mapping == NONE else self._renamed(file, columns)

    def _renamed(self, file: DataFile, columns: Sequence[pa.Field]) -> DataFile:
        """The file with its statistics and partitions by the names of `columns`. deltalake has partitions by
        those of this version."""
        physical = {field.name: physical_name(field) for field in self.facts.stored}
        partition = {physical[name]: value for name, value in file.partition.items()}
        return renamed(replace(file, partition=partition), columns)

    def deleted_by_path(self) -> dict[str, bytes]:
        """Which rows of the files were deleted, by path in the log. Raises ConfigError: they are too large
        together."""
        deletions: dict[str, bytes] = {}
        total = 0
        for batch in self._deletion_vectors():
            paths, vectors = batch.column("filepath").to_pylist(), batch.column("selection_vector")
            for path, kept in zip(paths, vectors, strict=True):
                deleted = packed(~np.asarray(kept.values.to_numpy(zero_copy_only=False), dtype=bool))
                deletions[path.removeprefix(self._table.table_uri)] = deleted
                total += len(deleted)
                if total > DELETED_BYTES_MAX:
                    raise ConfigError(
                        f"table {self._uri}, version {self.version}: its deletion vectors take more than "
                        f"{DELETED_BYTES_MAX // MIB} MiB, which splits cannot carry; rewrite its files first "
                        "(REORG TABLE … APPLY (PURGE))"
                    )
        return deletions

    def deleted_rows(self) -> int:
        """How many rows of all files were deleted, by their deletion vectors."""
        return sum(
            int(pc.sum(pc.invert(batch.column("selection_vector").flatten())).as_py() or 0)
            for batch in self._deletion_vectors()
        )

    def _deletion_vectors(self) -> Iterator[pa.RecordBatch]:
        if "deletionVectors" in (self._table.protocol().reader_features or ()):
            yield from pa.RecordBatchReader.from_stream(self._table.deletion_vectors())

    def refuse_deletion_vectors(self) -> None:
        """Raises ConfigError: a file has one, and is to be written again."""
        for batch in self._deletion_vectors():
            if batch.num_rows:
                where = f"table {self._uri}, version {self.version}"
                raise deletion_vectors(where, batch.column("filepath")[0].as_py())


def table_log(uri: str, options: Mapping[str, str]) -> TableLog:
    return TableLog(uri, table_files(uri, options))


def no_table(uri: str) -> ConfigError:
    return ConfigError(f"there is no Delta table at {uri}: give the folder that has _delta_log in it")


def _fields(actions: pa.Table, name: str, columns: Sequence[str] | None) -> pa.ChunkedArray:
    """A struct of actions, with the fields of `columns` only."""
    index = actions.schema.get_field_index(name)
    if index < 0:
        return pa.chunked_array([pa.nulls(actions.num_rows, pa.struct([]))])
    column = actions.column(index).combine_chunks()
    kind = column.type
    found = [i for i in range(kind.num_fields) if columns is None or kind.field(i).name in columns]
    values = column.flatten()  # with the nulls of the struct
    if not found:
        return pa.chunked_array([pa.nulls(actions.num_rows, pa.struct([]))])
    fields = [kind.field(i) for i in found]
    kept = [values[i] if name == "partition" else _representable(values[i]) for i in found]
    return pa.chunked_array([pa.StructArray.from_arrays(kept, fields=fields)])


def _representable(bounds: pa.Array) -> pa.Array:
    """The bounds without times that Python cannot represent: of them nothing is known then."""
    if not pa.types.is_timestamp(bounds.type) and not pa.types.is_date32(bounds.type):
        return bounds
    least, greatest = (pa.scalar(at, bounds.type) for at in _PYTHON_TIMES[pa.types.is_date32(bounds.type)])
    inside = pc.and_(pc.greater_equal(bounds, least), pc.less_equal(bounds, greatest))
    return pc.if_else(inside, bounds, pa.scalar(None, bounds.type))


def _data_file(
    table: str, row: Mapping[str, Any], kinds: Mapping[str, pa.DataType], deleted: bytes
) -> DataFile:
    partition = {name: logged_value(value) for name, value in (row["partition"] or {}).items()}
    nulls = {name: n for name, n in (row["null_count"] or {}).items() if isinstance(n, int)}
    return DataFile(
        path=checked_path(table, row["path"]),
        size=row["size"],
        partition=partition,
        deleted=deleted,
        rows=row["rows"],
        nulls=nulls,
        least=trusted(row["min"] or {}, kinds),
        greatest=trusted(row["max"] or {}, kinds),
    )


def logged_value(value: Any) -> str | None:
    """A partition value as the log has it; a time in UTC."""
    utc = isinstance(value, dt.datetime) and value.tzinfo is not None
    return partition_text(value.astimezone(dt.UTC) if utc else value)
