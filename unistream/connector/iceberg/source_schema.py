"""The schema of an Iceberg table, as `columns_by_id` has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)

from unistream.base.errors import ConfigError
from unistream.connector.common.columns_by_id import id_of, plain_type, with_id

_ARROW: Final = {StringType(): pa.string(), BinaryType(): pa.binary()}  # pyiceberg takes the large ones
_UNREADABLE: Final = {UnknownType: "unknown", GeometryType: "geometry", GeographyType: "geography"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns of one schema. `where`: the table and what of it, for messages. `unreadable`: columns that
    have no form here, with their types."""

    where: str
    schema: pa.Schema
    unreadable: dict[str, str]

    def check_readable(self, column: str) -> None:
        """Checks that the column can be read. Raises ConfigError: it has no form here, or there is none of
        this name."""
        if column in self.unreadable:
            raise ConfigError(
                f"{self.where}: column {column!r} is {self.unreadable[column]}, which this source does not "
                "read; select others by columns=…"
            )
        if column not in self.schema.names:
            raise ConfigError(
                f"{self.where} has no column {column!r}; there are {', '.join(self.schema.names)}"
            )

    def selected(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of these columns; None: of all. Raises ConfigError: one cannot be read."""
        names = [*self.schema.names, *self.unreadable] if columns is None else list(columns)
        for name in names:
            self.check_readable(name)
        return pa.schema([self.schema.field(name) for name in names])

    def check_same(self, wanted: pa.Schema) -> None:
        """Raises ConfigError unless the columns that a job was started with are still there, by their ids."""
        held = {id_of(field): field for field in self.schema}
        for field in wanted:
            found = held.get(id_of(field))
            if found is None:
                raise ConfigError(
                    f"{self.where} has no column {field.name!r} any more; there are "
                    f"{', '.join(self.schema.names)}; start the job again"
                )
            if not plain_type(found.type).equals(plain_type(field.type)):
                raise ConfigError(
                    f"{self.where}: column {found.name!r} is {plain_type(found.type)} now, and was "
                    f"{plain_type(field.type)} when the job was built; start the job again"
                )


def table_columns(where: str, schema: Schema) -> TableColumns:
    unreadable = {
        field.name: kind for field in schema.fields if (kind := _unreadable(field.field_type)) is not None
    }
    fields = [_field(field) for field in schema.fields if field.name not in unreadable]
    return TableColumns(where=where, schema=pa.schema(fields), unreadable=unreadable)


def key_columns(schemas: Iterable[Schema]) -> pa.Schema:
    """Columns by which rows may have been deleted, of all schemas, the newest first: also of those that are
    not in the table any more. Each is named by its id."""
    found: dict[int, pa.Field] = {}
    for schema in schemas:
        for field in schema.fields:
            is_plain = field.field_type.is_primitive and _unreadable(field.field_type) is None
            if is_plain and field.field_id not in found:
                found[field.field_id] = _field(field).with_name(key_name(field.field_id))
    return pa.schema([found[id_].with_nullable(True) for id_ in sorted(found)])


def key_name(field_id: int) -> str:
    return f"#{field_id}"


def _unreadable(kind: IcebergType) -> str | None:
    match kind:
        case StructType():
            inner = [field.field_type for field in kind.fields]
        case ListType():
            inner = [kind.element_type]
        case MapType():
            inner = [kind.key_type, kind.value_type]
        case _:
            return _UNREADABLE.get(type(kind))
    return next((found for one in inner if (found := _unreadable(one)) is not None), None)


def _field(field: NestedField) -> pa.Field:
    made = pa.field(field.name, _type(field.field_type), not field.required)
    return with_id(made, field.field_id, _default(field))


def _default(field: NestedField) -> bytes | None:
    value: Any = field.initial_default
    if value is None or not field.field_type.is_primitive:
        return None
    return bytes(to_bytes(field.field_type, value))


def _type(kind: IcebergType) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(field) for field in kind.fields])
        case ListType():
            return pa.list_(_field(kind.element_field))
        case MapType():
            return pa.map_(_field(kind.key_field), _field(kind.value_field))
    return _ARROW[kind] if kind in _ARROW else schema_to_pyarrow(kind)
