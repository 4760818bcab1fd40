"""How a stream's Arrow schema is stored in a Delta table, and whether it fits one that exists."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.connector.common import NULL_PARTITION
from unistream.connector.delta.writer_features import check_writable

_STORED: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_PLAIN: Final = frozenset(
    {
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
    }
)
_NAME_FORBIDDEN: Final = " ,;{}()\n\t="  # by Parquet and so by Delta, without column mapping


def stored_schema(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """The schema in the table: Delta has signed integers and microseconds only.

    Raises:
        ConfigError: a column has a name or a type that Delta does not support, or the partition columns are
            not columns of the stream, or are all of them.
    """
    lowered = [name.lower() for name in schema.names]
    for name in schema.names:
        if not name or any(char in _NAME_FORBIDDEN for char in name):
            raise ConfigError(
                f"column {name!r}: the name of a Delta column must not contain any of ' ,;{{}}()='"
            )
        if lowered.count(name.lower()) > 1:
            raise ConfigError(f"column {name!r} occurs twice; names of Delta columns are case-insensitive")
    stored = pa.schema([_stored_field(field.name, field.name, field) for field in schema])
    _check_partition_columns(stored, partition_by)
    return stored


def _stored_type(column: str, kind: pa.DataType) -> pa.DataType:
    if kind in _PLAIN or pa.types.is_decimal128(kind):
        return kind
    if kind in _STORED:
        return _STORED[kind]
    if pa.types.is_dictionary(kind):
        return _stored_type(column, kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored_field("element", column, kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_stored_field(field.name, column, field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored_type(column, kind.key_type), _stored_type(column, kind.item_type))
    raise ConfigError(
        f"column {column!r} is {kind}, which a Delta table cannot hold; cast it before the sink"
    )


def _stored_field(name: str, column: str, field: pa.Field) -> pa.Field:
    return pa.field(name, _stored_type(column, field.type), field.nullable)


def _check_partition_columns(stored: pa.Schema, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if name not in stored.names:
            raise ConfigError(
                f"partition column {name!r} is no column of the stream, which has {', '.join(stored.names)}"
            )
        kind = stored.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise ConfigError(f"a Delta table cannot be partitioned by column {name!r}, which is {kind}")
    if len(set(partition_by)) != len(partition_by):
        raise ConfigError(f"a partition column is named twice: {', '.join(partition_by)}")
    if partition_by and len(partition_by) == len(stored.names):
        raise ConfigError("a table needs at least one column that it is not partitioned by")


def changed_in_partitions(values: pa.Array, *, rewritten: bool) -> pa.Array | None:
    """Texts that come back as null when a table is partitioned by them: the empty one, as the Delta protocol
    has it, and what stands for null in names of folders, which deltalake takes for null where it writes.

    Args:
        values: Of a partition column.
        rewritten: deltalake writes the files.

    Returns:
        A mask; None: there is none of them.

    >>> changed_in_partitions(pa.array(["", "a", None]), rewritten=False).to_pylist()
    [True, False, False]
    """
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return None
    lost = pa.array(["", NULL_PARTITION] if rewritten else [""])
    found = pc.is_in(values.cast(pa.string()), value_set=lost)
    return found if pc.any(found, min_count=0).as_py() else None


def check_rewritable(where: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Checks a table before each commit whose files deltalake writes itself (a merge, an overwrite, a
    replaced range), not this project: of a negative decimal of a partition it writes ``-1.-50``, after which
    nobody can read the table.

    Raises:
        ConfigError: rows of the table must not be rewritten by it.
    """
    for name in partition_by:
        kind = schema.field(name).type
        if pa.types.is_decimal(kind):
            raise ConfigError(
                f"{where}: rows in partitions by column {name!r}, which is {kind}, cannot be replaced, since "
                "deltalake writes negative decimals wrongly there; append rows, or partition by the column "
                "cast to text or to a whole number"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """What a table requires of added files.

    Attributes:
        configuration: Its properties.
        features: Those that writers have to know.
        rules: See `column_rules`.
    """

    table: str
    schema: pa.Schema
    partition_by: Sequence[str]
    configuration: Mapping[str, str | None]
    features: Collection[str]
    rules: Mapping[str, str]


def check_fits(
    shape: TableShape, wanted: pa.Schema, partition_by: Sequence[str], *, replaces_rows: bool
) -> None:
    """Raises ConfigError unless rows of `wanted` (a stored schema) can be written to the table. Additional
    columns of the table must be nullable; they are null in the new rows."""
    table, found = shape.table, shape.schema
    for field in wanted:
        index = found.get_field_index(field.name)
        if index < 0:
            raise ConfigError(
                f"table {table} has no column {field.name!r} ({field.type}), but {', '.join(found.names)}; "
                "add it to the table, or rename or remove it by select"
            )
        held = found.field(index)
        if not _same(held.type, field.type):
            raise ConfigError(
                f"table {table}: column {field.name!r} is {held.type}, the stream's is {field.type}; cast it"
            )
        if field.nullable and not held.nullable:
            raise ConfigError(
                f"table {table}: column {field.name!r} must not be null, but the stream's may be; "
                "declare it with nullable=False"
            )
    for held in found:
        if held.name not in wanted.names and not held.nullable:
            raise ConfigError(f"table {table}: column {held.name!r} must not be null and the stream has none")
    if list(shape.partition_by) != list(partition_by):
        raise ConfigError(
            f"table {table} is partitioned by {_names(shape.partition_by)}, "
            f"the sink by {_names(partition_by)}"
        )
    check_writable(table, shape.features, shape.configuration, shape.rules, replaces_rows=replaces_rows)


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether types are equal, ignoring Arrow's names for the items of lists and maps."""
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _same(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _same(found.key_type, wanted.key_type) and _same(found.item_type, wanted.item_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        names = [field.name for field in found] == [field.name for field in wanted]
        return names and all(_same(a.type, b.type) for a, b in zip(found, wanted, strict=True))
    return bool(found.equals(wanted))


def _names(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
