"""A user's rows of a state, made into the table that a job reads.

    rows ── columns and types fit ── keys in their one form ── no nulls, no key twice ──► StateRows

Everything is refused that a job could not be restored from, or only with other values. A state has no nulls:
a key without a value has no row. Keys, also of maps, are compared in their one form, so 0.0 and -0.0 are one
key, as they are in a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.base.limits import NEVER_MS
from unistream.model.columns.arrow_layouts import taken
from unistream.model.columns.column_names import numbered
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
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.model.state_types import Incompatible, converted, migration
from unistream.operator.process import TIMESTAMP_COLUMN
from unistream.state.common import OWN_COLUMNS, plain_type

_PLAIN_KINDS: Final = (StateKind.VALUE, StateKind.REDUCING, StateKind.AGGREGATING)
_ANY_TTL: Final = StateTtl(1)  # its length does not matter


@dataclass(frozen=True, slots=True)
class StateRows:
    """A state's table without key groups; `keys`: its key columns."""

    name: str
    kind: StateKind
    keys: tuple[str, ...]
    table: pa.Table
    pickled: bool = False

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.table.schema.field(key) for key in self.keys])

    def with_key_groups(self, max_parallelism: int) -> pa.Table:
        """The table in the order of its key groups, which are the first column.

        Raises:
            ConfigError: a key column has a type that cannot be a key.
        """
        parts = _canonical(self.table.combine_chunks(), self.keys)
        table = pa.Table.from_batches(parts, self.table.schema)
        found = [key_groups(part, list(self.keys), max_parallelism) for part in parts]
        groups = np.concatenate(found) if found else np.empty(0, np.uint16)
        order = np.argsort(groups, kind="stable")
        table = taken(table, order) if len(order) else table
        return table.add_column(0, KEY_GROUP_COLUMN, pa.array(groups[order].astype(np.uint16)))


@dataclass(frozen=True, slots=True)
class Former:
    """A state of the savepoint that is changed. `expires`: its rows have a time of expiry."""

    kind: StateKind
    pickled: bool
    expires: bool


def keyed_rows(
    state: StateDescriptor | str,
    rows: pa.Table,
    keys: Sequence[str] | pa.Schema,
    kind: StateKind | None,
    former: Former | None,
    *,
    now_ms: int,
) -> StateRows:
    """Rows for `SavepointWriter.with_state`, which see. The time to live of values without `__expires_at`
    begins at `now_ms`. `former`: the state of that name that they replace, whose kind a mere name takes."""
    key_schema = _key_schema(rows, keys, state if isinstance(state, str) else state.name)
    has_times = EXPIRES_COLUMN in rows.schema.names
    if isinstance(state, str):
        kind = kind or (StateKind.VALUE if former is None else former.kind)
        _check_times(state, former, has_times)
        pickled = former is not None and former.pickled
        declared = _inferred(state, rows, kind, has_times=has_times)
    else:
        kind, pickled, declared = state.kind, state.options.pickled, state
        if has_times and state.options.ttl is None:
            raise ConfigError(
                f"state {state.name!r}: its column {EXPIRES_COLUMN!r} would be lost, since it is declared "
                "without a time to live; give the descriptor one, or drop the column"
            )
    expires = declared.options.ttl
    left_out = {KEY_GROUP_COLUMN} if has_times else {KEY_GROUP_COLUMN, EXPIRES_COLUMN}
    columns = [column for column in declared.table_schema(key_schema) if column.name not in left_out]
    unique = [*key_schema.names, MAP_KEY_COLUMN] if kind is StateKind.MAP else key_schema.names
    table = in_one_form(fitted(declared.name, rows, pa.schema(columns)), unique)
    _check_values(declared.name, kind, table, key_schema.names)
    check_unique(declared.name, table, unique)
    if expires is not None and not has_times:
        table = _expiring(table, kind, min(now_ms + expires.time_to_live_ms, NEVER_MS))
    return StateRows(declared.name, kind, tuple(key_schema.names), table, pickled)


def own_rows(name: str, rows: pa.Table, keys: Sequence[str] | pa.Schema) -> StateRows:
    """Rows of a table with an operator's own columns."""
    key_schema = _key_schema(rows, keys, name)
    names = [column for column in rows.schema.names if column != KEY_GROUP_COLUMN]
    types = {column.name: column for column in (*rows.schema, *key_schema)}
    table = fitted(name, rows, pa.schema([types[column] for column in names]))
    return StateRows(name, StateKind.TABLE, tuple(key_schema.names), table)


def timer_rows(name: str, rows: pa.Table, keys: Sequence[str] | pa.Schema) -> StateRows:
    """Rows of the timers of one clock: the key columns and `__timestamp`."""
    key_schema = _key_schema(rows, keys, name)
    if TIMESTAMP_COLUMN in key_schema.names:
        raise ConfigError(f"timers {name!r}: {TIMESTAMP_COLUMN!r} is their time, not a key column")
    wanted = pa.schema([*key_schema, pa.field(TIMESTAMP_COLUMN, pa.int64())])
    table = in_one_form(fitted(name, rows, wanted), key_schema.names)
    nulls = table.column(TIMESTAMP_COLUMN).is_null()
    _refuse_first(name, table, nulls, key_schema.names, "the time is null; drop the row")
    check_unique(name, table, wanted.names)
    return StateRows(name, StateKind.TIMERS, tuple(key_schema.names), table)


# --- columns and types ----------------------------------------------------------------------------


def _key_schema(rows: pa.Table, keys: Sequence[str] | pa.Schema, state: str) -> pa.Schema:
    if isinstance(keys, str):
        keys = [keys]
    names = keys.names if isinstance(keys, pa.Schema) else list(keys)
    if not names:
        raise ConfigError(f"state {state!r}: name the key columns")
    for name in names:
        if name not in rows.schema.names:
            raise ConfigError(
                f"state {state!r}: there is no key column {name!r} among {', '.join(rows.schema.names)}"
            )
        if name in OWN_COLUMNS:
            raise ConfigError(f"state {state!r}: a key column cannot be called {name!r}; rename it")
        if names.count(name) > 1:
            raise ConfigError(f"state {state!r}: key column {name!r} is named twice")
    given = keys if isinstance(keys, pa.Schema) else rows.select(names).schema
    return pa.schema([(column.name, plain_type(column.type)) for column in given])


def _check_times(name: str, former: Former | None, has_times: bool) -> None:
    """Values that had a time to live keep it."""
    if former is not None and former.expires and not has_times:
        raise ConfigError(
            f"state {name!r} has a time to live: keep the column {EXPIRES_COLUMN!r} of its table, or give a "
            "descriptor in place of the name, and its values live from now on"
        )


def _inferred(name: str, rows: pa.Table, kind: StateKind, *, has_times: bool) -> StateDescriptor:
    """A descriptor with the types of the rows, used for its table only."""
    names = rows.schema.names
    if kind is StateKind.TIMERS:
        raise ConfigError(f"state {name!r}: timers are written by with_timers")
    if kind is StateKind.TABLE:
        raise ConfigError(f"state {name!r}: a table of kind {kind.value!r} is written by with_table")
    if VALUE_COLUMN not in names:
        raise ConfigError(f"state {name!r}: there is no column {VALUE_COLUMN!r} among {', '.join(names)}")
    value = plain_type(rows.schema.field(VALUE_COLUMN).type)
    options = StateOptions(ttl=_ANY_TTL if has_times else None)
    if kind is StateKind.MAP:
        if MAP_KEY_COLUMN not in names:
            raise ConfigError(
                f"map state {name!r}: there is no column {MAP_KEY_COLUMN!r} among {', '.join(names)}"
            )
        key_type = plain_type(rows.schema.field(MAP_KEY_COLUMN).type)
        return MapStateDescriptor(name, value, key_type=key_type, options=options)
    if kind is StateKind.LIST:
        if not (pa.types.is_list(value) or pa.types.is_large_list(value)):
            raise ConfigError(f"list state {name!r}: its column {VALUE_COLUMN!r} is {value}, not a list")
        return ListStateDescriptor(name, value.value_type, options=options)
    assert kind in _PLAIN_KINDS, "there are no others"
    return ValueStateDescriptor(name, value, options=options)


def fitted(name: str, rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The wanted columns with the wanted types; refuses others, so that none is lost silently."""
    missing = [column for column in wanted.names if column not in rows.schema.names]
    if missing:
        raise ConfigError(
            f"state {name!r}: there is no column {missing[0]!r} among {', '.join(rows.schema.names)}"
        )
    extra = sorted(set(rows.schema.names) - set(wanted.names) - {KEY_GROUP_COLUMN})
    if extra:
        raise ConfigError(
            f"state {name!r}: column {extra[0]!r} belongs neither to the key nor to the state; drop it"
        )
    columns = []
    for column in wanted:
        given = rows.column(column.name)
        match migration(given.type, column.type):
            case Incompatible(reason):
                raise ConfigError(f"state {name!r}: column {column.name!r}: {reason}")
            case _:
                chunks = [converted(chunk, column.type) for chunk in given.chunks]
                columns.append(pa.chunked_array(chunks, column.type))
    return pa.Table.from_arrays(columns, schema=wanted)


def _expiring(table: pa.Table, kind: StateKind, until_ms: int) -> pa.Table:
    if kind is not StateKind.LIST:
        return table.append_column(EXPIRES_COLUMN, pa.repeat(pa.scalar(until_ms, pa.int64()), table.num_rows))
    lengths = pc.list_value_length(table.column(VALUE_COLUMN)).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), pa.int32())  # checked
    times = pa.repeat(pa.scalar(until_ms, pa.int64()), int(lengths.sum()))
    return table.append_column(EXPIRES_COLUMN, pa.ListArray.from_arrays(offsets, times))


# --- keys and values ------------------------------------------------------------------------------


def _canonical(table: pa.Table, columns: Sequence[str]) -> list[pa.RecordBatch]:
    return [canonical_keys(batch, columns) for batch in table.to_batches()]


def in_one_form(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    return pa.Table.from_batches(_canonical(table, columns), table.schema)


def _check_values(name: str, kind: StateKind, table: pa.Table, keys: Sequence[str]) -> None:
    """Nothing is null, and every element of a list has its time."""
    values = table.column(VALUE_COLUMN)
    is_list, is_map = kind is StateKind.LIST, kind is StateKind.MAP
    entry = [*keys, MAP_KEY_COLUMN] if is_map else keys
    why = "the list is null; make it empty, or drop the row" if is_list else "the value is null; drop the row"
    if is_map:
        nameless = table.column(MAP_KEY_COLUMN).is_null()
        _refuse_first(name, table, nameless, keys, "the key of an entry is null; drop the entry")
    _refuse_first(name, table, values.is_null(), entry, why)
    if is_list:
        holes = _with_nulls(values)
        _refuse_first(name, table, holes, keys, "a value of the list is null; leave it out")
    if EXPIRES_COLUMN not in table.schema.names:
        return
    times = table.column(EXPIRES_COLUMN)
    _refuse_first(name, table, times.is_null(), entry, f"{EXPIRES_COLUMN} is null")
    if is_list:
        uneven = pc.not_equal(pc.list_value_length(values), pc.list_value_length(times))
        bad = pc.or_(uneven, _with_nulls(times))
        _refuse_first(name, table, bad, keys, f"{EXPIRES_COLUMN} must have a time for each value of the list")


def _with_nulls(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each of these lists, none of them null, holds a null."""
    parts = []
    for chunk in lists.chunks:
        rows = pc.list_parent_indices(chunk).filter(pc.list_flatten(chunk).is_null())
        held = np.zeros(len(chunk), bool)
        held[rows.to_numpy()] = True
        parts.append(pa.array(held))
    return pa.chunked_array(parts, pa.bool_())


def _refuse_first(name: str, table: pa.Table, bad: pa.ChunkedArray, columns: Sequence[str], why: str) -> None:
    row = pc.index(bad, value=True).as_py()
    if row >= 0:
        [key] = table.select(columns).slice(row, 1).to_pylist()
        raise ConfigError(f"state {name!r}: key {_shown(key)}: {why}")


def check_unique(name: str, table: pa.Table, columns: Sequence[str]) -> None:
    """Raises ConfigError if two rows have the same in these columns, whose values are in their one form."""
    if table.num_rows < 2:
        return
    compared = numbered(table.select(columns))
    if any(pa.types.is_nested(column.type) for column in compared.schema):
        # Arrow cannot group by them
        texts = [[repr(value) for value in column.to_pylist()] for column in compared.columns]
        compared = pa.table(texts, names=compared.schema.names)
    names = compared.schema.names
    counted = compared.group_by(names, use_threads=False).aggregate([([], "count_all")])
    if counted.num_rows == table.num_rows:
        return
    first = pc.index(pc.greater(counted.column("count_all"), 1), value=True).as_py()
    [repeated] = counted.slice(first, 1).select(names).rename_columns(list(columns)).to_pylist()
    raise ConfigError(f"state {name!r}: the key {_shown(repeated)} appears more than once")


def _shown(key: dict[str, object]) -> str:
    return ", ".join(f"{column}={value!r}" for column, value in key.items())
