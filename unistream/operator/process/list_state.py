"""State of an operator without keys: lists that are redistributed after rescaling, and maps of which every
subtask has the same copy.

Elements are stored as Arrow IPC streams, so that any program can read them: one element in each item of a
SPLIT list (an item is assigned to one subtask), many in the others. A broadcast map is a table (map_key,
value). Items are encoded in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, overload

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.columns.state_values import conformer, key_conformer
from unistream.model.snapshot import ListMode, OperatorListState
from unistream.model.state import (
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    MapStateDescriptor,
    OperatorListDescriptor,
)
from unistream.model.state_types import Incompatible, converted, migration

_ITEM_ROWS: Final = 65_536
_CONTINUES: Final = b"\xff" * 4  # an Arrow IPC message; the length of its head follows


class OperatorList:
    """A list of this subtask, from `context.operator_state(...)`.

    Args:
        descriptor: Its mode is how the list is redistributed on restore. BROADCAST is for lists that are the
            same in all subtasks.
        restored: Stored items.
        stored_mode: Their mode; None: not known.

    Raises:
        ConfigError: it was stored with another type or mode.
    """

    def __init__(
        self,
        descriptor: OperatorListDescriptor,
        restored: Iterable[bytes] = (),
        stored_mode: ListMode | None = None,
    ) -> None:
        self.descriptor = descriptor
        self._conform = conformer(descriptor.name, descriptor.type)
        self._elements: list[Any] = []
        if stored_mode is not None and stored_mode is not descriptor.mode:
            raise ConfigError(
                f"operator state {descriptor.name!r} {other_mode(stored_mode, descriptor.mode)}; declare the "
                "stored mode again, or give the changed state another name"
            )
        for item in restored:
            for batch in read_item(item, descriptor.name, list_schema(descriptor)):
                self._elements.extend(batch.column(0).to_pylist())

    def get(self) -> Sequence[Any]:
        """A copy of the elements."""
        return tuple(self._elements)

    def add(self, value: Any) -> None:
        self._elements.append(self._conform(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._elements.extend([self._conform(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        """Replaces all elements."""
        self._elements = [self._conform(value) for value in values]

    def clear(self) -> None:
        self._elements = []

    def snapshot(self) -> OperatorListState:
        """The current elements, encoded when they are read."""
        name, kind, mode = self.descriptor.name, self.descriptor.type, self.descriptor.mode
        rows = item_rows_max(mode)
        elements = tuple(self._elements)

        def encode() -> Iterator[bytes]:
            for start in range(0, len(elements), rows):
                yield write_item(name, [(VALUE_COLUMN, kind, elements[start : start + rows])])

        return OperatorListState(mode, EncodedItems(encode))


class BroadcastMap:
    """A map that is the same in every subtask. Only elements of the broadcast stream, which all subtasks get
    in the same order, may change it."""

    def __init__(self, descriptor: MapStateDescriptor, restored: Iterable[bytes]) -> None:
        self.descriptor = descriptor
        self.writable = False
        self._conform = conformer(descriptor.name, descriptor.type)
        self._conform_key = key_conformer(descriptor.name, descriptor.key_type)
        self._entries: dict[Any, Any] = {}
        for item in restored:
            for batch in read_item(item, descriptor.name, map_schema(descriptor)):
                keys = map(self._conform_key, batch.column(0).to_pylist())
                self._entries.update(zip(keys, batch.column(1).to_pylist(), strict=True))

    def get(self, key: Any) -> Any:
        """The value under `key`, or None."""
        return self._entries.get(self._conform_key(key))

    def contains(self, key: Any) -> bool:
        return self._conform_key(key) in self._entries

    def items(self) -> Iterator[tuple[Any, Any]]:
        """A copy of the entries."""
        return iter(list(self._entries.items()))

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        """None removes the entry. Only in `process_broadcast_element`."""
        if value is None:
            self.remove(key)
            return
        self._check_writable()
        self._entries[self._conform_key(key)] = self._conform(value)

    def remove(self, key: Any) -> None:
        self._check_writable()
        self._entries.pop(self._conform_key(key), None)

    def clear(self) -> None:
        self._check_writable()
        self._entries.clear()

    def snapshot(self) -> OperatorListState:
        entries = list(self._entries.items())
        descriptor = self.descriptor

        def encode() -> Iterator[bytes]:
            for start in range(0, len(entries), _ITEM_ROWS):
                piece = entries[start : start + _ITEM_ROWS]
                yield write_item(
                    descriptor.name,
                    [
                        (MAP_KEY_COLUMN, descriptor.key_type, [key for key, _ in piece]),
                        (VALUE_COLUMN, descriptor.type, [value for _, value in piece]),
                    ],
                )

        return OperatorListState(ListMode.BROADCAST, EncodedItems(encode))

    def _check_writable(self) -> None:
        if not self.writable:
            raise RuntimeError(
                f"broadcast state {self.descriptor.name!r} can only be changed in process_broadcast_element: "
                "elsewhere subtasks get different rows, and their copies would differ"
            )


class EncodedItems(Sequence[bytes]):
    """Items that are encoded at their first use, in the background."""

    def __init__(self, encode: Callable[[], Iterator[bytes]]) -> None:
        self._encode = encode

    @cached_property
    def _items(self) -> tuple[bytes, ...]:
        return tuple(self._encode())

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._items)

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | Sequence[bytes]:
        return self._items[position]


def list_schema(descriptor: OperatorListDescriptor) -> pa.Schema:
    """Columns of the items of a list."""
    return pa.schema([pa.field(VALUE_COLUMN, descriptor.type)])


def map_schema(descriptor: MapStateDescriptor) -> pa.Schema:
    """Columns of the items of a broadcast map."""
    return pa.schema([pa.field(MAP_KEY_COLUMN, descriptor.key_type), pa.field(VALUE_COLUMN, descriptor.type)])


def other_mode(stored: ListMode, declared: ListMode) -> str:
    """Why a list cannot be restored with another mode (as in Flink): copies would be duplicated, or parts
    would differ between subtasks."""
    return f"was stored as {stored.value} list, and is declared as {declared.value} list"


def item_rows_max(mode: ListMode) -> int:
    """Elements in an item, which is assigned to one subtask."""
    return 1 if mode is ListMode.SPLIT else _ITEM_ROWS


def item_head(item: bytes) -> bytes:
    """A prefix that is equal for items with equal columns only."""
    return item[: len(_CONTINUES) + 4 + int.from_bytes(item[4:8], "little")]


def item_schema(item: bytes) -> pa.Schema | None:
    """Columns of an item of `write_item`; None: it is not one."""
    if not item.startswith(_CONTINUES):
        return None
    try:
        with pa.ipc.open_stream(item) as stream:
            return stream.schema
    except (pa.ArrowException, OSError):
        return None


def write_item(name: str, columns: Sequence[tuple[str, pa.DataType, Sequence[Any]]]) -> bytes:
    """An Arrow IPC stream of one batch. Raises UserCodeError if a value is not of the declared type."""
    try:
        arrays = [pa.array(list(values), kind) for _, kind, values in columns]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(
            f"state {name!r} holds a value that is not of its declared type {columns[-1][1]}: {error}"
        ) from error
    return item_of(pa.RecordBatch.from_arrays(arrays, names=[column for column, _, _ in columns]))


def item_of(batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))


def read_item(item: bytes, name: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of an item, converted to `wanted` as `model.state_types` allows. Raises ConfigError for other
    types."""
    with pa.ipc.open_stream(item) as stream:
        if stream.schema.names != wanted.names:
            raise ConfigError(
                f"state {name!r} was stored with columns ({', '.join(stream.schema.names)}), wanted "
                f"({', '.join(wanted.names)}); give the changed state another name"
            )
        for old, new in zip(stream.schema, wanted, strict=True):
            change = migration(old.type, new.type)
            if isinstance(change, Incompatible):
                types = ", ".join(str(field.type) for field in stream.schema)
                raise ConfigError(
                    f"state {name!r} was stored as {types} and is now declared as "
                    f"{', '.join(str(field.type) for field in wanted)}: {change.reason}; give the changed "
                    "state another name, declare the stored type again, or start without state"
                )
        for batch in stream:
            try:
                columns = [
                    converted(column, field.type) for column, field in zip(batch.columns, wanted, strict=True)
                ]
            except pa.ArrowException as error:
                raise ConfigError(
                    f"state {name!r} holds a value that cannot be converted: {error}"
                ) from error
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)
