"""Avro values of records: each with the number of the schema that it was written by, or all by one that is
declared. See `unistream.connector.common.avro_columns`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector import common
from unistream.connector.kafka.format.framing import by_schema
from unistream.connector.kafka.format.registry import RegisteredSchema, RegistryClient, SchemaRegistry
from unistream.connector.kafka.record.records import Framed


class AvroDecoder:
    """See `unistream.connector.kafka.format.formats.BytesDecoder`: of records of one schema.

    Raises ConfigError: it is none, or its fields are not those of the columns.
    """

    def __init__(self, schema: pa.Schema, record: common.AvroRecord) -> None:
        self._schema = schema
        try:
            self._plan = common.planned(common.parsed("its schema", record.schema), schema)
        except common.UnknownSchema as problem:
            raise ConfigError(f"AvroRecord: {problem}") from None

    def decode(self, framed: Framed) -> common.Decoded:
        rows = np.flatnonzero(framed.value_lengths >= 0)
        return decoded(self._plan, framed.at(rows), self._schema).at(rows)

    def close(self) -> None:
        """Does nothing: the decoder holds no resource."""


class RegistryAvroDecoder:
    """Decodes records in the wire format of a registry: each behind the number of its schema.

    Raises (`decode`):
        ConfigError: the registry refuses this user.
        Unreachable: the registry does not answer.
    """

    def __init__(self, schema: pa.Schema, registry: SchemaRegistry) -> None:
        self._schema = schema
        self._registry = RegistryClient(registry)
        self._plans: dict[int, common.AvroPlan] = {}

    def decode(self, framed: Framed) -> common.Decoded:
        return by_schema(framed, self._schema, self._of_schema)

    def close(self) -> None:
        self._registry.close()

    def _of_schema(self, number: int, framed: Framed) -> common.Decoded:
        if number not in self._plans:
            registered = self._registry.schema(number)
            used = [schema for _, schema in self._registry.referenced(registered)]
            found = parsed_registered(f"schema {number} of the registry", registered, used)
            self._plans[number] = common.planned(found, self._schema)
        return decoded(self._plans[number], framed, self._schema)


def parsed_registered(
    called: str, registered: RegisteredSchema, used: Sequence[RegisteredSchema]
) -> common.ParsedSchema:
    """See `parsed`."""
    for one in (*used, registered):
        if one.kind != "AVRO":
            raise common.UnknownSchema(f"{called} is {one.kind}, not AVRO")
    return common.parsed(called, registered.text, [one.text for one in used])


def decoded(plan: common.AvroPlan, framed: Framed, schema: pa.Schema) -> common.Decoded:
    """Values that there are."""
    return plan.decode(framed.data, framed.value_starts, framed.value_lengths, schema)
