"""A state that is declared twice must be declared the same both times."""

from __future__ import annotations

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.state import StateDescriptor
from unistream.state.common.key_codec import described


def check_same(one: StateDescriptor, other: StateDescriptor) -> None:
    """Raises ConfigError unless both declare the same state."""
    empty = pa.schema([])
    same_tables = one.table_schema(empty).equals(other.table_schema(empty))
    if one.kind is not other.kind or not same_tables or one.options != other.options:
        raise ConfigError(
            f"state {one.name!r} is declared twice, with different types: {_shown(one)} and {_shown(other)}"
        )


def _shown(descriptor: StateDescriptor) -> str:
    return f"{descriptor.kind.value} ({described(descriptor.table_schema(pa.schema([])))})"
