"""How the bytes of a value or a key become columns: one class for each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.connector.common import AvroRecord, Decoded, JsonReader, RecordCells, binary_array, merged
from unistream.connector.kafka.format.avro import AvroDecoder, RegistryAvroDecoder
from unistream.connector.kafka.format.debezium import DebeziumDecoder
from unistream.connector.kafka.format.framing import not_framed, unframed
from unistream.connector.kafka.format.layout import BYTES, DEBEZIUM
from unistream.connector.kafka.format.protobuf import ProtobufDecoder, RegistryProtobufDecoder
from unistream.connector.kafka.format.protobuf_schema import ProtobufMessage
from unistream.connector.kafka.format.registry import SchemaRegistry
from unistream.connector.kafka.record.records import Framed

Format: TypeAlias = Literal[
    "json",
    "bytes",
    "json-confluent",
    "avro",
    "avro-confluent",
    "protobuf",
    "protobuf-confluent",
    "debezium-json",
]
FORMATS: Final = (
    "json",
    "bytes",
    "json-confluent",
    "avro",
    "avro-confluent",
    "protobuf",
    "protobuf-confluent",
    DEBEZIUM,
)
KEY_FORMATS: Final = tuple(one for one in FORMATS if one not in (DEBEZIUM, "avro", "protobuf"))
EXTRAS: Final = {
    "avro": "avro",
    "avro-confluent": "avro",
    "protobuf": "protobuf",
    "protobuf-confluent": "protobuf",
}
"""What a format needs to be installed."""
BY_REGISTRY: Final = ("avro-confluent", "protobuf-confluent")
"""Formats whose schemas are looked up."""
_DECLARED: Final[Mapping[str, tuple[type, Callable[..., BytesDecoder], str]]] = {
    "protobuf": (
        ProtobufMessage,
        ProtobufDecoder,
        "the type of the messages: message=us.ProtobufMessage(…)",
    ),
    "avro": (
        AvroRecord,
        AvroDecoder,
        'the schema of the records: message=us.AvroRecord(…); with a schema registry it is "avro-confluent"',
    ),
}
"""Formats whose `message` is declared: its class, the decoder, and what is needed."""
NO_CHANGES: Final[Mapping[str, str]] = MappingProxyType({})


class BytesDecoder(Protocol):
    """Decoder of one schema."""

    def decode(self, framed: Framed) -> Decoded:
        """The values of all records, without those that have none: they are neither rows nor bad. Never
        raises for bad data."""

    def close(self) -> None: ...


def bytes_decoder(
    schema: pa.Schema,
    kind: str,
    *,
    registry: SchemaRegistry | None,
    changes: Mapping[str, str] = NO_CHANGES,
    message: AvroRecord | ProtobufMessage | None = None,
    used: frozenset[str] | None = None,
) -> BytesDecoder:
    """The decoder of a format. `changes`: see `KafkaRowLayout`. `used`: columns that are needed, None: all;
    others may be left out.

    Raises:
        ConfigError: a type cannot be read in this format, or it needs a registry.
    """
    if kind in EXTRAS:
        require(EXTRAS[kind], f'a Kafka source with format="{kind}"')
    if kind in BY_REGISTRY:
        if registry is None:
            raise ConfigError(f'format="{kind}" needs a registry: schema_registry="http://HOST:PORT"')
        registry_decoder = RegistryAvroDecoder if kind == "avro-confluent" else RegistryProtobufDecoder
        return registry_decoder(schema, registry)
    if kind in _DECLARED:
        declared, decoder, needs = _DECLARED[kind]
        if not isinstance(message, declared):
            raise ConfigError(f'format="{kind}" needs {needs}')
        return decoder(schema, message)
    if kind == DEBEZIUM:
        return DebeziumDecoder(schema, changes)
    if kind == BYTES:
        return _Raw(schema)
    if kind == "json-confluent":
        return _FramedJson(schema, used)
    return _Json(schema, used)


def json_decoded(reader: JsonReader, framed: Framed) -> Decoded:
    """The values that there are."""
    rows = np.flatnonzero(framed.value_lengths >= 0)
    found = reader.read(framed.data, framed.value_starts[rows], framed.value_lengths[rows])
    return Decoded(found.records, found.rows, found.bad, found.reasons).at(rows)


class _Json:
    def __init__(self, schema: pa.Schema, used: frozenset[str] | None) -> None:
        self._reader = JsonReader(schema, used)

    def decode(self, framed: Framed) -> Decoded:
        return json_decoded(self._reader, framed)

    def close(self) -> None:
        """Does nothing: the decoder holds no resource."""


class _FramedJson:
    """JSON behind the number of a JSON Schema, by which producers have checked it: here the columns count."""

    def __init__(self, schema: pa.Schema, used: frozenset[str] | None) -> None:
        self._reader = JsonReader(schema, used)

    def decode(self, framed: Framed) -> Decoded:
        values, rows, _ = unframed(framed)
        found = json_decoded(self._reader, values).at(rows)
        return merged(self._reader.schema, [found, not_framed(framed, self._reader.schema, rows)])

    def close(self) -> None:
        """Does nothing: the decoder holds no resource."""


class _Raw:
    """One column of bytes or text as they are; text has to be UTF-8."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, framed: Framed) -> Decoded:
        rows = np.flatnonzero(framed.value_lengths >= 0)
        raw = binary_array(framed.data, framed.value_starts[rows], framed.value_lengths[rows])
        [column] = self._schema

        def build(low: int, high: int) -> pa.Array:
            return raw.slice(low, high - low).cast(column.type)

        return RecordCells(self._schema, len(rows), {}).decoded({column.name: build}).at(rows)

    def close(self) -> None:
        """Does nothing: the decoder holds no resource."""
