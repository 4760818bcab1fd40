"""Which column of a row is made of which part of a record: its value, its key, or what Kafka says of it.

    schema        the columns of value and key, by name
    key_fields    those of the key; without a prefix, if there is one, the names of the fields in it
    metadata      column -> what it has, as METADATA FROM of Flink SQL: offset, timestamp, headers, …

A column of metadata that the schema names has its place and type from there; others follow behind. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from unistream.base.errors import ConfigError

Tombstones: TypeAlias = Literal["skip", "row"]
TOMBSTONES: Final = ("skip", "row")
BYTES: Final = "bytes"

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
)
_TIME: Final = pa.timestamp("ms", tz="UTC")
_RAW: Final = (pa.binary(), pa.large_binary())

METADATA: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "topic": (pa.string(), pa.large_string()),
    "partition": (pa.int32(), pa.int64()),
    "offset": (pa.int64(),),
    "timestamp": (_TIME, pa.timestamp("ms"), pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.int64()),
    "headers": (HEADERS_TYPE,),
    "key": _RAW,
    "value": _RAW,
    "tombstone": (pa.bool_(),),
}
"""What a column of metadata may have -> its types, the first of which it has if the schema names none."""
_TIMES: Final = (_TIME, pa.timestamp("us", tz="UTC"))
_TEXT: Final = (pa.string(), pa.large_string())
ROW_KIND: Final = "row-kind"
CHANGE_METADATA: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "op": _TEXT,
    ROW_KIND: _TEXT,
    "ingestion-timestamp": _TIMES,
    "source.timestamp": _TIMES,
    "source.database": _TEXT,
    "source.schema": _TEXT,
    "source.table": _TEXT,
}
"""What a column of metadata may have in formats of changes, which have it in the value -> its types, as in
`METADATA`."""
DEBEZIUM: Final = "debezium-json"
MAY_BE_NULL: Final = ("key", "value", *CHANGE_METADATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRowLayout:
    """The columns of the rows of a source.

    Attributes:
        schema: Of the rows.
        value: Of what is decoded from the value, with the names of the rows; without columns: nothing.
        key: Of what is decoded from the key, with the names in it.
        key_columns: The names of these in the rows, in the same order.
        metadata: Column -> a key of `METADATA`.
        changes: Column of the value -> a key of `CHANGE_METADATA`.
        tombstones: What becomes a record without a value.
    """

    schema: pa.Schema
    value: pa.Schema
    key: pa.Schema
    key_columns: tuple[str, ...]
    metadata: Mapping[str, str]
    changes: Mapping[str, str]
    tombstones: Tombstones


def checked_layout(
    schema: pa.Schema,
    format: str,
    *,
    key_format: str | None = None,
    key_fields: Sequence[str] = (),
    key_fields_prefix: str = "",
    metadata: Mapping[str, str] | None = None,
    tombstones: Tombstones | None = None,
) -> KafkaRowLayout:
    """The layout that the arguments of a source describe. Raises ConfigError: they contradict each other."""
    keys = _checked_keys(schema, key_format, key_fields, key_fields_prefix)
    metadata_of = dict(metadata or {})
    there = METADATA | (CHANGE_METADATA if format == DEBEZIUM else {})
    for column, what in metadata_of.items():
        if what not in there:
            raise ConfigError(
                f"metadata: column {column!r} cannot have {what!r}; there is {', '.join(there)}"
            )
    both = sorted(set(keys) & set(metadata_of))
    if both:
        raise ConfigError(f"column {both[0]!r} is both a field of the key and metadata; name it once")
    if format == BYTES:
        metadata_of |= {name: name for name in _of_bytes(schema, {*keys, *metadata_of})}
    rows = _with_metadata(schema, metadata_of, there)
    changes = {
        column: metadata_of.pop(column)
        for column in list(metadata_of)
        if metadata_of[column] in CHANGE_METADATA
    }
    value = pa.schema([field for field in rows if field.name not in keys and field.name not in metadata_of])
    kept: Tombstones = tombstones if tombstones is not None else ("row" if format == BYTES else "skip")
    if kept not in TOMBSTONES:
        raise ConfigError(f"tombstones must be one of {', '.join(TOMBSTONES)}, not {tombstones!r}")
    required = [field.name for field in value if not field.nullable]
    if kept == "row" and required:
        raise ConfigError(
            f'tombstones="row" gives rows without a value, but column {required[0]!r} is not nullable'
        )
    return KafkaRowLayout(
        schema=rows,
        value=value,
        key=pa.schema([schema.field(name).with_name(name.removeprefix(key_fields_prefix)) for name in keys]),
        key_columns=keys,
        metadata=metadata_of,
        changes=changes,
        tombstones=kept,
    )


def _checked_keys(
    schema: pa.Schema, key_format: str | None, key_fields: Sequence[str], prefix: str
) -> tuple[str, ...]:
    fields = (key_fields,) if isinstance(key_fields, str) else tuple(key_fields)
    if bool(fields) != (key_format is not None):
        raise ConfigError(
            "key_format and key_fields go together: how a key is read, and which columns it fills"
        )
    for name in fields:
        if name not in schema.names or fields.count(name) > 1:
            raise ConfigError(
                f"key_fields: {name!r} is no column of the schema, or is named twice; it has "
                f"{', '.join(schema.names)}"
            )
        if not name.startswith(prefix) or name == prefix:
            raise ConfigError(f"key_fields: {name!r} does not begin with key_fields_prefix {prefix!r}")
    if key_format == BYTES:
        kind = schema.field(fields[0]).type
        if len(fields) > 1 or kind not in (*_RAW, pa.string(), pa.large_string()):
            raise ConfigError(
                f'key_format="bytes" fills one column of bytes or text, not {", ".join(fields)} ({kind})'
            )
    return fields


def _of_bytes(schema: pa.Schema, others: set[str]) -> list[str]:
    """Columns of ``format="bytes"``, which are named as what they have."""
    names = [name for name in schema.names if name not in others]
    for name in names:
        if name not in METADATA:
            raise ConfigError(
                f'a Kafka source with format="bytes" has no column {name!r}; it has {", ".join(METADATA)}'
            )
    return names


def _with_metadata(
    schema: pa.Schema, metadata: Mapping[str, str], there: Mapping[str, tuple[pa.DataType, ...]]
) -> pa.Schema:
    for column, what in metadata.items():
        kinds = there[what]
        at = schema.get_field_index(column)
        if at < 0:
            schema = schema.append(pa.field(column, kinds[0], nullable=what in MAY_BE_NULL))
            continue
        field = schema.field(at)
        if field.type not in kinds:
            types = " or ".join(map(str, kinds))
            raise ConfigError(
                f"column {column!r} has the {what} of a record, which is {types}, not {field.type}"
            )
        if what in MAY_BE_NULL and not field.nullable:
            raise ConfigError(f"column {column!r} is declared not nullable, but a record may have no {what}")
    return schema
