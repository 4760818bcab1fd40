"""Restored state whose declaration has changed since: what can be taken over, and how.

    same type, wider number, larger decimal, long form of text and bytes     converted
    struct with more fields, where the new ones may be null                  converted, they are null
    lists and structs of the above                                           converted
    a time to live that is new                                               runs from the restore
    a time to live that is gone                                              values live for ever
    renamed (`renamed_from`)                                                 taken over
    anything else                                                            refused, with both types

Key columns never change: the hash of a key, and so its place, depends on their types.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import EXPIRES_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, StateDescriptor
from unistream.model.state_types import Refused, converted, migration

OWN_COLUMNS: Final = frozenset((KEY_GROUP_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, EXPIRES_COLUMN))
_ADVICE: Final = "give the changed state another name, declare the stored type again, or start without state"


def key_schema_of(table: pa.Schema) -> pa.Schema:
    """The key columns of a stored table, in order."""
    return pa.schema([pa.field(f.name, f.type) for f in table if f.name not in OWN_COLUMNS])


def plain_keys(schema: pa.Schema) -> pa.Schema:
    """Key columns as they are stored: values in place of dictionaries.

    Raises:
        ConfigError: a column has a name that a table of state has for a column of its own.
    """
    taken = sorted(OWN_COLUMNS & set(schema.names))
    if taken:
        raise ConfigError(
            f"a key column cannot be called {taken[0]!r}, which is a column of every state; rename it"
        )
    return pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A dictionary's values."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def check_fits(
    wanted: StateDescriptor,
    *,
    stored_name: str,
    kind: StateKind,
    pickled: bool,
    schema: pa.Schema,
) -> None:
    """Whether what was stored can be taken over as `wanted`.

    Raises:
        ConfigError: it cannot; names the state, both types and what to do.
    """
    name = wanted.name if wanted.name == stored_name else f"{wanted.name!r}, formerly {stored_name!r}"
    subject = f"state {name!r}" if wanted.name == stored_name else f"state {name}"
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
            if not convertible(old, new):
                raise ConfigError(
                    f"{subject} was stored with {column} {old} and is now declared with {column} {new}, to "
                    f"which it cannot be converted; {_ADVICE}"
                )


def convertible(old: pa.DataType, new: pa.DataType) -> bool:
    """Every value of `old` is one of `new` (`model.state_types` has the rules).

    >>> convertible(pa.int32(), pa.int64()), convertible(pa.int64(), pa.int32())
    (True, False)
    >>> one = pa.struct([("a", pa.int32())])
    >>> convertible(one, pa.struct([("b", pa.string()), ("a", pa.int64())]))
    True
    """
    return not isinstance(migration(plain_type(old), plain_type(new)), Refused)


def convert(values: pa.Array, new: pa.DataType) -> pa.Array:
    """`values` as `new`, to which their type is `convertible`."""
    return converted(values, new)
