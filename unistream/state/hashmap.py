"""Keyed state in a Python dict per state; a snapshot is an Arrow table that anyone can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.key_groups import key_groups
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.port.state import KeyTuple

VALUE_COLUMN = "value"


class HashMapValueState:
    """`port.state.ValueState` in a dict."""

    def __init__(self, name: str, key_schema: pa.Schema, value_type: pa.DataType) -> None:
        self.name = name
        self.key_schema = key_schema
        self.value_type = value_type
        self.values: dict[KeyTuple, object] = {}

    def get(self, key: KeyTuple) -> object | None:
        return self.values.get(key)

    def put(self, key: KeyTuple, value: object) -> None:
        """None is a value like any other absence: it removes the key."""
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def remove(self, key: KeyTuple) -> None:
        self.values.pop(key, None)

    def keys(self) -> Iterator[KeyTuple]:
        """As of now: the state may be changed meanwhile."""
        return iter(list(self.values))

    def load(self, table: pa.Table) -> None:
        columns = [table.column(name).to_pylist() for name in self.key_schema.names]
        self.values.update(
            zip(zip(*columns, strict=True), table.column(VALUE_COLUMN).to_pylist(), strict=True)
        )

    def to_table(self, max_parallelism: int) -> pa.Table:
        """A copy of the state as a table: key group, key columns, value."""
        columns: Sequence[Sequence[Any]] = list(zip(*self.values, strict=True)) or [()] * len(self.key_schema)
        try:
            keys = [
                pa.array(column, field.type) for column, field in zip(columns, self.key_schema, strict=True)
            ]
            values = pa.array(list(self.values.values()), self.value_type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise UserCodeError(
                f"state {self.name!r} holds a key or value that is not of its declared type "
                f"({_described(self.key_schema)} -> {self.value_type}): {error}"
            ) from error
        records = pa.RecordBatch.from_arrays(keys, names=self.key_schema.names)
        groups = key_groups(records, self.key_schema.names, max_parallelism)
        return pa.table(
            [pa.array(groups, pa.uint16()), *keys, values],
            names=[KEY_GROUP_COLUMN, *self.key_schema.names, VALUE_COLUMN],
        )


class HashMapStateBackend:
    """`port.state.StateBackend`: everything in memory, every snapshot complete.

    Args:
        max_parallelism: Number of key groups of the operator.
    """

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._states: dict[str, HashMapValueState] = {}
        self._restored: dict[str, list[pa.Table]] = {}

    def value_state(self, name: str, key_schema: pa.Schema, value_type: pa.DataType) -> HashMapValueState:
        state = self._states.get(name)
        if state is not None:
            if not state.key_schema.equals(key_schema) or not state.value_type.equals(value_type):
                raise ConfigError(f"state {name!r} is declared twice, with different types")
            return state
        if VALUE_COLUMN in key_schema.names or KEY_GROUP_COLUMN in key_schema.names:
            raise ConfigError(f"state {name!r}: a key column cannot be called {VALUE_COLUMN!r}")
        state = HashMapValueState(name, key_schema, value_type)
        for table in self._restored.pop(name, []):
            _check_fits(state, table)
            state.load(table)
        self._states[name] = state
        return state

    def snapshot(self) -> dict[str, pa.Table]:
        """States that were restored but not asked for yet stay in it."""
        tables = {name: s.to_table(self._max_parallelism) for name, s in self._states.items() if s.values}
        for name, restored in self._restored.items():
            tables[name] = pa.concat_tables(restored)
        return tables

    def restore(self, tables: dict[str, list[pa.Table]]) -> None:
        assert not self._states, "restore comes before the first value_state"
        self._restored = {name: list(parts) for name, parts in tables.items() if parts}

    def close(self) -> None:
        self._states.clear()
        self._restored.clear()


def _check_fits(state: HashMapValueState, table: pa.Table) -> None:
    expected = pa.schema([*state.key_schema, pa.field(VALUE_COLUMN, state.value_type)])
    stored = pa.schema([field for field in table.schema if field.name != KEY_GROUP_COLUMN])
    fits = [(f.name, f.type) for f in expected] == [(f.name, f.type) for f in stored]
    if not fits:
        raise ConfigError(
            f"state {state.name!r} was stored as ({_described(stored)}) and is now declared as "
            f"({_described(expected)}); give the changed state another name or start without state"
        )


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
