"""Columns of a table by their ids: what rows have, where they are in a file, and how they get there.

A schema here is Arrow's, in which each field, also inside structs, lists and maps, has its id in the metadata
(``PARQUET:field_id``), as in the files, and its default value (`DEFAULT`). So the columns of a table travel
to where its files are read. So are those of an Iceberg table, and of a Delta table with column mapping.

    renamed      the id is the same
    added        the id is not in older files: the default value, or null
    dropped, and added again under its name: another id
    widened      cast
    no ids       by the name mapping of the table; a file without both is refused
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.connector.common.single_values import arrow_value

FIELD_ID: Final = b"PARQUET:field_id"
DEFAULT: Final = b"unistream.default"
"""Binary form of a value, in base64."""


def id_of(field: pa.Field) -> int | None:
    """The id of a column; None: it has none."""
    found = (field.metadata or {}).get(FIELD_ID)
    return None if found is None else int(found)


def with_id(field: pa.Field, id_: int, default: bytes | None = None) -> pa.Field:
    metadata = {FIELD_ID: str(id_).encode()}
    if default is not None:
        metadata[DEFAULT] = base64.b64encode(default)
    return field.with_metadata(metadata)


def default_of(field: pa.Field) -> pa.Scalar:
    """The default value of a column; null: it has none."""
    found = (field.metadata or {}).get(DEFAULT)
    return arrow_value(None if found is None else base64.b64decode(found), field.type)


def plain_field(field: pa.Field) -> pa.Field:
    """The field as the rows have it: without ids and defaults."""
    return pa.field(field.name, plain_type(field.type), field.nullable)


def plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([plain_field(one) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(plain_field(kind.key_field), plain_field(kind.item_field))
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([plain_field(field) for field in schema])


# --- files without ids ----------------------------------------------------------------------------


class NamedField(msgspec.Struct, frozen=True, rename={"field_id": "field-id"}):
    """One entry of a name mapping, as the table has it (``schema.name-mapping.default``)."""

    names: list[str] = []
    field_id: int | None = None
    fields: list[NamedField] = []


def name_mapping(where: str, text: str | None) -> list[NamedField] | None:
    """Reads the name mapping of a table; None: it has none. Raises ConfigError: it is unreadable."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=list[NamedField])
    except UNDECODABLE as error:
        raise ConfigError(f"{where}: its name mapping is unreadable: {error}") from error


def identified(
    where: str, found: pa.Schema, mapping: Sequence[NamedField] | None, *, by_name: bool = False
) -> pa.Schema:
    """The columns of a file, with ids. `by_name`: also if it has its own. Raises ConfigError: nothing says
    which ones they are."""
    if not len(found) or (any(_has_id(field) for field in found) and not by_name):
        return found
    if mapping is None:
        raise ConfigError(
            f"{where} has no field ids, and the table has no name mapping (schema.name-mapping.default), so "
            "nobody knows which columns these are; set the mapping, or write the file again"
        )
    return pa.schema([_mapped(field, mapping) for field in found])


def _has_id(field: pa.Field) -> bool:
    return id_of(field) is not None or any(_has_id(one) for one in _children(field.type))


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_field]
    return [kind.key_field, kind.item_field] if pa.types.is_map(kind) else []


def _mapped(field: pa.Field, mapping: Sequence[NamedField], name: str = "") -> pa.Field:
    found = next((one for one in mapping if (name or field.name) in one.names), None)
    if found is None:
        return field
    kind, inner = field.type, found.fields
    if pa.types.is_struct(kind):
        kind = pa.struct([_mapped(one, inner) for one in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_mapped(kind.value_field, inner, "element"))
    elif pa.types.is_map(kind):
        kind = pa.map_(_mapped(kind.key_field, inner, "key"), _mapped(kind.item_field, inner, "value"))
    mapped = field.with_type(kind)
    return mapped if found.field_id is None else with_id(mapped, found.field_id)


# --- columns of a file ----------------------------------------------------------------------------


def stored_columns(where: str, found: pa.Schema, wanted: pa.Schema) -> dict[str, pa.Field]:
    """Column of the rows -> that of the file with its id, if there is one. Raises ConfigError: there are two
    of that name or id, so that it cannot be read by either."""
    by_id: dict[int, pa.Field] = {}
    names = found.names
    for field in found:
        id_ = id_of(field)
        if id_ is not None:
            if id_ in by_id:
                raise ConfigError(f"{where} has two columns with the field id {id_}")
            by_id[id_] = field
    present = {field.name: by_id[id_] for field in wanted if (id_ := id_of(field)) in by_id}
    for field in present.values():
        if names.count(field.name) > 1:
            raise ConfigError(f"{where} has more than one column {field.name!r}")
    return present


def conformed(
    where: str,
    table: pa.Table,
    stored: Mapping[str, pa.Field],
    wanted: pa.Schema,
    constants: Mapping[str, pa.Scalar],
) -> pa.Table:
    """The columns of `wanted`, without ids, in its order and types.

    Args:
        where: For messages.
        table: Read from a file; it has the columns of `stored`.
        stored: See `stored_columns`.
        wanted: With ids.
        constants: Values of columns that are the same in all rows of the file, which does not have them.

    Raises:
        ConfigError: a column that may not be null is not in the file.
        pyarrow.ArrowInvalid, ArrowNotImplementedError: values have no form in the table's type.
    """
    columns = []
    for field in wanted:
        if (held := stored.get(field.name)) is not None:
            column = table.column(held.name)
            kind = plain_type(field.type)
            chunks = [_as(where, chunk, held, field) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, kind))
        elif field.name in constants:
            columns.append(pa.repeat(constants[field.name], table.num_rows))
        else:
            columns.append(_missing(where, field, table.num_rows))
    return pa.table(columns, schema=plain_schema(wanted))


def _missing(where: str, field: pa.Field, rows: int) -> pa.Array:
    default = default_of(pa.field(field.name, plain_type(field.type), metadata=field.metadata))
    if not default.is_valid and not field.nullable:
        raise ConfigError(f"{where} has no column {field.name!r}, which may not be null and has no default")
    return pa.repeat(default, rows)


def _as(where: str, array: pa.Array, held: pa.Field, wanted: pa.Field) -> pa.Array:
    kind = wanted.type
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _as_struct(where, array, held, wanted)
    if pa.types.is_list(kind) and _is_list(array.type):
        offsets, nulls = _offsets(array := _whole(array))
        values = _as(where, array.values, held.type.value_field, kind.value_field)
        return pa.ListArray.from_arrays(offsets, values, type=plain_type(kind), mask=nulls)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        offsets, nulls = _offsets(array := _whole(array))
        keys = _as(where, array.keys, held.type.key_field, kind.key_field)
        items = _as(where, array.items, held.type.item_field, kind.item_field)
        return pa.MapArray.from_arrays(offsets, keys, items, type=plain_type(kind), mask=nulls)
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(array.type, pa.BaseExtensionType):
        return kind.wrap_array(array.cast(kind.storage_type))
    if isinstance(array.type, pa.BaseExtensionType) and not isinstance(kind, pa.BaseExtensionType):
        array = array.storage
    return array.cast(kind)


def _as_struct(where: str, array: pa.StructArray, held: pa.Field, wanted: pa.Field) -> pa.Array:
    fields = list(wanted.type)
    stored = stored_columns(where, pa.schema(list(held.type)), pa.schema(fields))
    places = {field.name: index for index, field in enumerate(held.type)}
    children = [
        _as(where, array.field(places[stored[field.name].name]), stored[field.name], field)
        if field.name in stored
        else _missing(where, field, len(array))
        for field in fields
    ]
    plain = [plain_field(field) for field in fields]
    nulls = array.is_null() if array.null_count else None
    if not children:
        return pa.array([None if not one else {} for one in array.is_valid().to_pylist()], pa.struct([]))
    return pa.StructArray.from_arrays(children, fields=plain, mask=nulls)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _whole(array: Any) -> Any:
    """The array as one of its own, not a slice of another one, whose offsets would begin elsewhere."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _offsets(array: Any) -> tuple[pa.Array, pa.Array | None]:
    return array.offsets.cast(pa.int32()), array.is_null() if array.null_count else None
