"""Rows that a user has for a state, made into the table that a job reads.

Checked here, once: the columns are there, their types fit, no key comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model.key_groups import canonical_keys, key_groups
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import (
    EXPIRES_COLUMN,
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from unistream.model.state_types import Refused, converted, migration

_OWN_COLUMNS: Final = (KEY_GROUP_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, EXPIRES_COLUMN)
_PLAIN_KINDS: Final = (StateKind.VALUE, StateKind.REDUCING, StateKind.AGGREGATING)


@dataclass(frozen=True, slots=True)
class StateRows:
    """A state's table without key groups; `keys` are its key's columns."""

    name: str
    kind: StateKind
    keys: tuple[str, ...]
    table: pa.Table
    pickled: bool = False

    def with_key_groups(self, max_parallelism: int) -> pa.Table:
        """The table with its key groups first, in their order.

        Raises:
            ConfigError: a key column has a type that cannot be a key.
        """
        batches = self.table.combine_chunks().to_batches()
        parts = [canonical_keys(batch, self.keys) for batch in batches]
        table = pa.Table.from_batches(parts, self.table.schema)
        groups = (
            np.concatenate([key_groups(part, list(self.keys), max_parallelism) for part in parts])
            if parts
            else np.empty(0, np.uint16)
        )
        order = np.argsort(groups, kind="stable")
        table = table.take(pa.array(order)) if len(order) else table
        return table.add_column(0, KEY_GROUP_COLUMN, pa.array(groups[order].astype(np.uint16)))


def keyed_rows(
    state: StateDescriptor | str,
    rows: pa.Table,
    keys: Sequence[str] | pa.Schema,
    kind: StateKind,
    *,
    now_ms: int,
) -> StateRows:
    """Rows of a state that a job declares, as `SavepointWriter.with_state` was given them. Values with a time
    to live and no `__expires_at` live from `now_ms` on.

    Raises:
        ConfigError: see there.
    """
    key_schema = _key_schema(rows, keys, _name(state))
    if isinstance(state, str):
        name, kept, schema = state, False, _inferred(state, rows, kind).table_schema(key_schema)
    else:
        name, kind, kept = state.name, state.kind, state.options.pickled
        schema = state.table_schema(key_schema)
        if EXPIRES_COLUMN in schema.names and EXPIRES_COLUMN not in rows.schema.names:
            rows = _expiring(state, rows, now_ms)
    wanted = pa.schema([column for column in schema if column.name != KEY_GROUP_COLUMN])
    table = _fitted(name, rows, wanted)
    unique = [*key_schema.names, MAP_KEY_COLUMN] if kind is StateKind.MAP else key_schema.names
    _check_unique(name, table, unique)
    return StateRows(name, kind, tuple(key_schema.names), table, kept)


def own_rows(name: str, rows: pa.Table, keys: Sequence[str] | pa.Schema) -> StateRows:
    """Rows of a table with an operator's own columns.

    Raises:
        ConfigError: a key column is missing or does not fit.
    """
    key_schema = _key_schema(rows, keys, name)
    names = [column for column in rows.schema.names if column != KEY_GROUP_COLUMN]
    types = {column.name: column for column in (*rows.schema, *key_schema)}
    table = _fitted(name, rows, pa.schema([types[column] for column in names]))
    return StateRows(name, StateKind.TABLE, tuple(key_schema.names), table)


def _name(state: StateDescriptor | str) -> str:
    return state if isinstance(state, str) else state.name


def _key_schema(rows: pa.Table, keys: Sequence[str] | pa.Schema, state: str) -> pa.Schema:
    names = keys.names if isinstance(keys, pa.Schema) else list(keys)
    if not names:
        raise ConfigError(f"state {state!r}: name the columns that make the key")
    for name in names:
        if name not in rows.schema.names:
            raise ConfigError(
                f"state {state!r}: there is no key column {name!r} among {', '.join(rows.schema.names)}"
            )
        if name in _OWN_COLUMNS:
            raise ConfigError(f"state {state!r}: a key column cannot be called {name!r}; rename it")
    given = keys if isinstance(keys, pa.Schema) else rows.select(names).schema
    return pa.schema([(column.name, _plain(column.type)) for column in given])


def _plain(of: pa.DataType) -> pa.DataType:
    return of.value_type if pa.types.is_dictionary(of) else of


def _inferred(name: str, rows: pa.Table, kind: StateKind) -> StateDescriptor:
    """A descriptor with the types of the rows. Only its table counts."""
    names = rows.schema.names
    if VALUE_COLUMN not in names:
        raise ConfigError(f"state {name!r}: there is no column {VALUE_COLUMN!r} among {', '.join(names)}")
    value = _plain(rows.schema.field(VALUE_COLUMN).type)
    if kind is StateKind.MAP:
        if MAP_KEY_COLUMN not in names:
            raise ConfigError(
                f"map state {name!r}: there is no column {MAP_KEY_COLUMN!r} among {', '.join(names)}"
            )
        return MapStateDescriptor(name, value, key_type=_plain(rows.schema.field(MAP_KEY_COLUMN).type))
    if kind is StateKind.LIST:
        if not (pa.types.is_list(value) or pa.types.is_large_list(value)):
            raise ConfigError(f"list state {name!r}: its column {VALUE_COLUMN!r} is {value}, not a list")
        return ListStateDescriptor(name, value.value_type)
    if kind not in _PLAIN_KINDS:
        raise ConfigError(f"state {name!r}: a table of kind {kind.value!r} is written by with_table")
    return ValueStateDescriptor(name, value)


def _fitted(name: str, rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The wanted columns with the wanted types; others are refused, so that none is lost unseen."""
    missing = [column for column in wanted.names if column not in rows.schema.names]
    if missing:
        raise ConfigError(
            f"state {name!r}: there is no column {missing[0]!r} among {', '.join(rows.schema.names)}"
        )
    extra = sorted(set(rows.schema.names) - set(wanted.names) - {KEY_GROUP_COLUMN, EXPIRES_COLUMN})
    if extra:
        raise ConfigError(
            f"state {name!r}: column {extra[0]!r} is neither of the key nor of the state; drop it"
        )
    columns = []
    for column in wanted:
        given = rows.column(column.name)
        match migration(given.type, column.type):
            case Refused(reason):
                raise ConfigError(f"state {name!r}: column {column.name!r}: {reason}")
            case _:
                chunks = [converted(chunk, column.type) for chunk in given.chunks]
                columns.append(pa.chunked_array(chunks, column.type))
    return pa.Table.from_arrays(columns, schema=wanted)


def _expiring(state: StateDescriptor, rows: pa.Table, now_ms: int) -> pa.Table:
    assert state.options.ttl is not None, "it has the column"
    until = now_ms + state.options.ttl.time_to_live_ms
    if state.kind is not StateKind.LIST:
        return rows.append_column(EXPIRES_COLUMN, pa.repeat(pa.scalar(until, pa.int64()), rows.num_rows))
    lengths = rows.column(VALUE_COLUMN).combine_chunks().value_lengths().fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    times = pa.repeat(pa.scalar(until, pa.int64()), int(lengths.sum()))
    return rows.append_column(EXPIRES_COLUMN, pa.ListArray.from_arrays(offsets, times))


def _check_unique(name: str, table: pa.Table, columns: Sequence[str]) -> None:
    if table.num_rows < 2:
        return
    counted = table.select(columns).group_by(list(columns), use_threads=False).aggregate([([], "count_all")])
    if counted.num_rows == table.num_rows:
        return
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1)).select(columns)
    key = ", ".join(f"{column}={value!r}" for column, value in repeated.to_pylist()[0].items())
    raise ConfigError(f"state {name!r}: the key {key} comes more than once")
