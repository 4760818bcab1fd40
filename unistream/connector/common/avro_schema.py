"""Schemas of Avro as lists of operations, for the compiled loops of `avro_kernels`. Pure.

parsed        a schema, with those that it refers to
arrow_schema  the columns that it has by itself
Flat          its operations, and the columns that come of them; NotFlat if there are none
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError

NULL, BOOLEAN, VARINT, FLOAT, DOUBLE, BLOB, FIXED, RECORD = range(8)
"""What an operation reads. A record is what follows; it is passed over if it is null."""
REQUIRED, NULL_FIRST, NULL_SECOND, ALONE = range(4)
"""Whether a value is without a union, in one with null (and where null is in it), or in a union of its
own."""

_PRIMITIVE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_TIMES: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    **{f"timestamp-{name}": pa.timestamp(unit, tz="UTC") for name, unit in _UNITS.items()},
    **{f"local-timestamp-{name}": pa.timestamp(unit) for name, unit in _UNITS.items()},
}
_STORED: Final = {name: "int" if name in ("date", "time-millis") else "long" for name in _TIMES}
DIGITS_MAX: Final = 38  # of a decimal, in the 128 bits that a column has for it
AvroSchema: TypeAlias = Any
"""A schema as JSON has it: a name, a list (a union), or an object."""


class UnknownSchema(Exception):
    """A schema is not known, or cannot be read; the text is a clause about a record."""


class AvroRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A schema of Avro, for ``format="avro"``: of a Kafka source the one that the records of its topic were
    written by; as `schema` of a file source the one that files of any version are read by.

    Attributes:
        schema: JSON text, or the path of a file with it (``orders.avsc``).

    Raises:
        ConfigError: the file cannot be read.

    >>> fields = '[{"name": "id", "type": "long"}]'
    >>> AvroRecord(schema='{"type": "record", "name": "Order", "fields": ' + fields + "}").schema[:18]
    '{"type": "record",'
    """

    schema: str

    def __post_init__(self) -> None:
        if not self.schema.lstrip().startswith("{"):
            try:
                text = Path(self.schema).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"AvroRecord: {self.schema}: {error}") from None
            msgspec.structs.force_setattr(self, "schema", text)

    def __repr__(self) -> str:
        return f"AvroRecord({len(self.schema)} characters)"


def parsed(called: str, text: str, used: Sequence[str] = ()) -> ParsedSchema:
    """
    Args:
        called: In errors.
        text: JSON.
        used: Schemas that it refers to.

    Raises:
        UnknownSchema: it is none of Avro, or not of a record.
    """
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    names: dict[str, AvroSchema] = {}
    plain_names: dict[str, AvroSchema] = {}
    found: AvroSchema = None
    plain: AvroSchema = None
    try:
        for one in (*used, text):
            schema = json.loads(one)
            found = parse_schema(_keeping(schema, _is_known), named_schemas=names)
            plain = parse_schema(_keeping(schema, _is_decimal), named_schemas=plain_names)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnknownSchema(f"{called} cannot be read: {error!r}") from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise UnknownSchema(f"{called} is not one of a record")
    return ParsedSchema(called, found, names, plain)


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A schema that was read. `names`: of all types that it has or refers to; `plain`: the same for fastavro,
    which gives numbers of times then."""

    called: str
    root: AvroSchema
    names: Mapping[str, AvroSchema]
    plain: AvroSchema


def _keeping(schema: AvroSchema, is_kept: Callable[[Mapping[str, Any]], bool]) -> AvroSchema:
    """Drops the logical types that are not kept: what is stored counts, as Avro has it for those that one
    does not know."""
    if isinstance(schema, list):
        return [_keeping(one, is_kept) for one in schema]
    if isinstance(schema, dict):
        kept = is_kept(schema)
        return {
            key: one if key == "default" else _keeping(one, is_kept)
            for key, one in schema.items()
            if kept or key != "logicalType"
        }
    return schema


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is a decimal, and one that a column holds."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        schema.get("logicalType") == "decimal"
        and schema.get("type") in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 0 < precision <= DIGITS_MAX
        and 0 <= scale <= precision
    )


def _is_known(schema: Mapping[str, Any]) -> bool:
    return _is_decimal(schema) or (
        schema.get("logicalType") in _TIMES and schema.get("type") == _STORED[schema["logicalType"]]
    )


class NotFlat(Exception):
    """The operations are not the same for each record."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value. `kind`: its type, as the writer has it; `symbols`: of an enum."""

    slot: int
    kind: pa.DataType
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a record. `fields`: those that are read."""

    slot: int
    fields: Mapping[str, Leaf | Record]


@dataclass(slots=True)
class Flat:
    """Operations of a schema, as they are found on the way through it.

    Each is: what it reads, which branch of its union is null, an argument, and the slot of its values (-1:
    they are skipped).
    """

    names: Mapping[str, AvroSchema]
    called: str
    operations: list[tuple[int, int, int, int]] = field(default_factory=list)
    slots: int = 0
    _inside: list[str] = field(default_factory=list)

    def record(self, schema: AvroSchema, wanted: pa.DataType | None, null: int = REQUIRED) -> Record:
        """Raises NotFlat, or UnknownSchema if a field does not fit its column."""
        if schema["name"] in self._inside:
            raise NotFlat
        self._inside.append(schema["name"])
        slot = self._slot(wanted)
        at = len(self.operations)
        self.operations.append((RECORD, null, 0, slot))
        fields = {}
        for one in schema["fields"]:
            kind = None
            if wanted is not None and wanted.get_field_index(one["name"]) >= 0:
                kind = wanted.field(one["name"]).type
            node = self._value(one["type"], kind, one["name"])
            if kind is not None and node is not None:
                fields[one["name"]] = node
        self.operations[at] = (RECORD, null, len(self.operations) - at - 1, slot)
        self._inside.pop()
        return Record(slot, fields)

    def _slot(self, wanted: pa.DataType | None) -> int:
        if wanted is None:
            return -1
        self.slots += 1
        return self.slots - 1

    def _value(
        self, schema: AvroSchema, wanted: pa.DataType | None, name: str, null: int | None = None
    ) -> Leaf | Record | None:
        """Adds the operations of a value; None: it is always null."""
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            if null is not None or len(schema) > 2 or len(others) > 1:
                raise NotFlat
            branch = ALONE
            if len(schema) == 2:
                branch = NULL_FIRST if schema[0] == "null" else NULL_SECOND
            return self._value(others[0] if others else "null", wanted, name, branch)
        if isinstance(schema, dict) and not isinstance(schema["type"], str):
            return self._value(schema["type"], wanted, name, null)
        found = self.names.get(schema, {"type": schema}) if isinstance(schema, str) else schema
        optional = REQUIRED if null is None else null
        if found["type"] in ("array", "map"):
            raise NotFlat
        if found["type"] in ("record", "error"):
            _check_fits(name, pa.struct([]), wanted, self.called)
            return self.record(found, wanted, optional)
        if found["type"] == "null":
            self.operations.append((NULL, optional, 0, -1))
            return None
        if found["type"] in self.names:
            return self._value(found["type"], wanted, name, null)
        kind = kind_of(found)
        _check_fits(name, kind, wanted, self.called)
        slot = self._slot(wanted)
        self.operations.append((_operation(found), optional, int(found.get("size", 0)), slot))
        return Leaf(slot, kind, tuple(found.get("symbols", ())))


def _operation(schema: Mapping[str, Any]) -> int:
    kinds: dict[str, int] = {
        "boolean": BOOLEAN,
        "int": VARINT,
        "long": VARINT,
        "enum": VARINT,
        "float": FLOAT,
        "double": DOUBLE,
        "string": BLOB,
        "bytes": BLOB,
        "fixed": FIXED,
    }
    return kinds[schema["type"]]


def kind_of(schema: Mapping[str, Any]) -> pa.DataType:
    """The Arrow type that a value has by itself."""
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        return _TIMES[logical]
    if schema["type"] == "enum":
        return pa.string()
    return pa.binary() if schema["type"] == "fixed" else _PRIMITIVE[schema["type"]]


def _check_fits(name: str, kind: pa.DataType, wanted: pa.DataType | None, called: str) -> None:
    if wanted is not None and not alike(kind, wanted):
        shown = "a record" if pa.types.is_struct(kind) else str(kind)
        raise UnknownSchema(f"field {name!r} of {called} is {shown}, where the source has {wanted}")


def alike(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Values of the one are cast to the other, if they allow it. For Avro text is bytes, and the reverse."""
    families = {family(kind), family(wanted)}
    return len(families) == 1 or families == {"text", "bytes"}


def family(kind: pa.DataType) -> str:
    """Types in one of them are cast to each other, if the value allows it."""
    types = pa.types
    for name, tests in (
        ("number", (types.is_integer, types.is_floating)),
        ("text", (types.is_string, types.is_large_string)),
        ("bytes", (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)),
        ("decimal", (types.is_decimal,)),
        ("timestamp", (types.is_timestamp,)),
        ("time", (types.is_time,)),
        ("date", (types.is_date,)),
        ("struct", (types.is_struct,)),
    ):
        if any(test(kind) for test in tests):
            return name
    return family(kind.value_type) if types.is_dictionary(kind) else str(kind)
