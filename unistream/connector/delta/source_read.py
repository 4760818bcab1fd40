"""Decodes splits of a Delta table in the columns of the table: values of partitions, nulls for columns that
older files do not have, and wider types; then without the rows that were deleted, and those that the filter
does not select.

A position counts the rows of a row group before they are filtered, so that it means the same with any filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.parquet_files import parquet_file
from unistream.connector import common
from unistream.connector.common import filtered_groups, row_groups, selected_groups
from unistream.connector.common.columns_by_id import conformed, plain_schema, plain_type, stored_columns
from unistream.connector.delta.column_mapping import NONE, identified_columns
from unistream.connector.delta.source_split import DeltaSplit, encode_split, partition_value
from unistream.connector.delta.source_storage import open_data_file
from unistream.port.projection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSpec:
    """How to read the files.

    Attributes:
        schema: Of the rows, as `TableFacts.stored` has them.
        read: That, and the columns of the filter.
        mapping: See `TableFacts`.
        selection: Rows that are needed besides; None: all.
    """

    table_uri: str
    schema: pa.Schema
    read: pa.Schema
    row_filter: common.RowFilter
    mapping: str = NONE
    selection: Selection | None = None


def delta_reader(spec: DeltaSpec, files: pa_fs.FileSystem) -> common.SplitReader[DeltaSplit]:
    return common.SplitReader(
        lambda split: decode(split, spec, files),
        encode_split,
        lambda split: common.decoded_split(split, DeltaSplit, "Delta"),
    )


def decode(
    split: DeltaSplit, spec: DeltaSpec, files: pa_fs.FileSystem
) -> Iterator[common.RowChunk[DeltaSplit]]:
    """The remaining rows of the split.

    Raises:
        ConfigError: the file was removed, or its columns are not those of the table.
        UserCodeError: it is damaged, or has values that the column of the table cannot hold.
        Unreachable: the storage failed.
    """
    where = f"table {spec.table_uri}: file {split.path}"
    with open_data_file(spec.table_uri, files, split) as file:
        try:
            parquet = parquet_file(file, pre_buffer=True)
            stored = _stored(where, parquet.schema_arrow, split, spec)
            columns = list(dict.fromkeys(one.name for one in stored.values()))
            columns = columns or parquet.schema_arrow.names[:1]  # the number of rows, if nothing else
            groups = _groups(parquet.metadata, split, spec.row_filter, stored)
            if all(held.name == name for name, held in stored.items()):  # else it is about other columns
                groups = _selected(file, parquet.schema_arrow, groups, split, spec)
            deleted, firsts = common.unpacked(split.deleted), common.first_rows(parquet.metadata)
            units = (
                replace(
                    unit,
                    table=_marked(_conform(where, unit.table, split, spec, stored), unit, deleted, firsts),
                )
                for unit in row_groups(parquet, groups, columns)
            )
            for chunk in common.chunks(split, units):
                rows = common.selected_rows(spec.row_filter, common.without_deleted(chunk.records))
                if rows.num_rows:
                    yield common.RowChunk(rows.select(spec.schema.names), chunk.next)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the storage; Arrow reports damaged pages as an OSError without a number
            raise UserCodeError(f"{where}: unreadable Parquet: {error}") from error


def _stored(where: str, found: pa.Schema, split: DeltaSplit, spec: DeltaSpec) -> dict[str, pa.Field]:
    """The wanted columns that the file has, each as it is there. Those of the partition are in the log,
    whatever the file has."""
    wanted = pa.schema([field for field in spec.read if field.name not in split.partition])
    if spec.mapping != NONE:
        return stored_columns(where, identified_columns(where, found, wanted, spec.mapping), wanted)
    present: dict[str, pa.Field] = {}
    for name in wanted.names:
        at = found.get_all_field_indices(name)
        if len(at) > 1:
            raise ConfigError(f"file {split.path} has more than one column {name!r}")
        if at:
            present[name] = found.field(at[0])
    return present


def _groups(
    metadata: pq.FileMetaData, split: DeltaSplit, row_filter: common.RowFilter, stored: Mapping[str, pa.Field]
) -> list[int]:
    kinds = {term.column: term.kind for group in row_filter for term in group}
    return filtered_groups(
        metadata,
        range(split.unit, metadata.num_row_groups if split.stop is None else split.stop),
        row_filter,
        begun=split.skip > 0,
        stored={name: held.name for name, held in stored.items() if not pa.types.is_nested(held.type)},
        constants={
            name: partition_value(split.partition, pa.field(name, kinds[name]))
            for name in kinds
            if name in split.partition
        },
    )


def _selected(
    file: pa.NativeFile, found: pa.Schema, groups: list[int], split: DeltaSplit, spec: DeltaSpec
) -> list[int]:
    """The row groups that are left without those of which the pipeline drops all rows."""
    names = () if spec.selection is None else spec.selection.columns
    constants = {
        name: common.arrow_scalar(
            partition_value(split.partition, field := spec.read.field(name)), field.type
        )
        for name in names
        if name in split.partition and name in spec.read.names
    }
    return selected_groups(
        file,
        groups,
        begun=split.skip > 0,
        found=found,
        selection=spec.selection,
        schema=plain_schema(spec.read),
        constants=constants,
    )


def _marked(
    table: pa.Table, unit: common.UnitRows, deleted: np.ndarray[Any, Any], firsts: np.ndarray[Any, Any]
) -> pa.Table:
    """The rows with a column that says which were deleted, if any was."""
    if not len(deleted):
        return table
    found = common.marks(deleted, int(firsts[unit.at]) + unit.base, table.num_rows)
    return table.append_column(common.DELETED, pa.array(found))


def _conform(
    where: str, table: pa.Table, split: DeltaSplit, spec: DeltaSpec, stored: Mapping[str, pa.Field]
) -> pa.Table:
    """The columns of `spec.read`, in its order and types."""
    if spec.mapping != NONE:
        constants = {
            field.name: common.arrow_scalar(partition_value(split.partition, field), plain_type(field.type))
            for field in spec.read
            if field.name in split.partition
        }
        return conformed(where, table, stored, spec.read, constants)
    columns = [_column(table, split, field, field.name in stored) for field in spec.read]
    return pa.table(columns, schema=spec.read)


def _column(
    table: pa.Table, split: DeltaSplit, field: pa.Field, is_present: bool
) -> pa.ChunkedArray | pa.Array:
    if field.name in split.partition:
        value = partition_value(split.partition, field)
        return pa.repeat(common.arrow_scalar(value, field.type), table.num_rows)
    if not is_present:
        if not field.nullable:
            raise ConfigError(f"file {split.path} has no column {field.name!r}, which may not be null")
        return pa.nulls(table.num_rows, field.type)
    column = table.column(field.name)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UserCodeError(
            f"file {split.path}: column {field.name!r} is {column.type} and cannot be read as {field.type}, "
            f"which it is in the table: {error}"
        ) from error
