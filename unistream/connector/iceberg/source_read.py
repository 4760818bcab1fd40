"""Decodes splits of an Iceberg table in the columns of the table, found by their ids; without the rows that
were deleted, and those that the filter does not select.

A position counts the rows of a row group before they are filtered, so that it means the same with any filter
and any deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.parquet_files import parquet_file
from unistream.connector import common
from unistream.connector.common import filtered_groups, row_groups, selected_groups
from unistream.connector.common.columns_by_id import (
    conformed,
    id_of,
    identified,
    name_mapping,
    plain_schema,
    plain_type,
    stored_columns,
)
from unistream.connector.common.single_values import arrow_value
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.source_deletes import DeletedRows
from unistream.connector.iceberg.source_split import IcebergSplit, encode_split
from unistream.connector.iceberg.source_storage import LakeFiles
from unistream.port.projection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSpec:
    """How to read the files; schemas have ids (`columns_by_id`).

    Attributes:
        schema: Of the rows.
        read: That, and the columns of the filter.
        keys: See `key_columns`.
        mapping: The name mapping of the table.
        selection: Rows that are needed besides; None: all.
    """

    address: TableAddress
    schema: pa.Schema
    read: pa.Schema
    keys: pa.Schema
    mapping: str | None
    row_filter: common.RowFilter
    selection: Selection | None = None


def iceberg_reader(spec: IcebergSpec) -> common.SplitReader[IcebergSplit]:
    decoder = Decoder(spec)
    return common.SplitReader(
        decoder.decode, encode_split, lambda split: common.decoded_split(split, IcebergSplit, "Iceberg")
    )


class Decoder:
    """Decodes the splits of one reader, since it keeps what it has read of files with deletes. `files`: of
    the table; None: they are opened by its catalog."""

    def __init__(self, spec: IcebergSpec, files: LakeFiles | None = None) -> None:
        self._spec = spec
        self._where = f"table {spec.address.text}"
        self._files = LakeFiles(spec.address) if files is None else files
        self._mapping = name_mapping(self._where, spec.mapping)
        self._deleted = DeletedRows(self._where, self._files, spec.keys, self._mapping)

    def decode(self, split: IcebergSplit) -> Iterator[common.RowChunk[IcebergSplit]]:
        """The remaining rows of the split.

        Raises:
            ConfigError: the file was removed, or its columns are not those of the table.
            UserCodeError: it is damaged, or has values that the column of the table cannot hold.
            Unreachable: the storage failed.
        """
        where = f"{self._where}: file {split.path}"
        deleted = self._deleted.of(split)
        with self._files.open(split.path, split.size) as file:
            try:
                opened = _File(where, file, split, self._spec, self._deleted.keys_of(split))
                opened.identify(self._mapping)
                for chunk in common.chunks(split, opened.units(deleted)):
                    rows = common.selected_rows(self._spec.row_filter, common.without_deleted(chunk.records))
                    if rows.num_rows:
                        yield common.RowChunk(rows.select(self._spec.schema.names), chunk.next)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the storage; Arrow reports damaged pages as an OSError without a number
                raise UserCodeError(f"{where}: unreadable Parquet: {error}") from error


@dataclass(slots=True)
class _File:
    """One data file that is read. `keys`: columns by which its rows may have been deleted."""

    where: str
    file: pa.NativeFile
    split: IcebergSplit
    spec: IcebergSpec
    keys: pa.Schema
    parquet: pq.ParquetFile = field(init=False)
    wanted: pa.Schema = field(init=False)
    stored: Mapping[str, pa.Field] = field(init=False)
    constants: Mapping[str, pa.Scalar] = field(init=False)

    def identify(self, mapping: Any) -> None:
        """Which of its columns are which. Raises ConfigError, pyarrow.ArrowInvalid."""
        self.parquet = parquet_file(self.file, pre_buffer=True)
        self.wanted = pa.schema([*self.spec.read, *self.keys])
        file_schema = identified(self.where, self.parquet.schema_arrow, mapping)
        self.stored = stored_columns(self.where, file_schema, self.wanted)
        missing = [one for one in self.wanted if one.name not in self.stored]
        for column in missing:
            if id_of(column) in self.split.unreadable:
                raise ConfigError(
                    f"{self.where} does not have column {column.name!r}, by whose values the table is "
                    "partitioned; they are double, which this version of pyiceberg reads with the precision "
                    "of a float, so they are not known; select others by columns=…"
                )
        held = self.split.constants
        self.constants = {
            one.name: arrow_value(held[id_], plain_type(one.type))
            for one in missing
            if (id_ := id_of(one)) is not None and id_ in held
        }

    def units(self, deleted: Callable[[pa.Table, int], pa.Array] | None) -> Iterator[common.UnitRows]:
        """The rows of its row groups that may have selected ones, in the columns of the table."""
        names = list(dict.fromkeys(one.name for one in self.stored.values()))
        columns = names or self.parquet.schema_arrow.names[:1]  # the number of rows, if nothing else
        firsts = common.first_rows(self.parquet.metadata)
        for unit in row_groups(self.parquet, self._groups(), columns):
            table = conformed(self.where, unit.table, self.stored, self.wanted, self.constants)
            if deleted is not None:
                marks = deleted(table, int(firsts[unit.at]) + unit.base)
                table = table.select(self.spec.read.names).append_column(common.DELETED, marks)
            yield replace(unit, table=table)

    def _groups(self) -> list[int]:
        metadata, split, spec = self.parquet.metadata, self.split, self.spec
        same = {
            name: one.name
            for name, one in self.stored.items()
            if name in spec.read.names and not pa.types.is_nested(one.type)
        }
        groups = filtered_groups(
            metadata,
            range(split.unit, metadata.num_row_groups if split.stop is None else split.stop),
            spec.row_filter,
            begun=split.skip > 0,
            stored=same,
            constants=self._comparable_constants(),
        )
        selection = spec.selection
        if selection is None or any(same.get(name) != name for name in selection.columns):
            return groups  # by the names of the file
        return selected_groups(
            self.file,
            groups,
            begun=split.skip > 0,
            found=self.parquet.schema_arrow,
            selection=selection,
            schema=plain_schema(spec.read),
        )

    def _comparable_constants(self) -> dict[str, Any]:
        found = {
            name: (value, common.lenient(value.as_py(), value.type) if value.is_valid else None)
            for name in common.filter_columns(self.spec.row_filter)
            if (value := self.constants.get(name)) is not None
        }
        return {
            name: known for name, (value, known) in found.items() if known is not None or not value.is_valid
        }
