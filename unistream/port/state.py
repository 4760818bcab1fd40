"""Keyed state as a task's operators see it. One suite holds every backend to it: tests/contract.

Keys and values are declared with Arrow types, so that a snapshot is a table anyone can read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

KeyTuple = tuple[object, ...]
"""One Python value per key column, in the order of the key."""


class ValueState(Protocol):
    """One value per key. The current key is set by the caller of the user's function."""

    def get(self, key: KeyTuple) -> object | None: ...

    def put(self, key: KeyTuple, value: object) -> None: ...

    def remove(self, key: KeyTuple) -> None: ...

    def keys(self) -> Iterator[KeyTuple]: ...


class StateBackend(Protocol):
    """Keyed state of one operator of one subtask."""

    def value_state(self, name: str, key_schema: pa.Schema, value_type: pa.DataType) -> ValueState:
        """The state called `name`; the same object for the same name.

        Raises:
            ConfigError: restored state of that name has an incompatible type.
        """

    def snapshot(self) -> dict[str, pa.Table]:
        """Name -> table (KEY_GROUP_COLUMN, key columns, `value`). Later changes do not show in it."""

    def restore(self, tables: dict[str, list[pa.Table]]) -> None:
        """Takes over tables made by `snapshot`, before the first `value_state`."""

    def close(self) -> None: ...
