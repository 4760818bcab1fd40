"""How a stream's Arrow schema is stored in an Iceberg table, whether it fits one that exists, and how its
rows are written to files of that table.

Columns are found by name. Files name them by the ids of the table, so columns that are renamed or added
later do not touch files that were staged before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from unistream.base.errors import ConfigError

FIELD_ID: Final = b"PARQUET:field_id"
DECIMAL_DIGITS_MAX: Final = 38

_PLAIN: Final = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint8(): IntegerType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.string_view(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.binary_view(): BinaryType(),
    pa.date32(): DateType(),
    pa.date64(): DateType(),
    pa.uuid(): UUIDType(),
}
_ARROW: Final = {StringType(): pa.string(), BinaryType(): pa.binary()}  # pyiceberg takes the large ones


def iceberg_schema(schema: pa.Schema) -> Schema:
    """The schema of a new table. Its ids are temporary: the catalogue gives its own.

    Raises:
        ConfigError: a column has a type that Iceberg does not have, or a name that occurs twice.
    """
    names = schema.names
    for name in names:
        if not name:
            raise ConfigError("an Iceberg table has no columns without a name")
        if names.count(name) > 1:
            raise ConfigError(f"column {name!r} occurs twice")
    ids = count(1)
    return Schema(*[_field(field.name, field, ids) for field in schema])


def _field(column: str, field: pa.Field, ids: Iterator[int]) -> NestedField:
    id_ = next(ids)
    return NestedField(id_, field.name, _type(column, field.type, ids), required=not field.nullable)


def _type(column: str, kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    types = pa.types
    if kind in _PLAIN:
        return _PLAIN[kind]
    if types.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX and kind.scale >= 0:
        return DecimalType(kind.precision, kind.scale)
    if types.is_dictionary(kind):
        return _type(column, kind.value_type, ids)
    if types.is_timestamp(kind):
        return TimestamptzType() if kind.tz else TimestampType()
    if types.is_time(kind):
        return TimeType()
    if types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        id_ = next(ids)
        element = kind.value_field
        return ListType(id_, _type(column, element.type, ids), element_required=not element.nullable)
    if types.is_struct(kind):
        return StructType(*[_field(column, field, ids) for field in kind])
    if types.is_map(kind):
        key, value = next(ids), next(ids)
        key_type = _type(column, kind.key_type, ids)
        item = _type(column, kind.item_type, ids)
        return MapType(key, key_type, value, item, value_required=not kind.item_field.nullable)
    raise ConfigError(
        f"column {column!r} is {kind}, which an Iceberg table cannot hold; cast it before the sink"
    )


# --- does it fit? ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """What a table would have to change, so that a stream fits it. `is_new`: the column at `path` is not
    there; otherwise its type is too narrow."""

    path: tuple[str, ...]
    type: IcebergType
    held: IcebergType | None = None

    @property
    def is_new(self) -> bool:
        return self.held is None


def changes(table: str, held: Schema, wanted: Schema) -> list[SchemaChange]:
    """Raises ConfigError: no change that keeps older files readable would do."""
    return list(_of_struct(table, held.as_struct(), wanted.as_struct(), ()))


def check_fits(table: str, held: Schema, wanted: Schema) -> None:
    """Raises ConfigError unless rows of `wanted` can be appended to a table of `held`."""
    for change in changes(table, held, wanted):
        column = ".".join(change.path)
        way = "or set schema_evolution='add' at the sink"
        if change.is_new:
            raise ConfigError(
                f"table {table} has no column {column!r} ({change.type}); add it, remove it from the stream, "
                f"{way}"
            )
        raise ConfigError(
            f"table {table}: column {column!r} is {change.held}, the stream's is {change.type}; cast it, "
            f"{way}"
        )


def _of_struct(
    table: str, held: StructType, wanted: StructType, path: tuple[str, ...]
) -> Iterator[SchemaChange]:
    held_fields = {field.name: field for field in held.fields}
    for field in wanted.fields:
        at = (*path, field.name)
        if field.name not in held_fields:
            yield SchemaChange(path=at, type=field.field_type)
            continue
        there = held_fields[field.name]
        if there.required and not field.required:
            raise ConfigError(
                f"table {table}: column {'.'.join(at)!r} must not be null, but the stream's may be; "
                "declare it with nullable=False"
            )
        yield from _of_type(table, there.field_type, field.field_type, at)
    names = {field.name for field in wanted.fields}
    for field in held.fields:
        if field.required and field.name not in names:
            raise ConfigError(
                f"table {table}: column {'.'.join((*path, field.name))!r} must not be null and the stream "
                "has none"
            )


def _of_type(
    table: str, held: IcebergType, wanted: IcebergType, path: tuple[str, ...]
) -> Iterator[SchemaChange]:
    match held, wanted:
        case StructType(), StructType():
            yield from _of_struct(table, held, wanted, path)
        case ListType(), ListType():
            yield from _of_type(table, held.element_type, wanted.element_type, (*path, "element"))
        case MapType(), MapType():
            yield from _of_type(table, held.key_type, wanted.key_type, (*path, "key"))
            yield from _of_type(table, held.value_type, wanted.value_type, (*path, "value"))
        case _ if held == wanted or _is_wider(held, wanted):
            return
        case _ if _is_wider(wanted, held) and held.is_primitive:
            yield SchemaChange(path=path, type=wanted, held=held)
        case _:
            raise ConfigError(
                f"table {table}: column {'.'.join(path)!r} is {held}, the stream's is {wanted}; cast it"
            )


def _is_wider(wide: IcebergType, narrow: IcebergType) -> bool:
    """All values of `narrow` are values of `wide`, and Iceberg allows a column to change so."""
    match wide, narrow:
        case (LongType(), IntegerType()) | (DoubleType(), FloatType()):
            return True
        case DecimalType(), DecimalType():
            return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return False


# --- files ----------------------------------------------------------------------------------------


def file_schema(held: Schema, stream: pa.Schema) -> pa.Schema:
    """The columns of the stream, in the types of the table, with its field ids. `stream` fits."""
    return pa.schema([_file_field(held.find_field(field.name), field) for field in stream])


def _file_field(held: NestedField, field: pa.Field) -> pa.Field:
    kind = _file_type(held.field_type, field.type)
    return pa.field(held.name, kind, not held.required, {FIELD_ID: str(held.field_id)})


def _file_type(held: IcebergType, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    match held:
        case StructType():
            fields = {field.name: field for field in held.fields}
            return pa.struct([_file_field(fields[one.name], one) for one in kind])
        case ListType():
            return pa.list_(_file_field(held.element_field, kind.value_field))
        case MapType():
            key, value = held.key_field, held.value_field
            return pa.map_(_file_field(key, kind.key_field), _file_field(value, kind.item_field))
    return _ARROW[held] if held in _ARROW else schema_to_pyarrow(held)


def arrow_schema(held: Schema) -> pa.Schema:
    """What a table has, for people."""
    return schema_to_pyarrow(held, include_field_ids=False)


def columns_of(names: Sequence[str]) -> str:
    """The names as text, for messages."""
    return ", ".join(names) or "nothing"


def evolve(update: Any, wanted: Sequence[SchemaChange]) -> None:
    """Adds them to an `UpdateSchema`."""
    for change in wanted:
        if change.is_new:
            update.add_column(change.path, change.type)
        else:
            update.update_column(change.path, field_type=change.type)
