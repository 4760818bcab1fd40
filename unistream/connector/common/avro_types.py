"""Types of Avro as those of Arrow: what a schema has by itself, and how far it fits columns that are wanted.
Pure.

    boolean, int, long, float, double, string, bytes    bool, int32, int64, float, double, string, binary
    fixed, enum, record, array, map                     binary(n), string, struct, list, map<string, …>
    decimal (up to 38 digits), dates, times             the same
    uuid, duration, other logical types                 what is stored: text or bytes
    a union with null                                   the other type; all columns may be null
    a union of several types, a record inside itself    no column
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa

from unistream.connector.common.avro_schema import (
    AvroSchema,
    ParsedSchema,
    UnknownSchema,
    alike,
    family,
    kind_of,
)

_NUMBERS: Final = ("int", "long", "float", "double")  # each is one of those behind it


class NoColumn(UnknownSchema):
    """A schema is known, and no column holds its values."""


class Types:
    """The Arrow types of the fields of one schema."""

    def __init__(self, schema: ParsedSchema) -> None:
        self._schema = schema
        self._inside: list[str] = []

    def of(self, schema: AvroSchema, name: str) -> pa.DataType:
        """The Arrow type of a field. `name`: of the field, for messages. Raises NoColumn."""
        found = self.found(schema, name)
        match found["type"]:
            case "null":
                return pa.null()
            case "record" | "error":
                return self._struct(found, name)
            case "array":
                return pa.list_(self.of(found["items"], name))
            case "map":
                return pa.map_(pa.string(), self.of(found["values"], name))
            case "fixed" if "logicalType" not in found:
                return pa.binary(found["size"])
            case _:
                return kind_of(found)

    def _struct(self, found: AvroSchema, name: str) -> pa.DataType:
        if found["name"] in self._inside:
            raise NoColumn(f"field {name!r} of {self._schema.called} has records that hold themselves")
        self._inside.append(found["name"])
        fields = [
            pa.field(one["name"], self.of(one["type"], f"{name}.{one['name']}")) for one in found["fields"]
        ]
        self._inside.pop()
        return pa.struct(fields)

    def found(self, schema: AvroSchema, name: str) -> Any:
        """The type of a field without a union with null, and without names. Raises NoColumn: it is a union of
        several types."""
        others = self.branches(schema)
        if len(others) > 1:
            shown = ", ".join(_called(one) for one in others)
            raise NoColumn(f"field {name!r} of {self._schema.called} has values of several types ({shown})")
        [found] = others or [{"type": "null"}]
        return found

    def branches(self, schema: AvroSchema) -> list[Any]:
        """The types that values other than null may have."""
        if isinstance(schema, list):
            return [found for one in schema for found in self.branches(one)]
        if isinstance(schema, str):
            if schema not in self._schema.names:
                return [] if schema == "null" else [{"type": schema}]
            return [self._schema.names[schema]]
        if not isinstance(schema["type"], str) or schema["type"] in self._schema.names:
            return self.branches(schema["type"])
        return [] if schema["type"] == "null" else [schema]


def _called(schema: Any) -> str:
    return str(schema.get("name", schema.get("logicalType", schema["type"])))


def arrow_schema(schema: ParsedSchema, columns: Collection[str] | None = None) -> pa.Schema:
    """The columns that records have by themselves; `columns`: those that are read, None: all.

    Raises:
        NoColumn: one of them is none. Another one is left out.
    """
    types, fields = Types(schema), []
    for one in schema.root["fields"]:
        try:
            fields.append(pa.field(one["name"], types.of(one["type"], one["name"])))
        except NoColumn:
            if columns is None or one["name"] in columns:
                raise
    return pa.schema(fields)


def read_as(schema: ParsedSchema, wanted: pa.Schema) -> dict[str, pa.DataType]:
    """The types of the wanted columns that there are: their shape as it is wanted, with the values as they
    are written."""
    types, fields = Types(schema), {one["name"]: one["type"] for one in schema.root["fields"]}
    return {
        field.name: _read_as(types, fields[field.name], field.type)
        for field in wanted
        if field.name in fields
    }


def _read_as(types: Types, schema: AvroSchema, wanted: pa.DataType) -> pa.DataType:
    of_family = [one for one in types.branches(schema) if _shape(_shallow(one)) == _shape(wanted)]
    if len(of_family) != 1:
        others = types.branches(schema)
        return _shallow(others[0]) if len(others) == 1 and _is_leaf(others[0]) else wanted
    [found] = of_family
    match found["type"]:
        case "record" | "error":
            inner = {one["name"]: one["type"] for one in found["fields"]}
            return pa.struct(
                [
                    pa.field(
                        one.name,
                        _read_as(types, inner[one.name], one.type) if one.name in inner else one.type,
                    )
                    for one in wanted
                ]
            )
        case "array":
            return pa.list_(wanted.value_field.with_type(_read_as(types, found["items"], wanted.value_type)))
        case "map":
            item = wanted.item_field.with_type(_read_as(types, found["values"], wanted.item_type))
            return pa.map_(wanted.key_field, item)
        case _:
            return _shallow(found)


def _shape(kind: pa.DataType) -> str:
    """What a type has to share with another one to be read as it: lists and maps count without their items; a
    dictionary is what its values are."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list"
    return "map" if pa.types.is_map(kind) else family(kind)


def _is_leaf(schema: Any) -> bool:
    return schema["type"] not in ("record", "error", "array", "map")


def _shallow(schema: Any) -> pa.DataType:
    match schema["type"]:
        case "record" | "error":
            return pa.struct([])
        case "array":
            return pa.list_(pa.null())
        case "map":
            return pa.map_(pa.string(), pa.null())
        case _:
            return kind_of(schema)


def unfit_fields(
    types: Types, schema: AvroSchema, wanted: pa.DataType, name: str
) -> Iterator[tuple[str, str]]:
    """Why values cannot be read as they are wanted: (field, reason); no reason: there is no such field."""
    branches = types.branches(schema)
    if len(branches) != 1:
        return  # always null; or the values show it
    [found] = branches
    match found["type"]:
        case "record" | "error" if pa.types.is_struct(wanted):
            inner = {one["name"]: one["type"] for one in found["fields"]}
            for one in wanted:
                if one.name in inner:
                    yield from unfit_fields(types, inner[one.name], one.type, f"{name}.{one.name}")
                else:
                    yield f"{name}.{one.name}", ""
        case "array" if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
            yield from unfit_fields(types, found["items"], wanted.value_type, f"{name}[]")
        case "map" if pa.types.is_map(wanted):
            yield from unfit_fields(types, found["values"], wanted.item_type, f"{name}[]")
        case kind:
            if not _is_leaf(found) or not _promotes(found, wanted):
                shown = kind if not _is_leaf(found) else kind_of(found)
                yield name, f"is {shown}, expected {wanted}"


def _promotes(schema: Any, wanted: pa.DataType) -> bool:
    """Whether every value that is written is one that is wanted, as Avro has it; or nearly so: a long as a
    double, which is checked where it is read."""
    if pa.types.is_dictionary(wanted):
        wanted = wanted.value_type
    found = kind_of(schema)
    if pa.types.is_integer(found) and pa.types.is_integer(wanted):
        signed = pa.types.is_signed_integer(wanted)
        return bool(found.bit_width <= wanted.bit_width) if signed else False
    if pa.types.is_floating(found) and pa.types.is_floating(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    if pa.types.is_floating(found) and pa.types.is_integer(wanted):
        return False
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return bool(found.tz == wanted.tz)
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= found.precision - found.scale
        return bool(whole and wanted.scale >= found.scale)
    return alike(found, wanted)
