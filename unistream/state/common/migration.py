"""Restored state whose declaration has changed: what can be taken over, and how.

    same type, wider number, larger decimal, long form of text and bytes     converted
    struct with more fields, where the new ones may be null                  converted, they are null
    lists and structs of the above                                           converted
    a new time to live                                                       counts from the restore
    a removed time to live                                                   values do not expire
    renamed (`renamed_from`)                                                 taken over
    anything else                                                            refused, with both types

Key columns never change: the hash of a key, and so its key group, depends on their types.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import EXPIRES_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, StateDescriptor
from unistream.model.state_types import Incompatible, migration

OWN_COLUMNS: Final = frozenset((KEY_GROUP_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, EXPIRES_COLUMN))
_ADVICE: Final = "give the changed state another name, declare the stored type again, or start without state"


def key_schema_of(table: pa.Schema) -> pa.Schema:
    """The key columns of a stored table, in order."""
    return pa.schema([pa.field(f.name, f.type) for f in table if f.name not in OWN_COLUMNS])


def plain_keys(schema: pa.Schema) -> pa.Schema:
    """Key columns as they are stored: without dictionaries. Raises ConfigError for a reserved name."""
    taken = sorted(OWN_COLUMNS & set(schema.names))
    if taken:
        raise ConfigError(
            f"a key column cannot be called {taken[0]!r}, which is a column of every state; rename it"
        )
    return pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A dictionary's type of values; any other type as it is."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def time_storage(kind: pa.DataType) -> pa.DataType | None:
    """The integer type that a date or time is stored as; None for other types."""
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None


def described(schema: pa.Schema) -> str:
    """Names and types, for messages."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def check_fits(
    wanted: StateDescriptor, name: str, kind: StateKind, schema: pa.Schema, *, pickled: bool
) -> None:
    """Raises ConfigError if stored state cannot be taken over as `wanted`."""
    subject = f"state {wanted.name!r}" + ("" if wanted.name == name else f", formerly {name!r},")
    if kind is not wanted.kind:
        raise ConfigError(
            f"{subject} was stored as {kind.value} state and is now declared as {wanted.kind.value} state; "
            f"{_ADVICE}"
        )
    if pickled is not wanted.options.pickled:
        forms = ("pickled", "typed") if pickled else ("typed", "pickled")
        raise ConfigError(f"{subject} was stored {forms[0]} and is now declared {forms[1]}; {_ADVICE}")
    target = wanted.table_schema(key_schema_of(schema))
    for column in (MAP_KEY_COLUMN, VALUE_COLUMN):
        if column in target.names:
            old, new = schema.field(column).type, target.field(column).type
            if isinstance(migration(plain_type(old), plain_type(new)), Incompatible):
                raise ConfigError(
                    f"{subject} was stored with {column} {old} and is now declared with {column} {new}, to "
                    f"which it cannot be converted; {_ADVICE}"
                )
