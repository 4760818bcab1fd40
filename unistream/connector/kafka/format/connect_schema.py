"""Schemas of Kafka Connect, as its JSON converter writes them in front of each value (`schemas.enable=true`):

    {"schema": {"type": "struct", "fields": [{"field": "price", "type": "bytes", "optional": true,
        "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}, …]}, "payload": {…}}

`type` says how a value is written, `name` what it means. Both are fixed by Connect
(`org.apache.kafka.connect.data`) and by Debezium (`io.debezium.data`, `io.debezium.time`: "data type
mappings" in the documentation of its connectors). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
DATES: Final = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
TIMES: Final = {
    "io.debezium.time.Time": "ms",
    "org.apache.kafka.connect.data.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
}
"""Times of day that are numbers -> their unit."""
TIMESTAMPS: Final = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
"""Times that are numbers since 1970 -> their unit."""
TEXT_DATE: Final = "io.debezium.time.IsoDate"
TEXT_TIMES: Final = frozenset({"io.debezium.time.IsoTime", "io.debezium.time.ZonedTime"})
TEXT_TIMESTAMPS: Final = frozenset({"io.debezium.time.IsoTimestamp", "io.debezium.time.ZonedTimestamp"})
BYTES: Final = "bytes"
STRING: Final = "string"


class _Written(msgspec.Struct):
    type: str = ""
    name: str | None = None
    field: str | None = None
    parameters: dict[str, str] | None = None
    fields: list[_Written] = []
    items: _Written | None = None
    values: _Written | None = None


class _Schema(msgspec.Struct):
    fields: list[_Written] = []


@dataclass(frozen=True, slots=True)
class ConnectType:
    """The type of a value.

    Attributes:
        type: How it is written: "int64", "string", "bytes", "struct", "array", …
        name: What it means; "": what it is.
        scale: Of a decimal.
        fields: Of a struct.
        items: Of an array.
    """

    type: str
    name: str = ""
    scale: int = 0
    fields: Mapping[str, ConnectType] = field(default_factory=lambda: MappingProxyType({}))
    items: ConnectType | None = None


UNKNOWN: Final = ConnectType("")
"""The type of a value without a schema."""


def image_types(schema: bytes | None) -> Mapping[str, ConnectType]:
    """Types of the columns of a table, by the schema of its change events; none of a text that is no such
    schema.

    >>> image_types(
    ...     b'{"type":"struct","fields":[{"field":"after","type":"struct","fields":[{"field":"price",'
    ...     b'"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}}]}]}'
    ... )["price"].scale
    2
    """
    if schema is None:
        return {}
    try:
        written = msgspec.json.decode(schema, type=_Schema)
    except UNDECODABLE:
        return {}
    found: dict[str, ConnectType] = {}
    for image in written.fields:
        if image.field in ("before", "after"):
            found |= _type(image).fields
    return found


def _type(written: _Written) -> ConnectType:
    scale = (written.parameters or {}).get("scale", "0")
    return ConnectType(
        type=written.type,
        name=written.name or "",
        scale=int(scale) if scale.lstrip("-").isdecimal() else 0,
        fields={one.field: _type(one) for one in written.fields if one.field is not None},
        items=None if written.items is None else _type(written.items),
    )
