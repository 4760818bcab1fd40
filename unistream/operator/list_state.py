"""State of an operator without keys: lists that are dealt out anew when the parallelism changes, and maps
that every subtask has the same copy of.

An element is stored as a small Arrow IPC stream, so that a snapshot knows its type and anyone can read it:
one element in each item of a SPLIT list (an item is what goes to one subtask), many in the others. A
broadcast map is a table (map_key, value). What is stored is encoded in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, overload

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.snapshot import ListMode, ListState
from unistream.model.state import MAP_KEY_COLUMN, VALUE_COLUMN, ListStateDescriptor, MapStateDescriptor

_ITEM_ROWS: Final = 65_536


class OperatorList:
    """A list of this subtask: what `context.operator_state(...)` gives.

    Args:
        mode: How it is dealt out on restore: SPLIT, each element to one subtask; UNION, all to all;
            BROADCAST, the list of one subtask to all, which is for lists that are the same everywhere.
        restored: What was stored.
    """

    def __init__(self, name: str, kind: pa.DataType, mode: ListMode, restored: Iterable[bytes]) -> None:
        self.descriptor = ListStateDescriptor(name, kind)
        self.mode = mode
        self._elements: list[Any] = []
        schema = pa.schema([pa.field(VALUE_COLUMN, kind)])
        for item in restored:
            for batch in read_item(item, name, schema):
                self._elements.extend(batch.column(0).to_pylist())

    def get(self) -> Sequence[Any]:
        """The elements; not changed by later calls."""
        return tuple(self._elements)

    def add(self, value: Any) -> None:
        self._elements.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._elements.extend(values)

    def update(self, values: Iterable[Any]) -> None:
        """Replaces all elements."""
        self._elements = list(values)

    def clear(self) -> None:
        self._elements = []

    def snapshot(self) -> ListState:
        """The elements of now, encoded when they are read."""
        rows = 1 if self.mode is ListMode.SPLIT else _ITEM_ROWS
        elements = tuple(self._elements)
        name, kind = self.descriptor.name, self.descriptor.type

        def encode() -> Iterator[bytes]:
            for start in range(0, len(elements), rows):
                yield write_item(name, [(VALUE_COLUMN, kind, elements[start : start + rows])])

        return ListState(self.mode, EncodedItems(encode))


class BroadcastMap:
    """A map that is the same in every subtask. Only what all subtasks see alike may change it: the elements
    of the broadcast stream."""

    def __init__(self, descriptor: MapStateDescriptor, restored: Iterable[bytes]) -> None:
        self.descriptor = descriptor
        self.writable = False
        self._entries: dict[Any, Any] = {}
        schema = pa.schema(
            [pa.field(MAP_KEY_COLUMN, descriptor.key_type), pa.field(VALUE_COLUMN, descriptor.type)]
        )
        for item in restored:
            for batch in read_item(item, descriptor.name, schema):
                self._entries.update(
                    zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                )

    def get(self, key: Any) -> Any:
        """The value under `key`, or None."""
        return self._entries.get(key)

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[Any, Any]]:
        """As of now: the map may be changed meanwhile."""
        return iter(list(self._entries.items()))

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        """None removes the entry. Only in `process_broadcast_element`."""
        self._check_writable()
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = value

    def remove(self, key: Any) -> None:
        self._check_writable()
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._check_writable()
        self._entries.clear()

    def snapshot(self) -> ListState:
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

        return ListState(ListMode.BROADCAST, EncodedItems(encode))

    def _check_writable(self) -> None:
        if not self.writable:
            raise RuntimeError(
                f"broadcast state {self.descriptor.name!r} can only be changed in process_broadcast_element: "
                "elsewhere subtasks see different rows and would come to differ"
            )


class EncodedItems(Sequence[bytes]):
    """Items that are encoded when they are first read, in the background."""

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


def write_item(name: str, columns: Sequence[tuple[str, pa.DataType, Sequence[Any]]]) -> bytes:
    """An Arrow IPC stream of one batch.

    Raises:
        UserCodeError: a value is not of the declared type.
    """
    try:
        arrays = [pa.array(list(values), kind) for _, kind, values in columns]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(
            f"state {name!r} holds a value that is not of its declared type {columns[-1][1]}: {error}"
        ) from error
    batch = pa.RecordBatch.from_arrays(arrays, names=[column for column, _, _ in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))


def read_item(item: bytes, name: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of an item, as `wanted`: numbers may have become wider.

    Raises:
        ConfigError: it was stored with other types.
    """
    with pa.ipc.open_stream(item) as stream:
        if stream.schema.names != wanted.names:
            raise ConfigError(
                f"state {name!r} was stored with columns ({', '.join(stream.schema.names)}), wanted "
                f"({', '.join(wanted.names)}); give the changed state another name"
            )
        for batch in stream:
            try:
                yield batch.cast(wanted)
            except pa.ArrowException as error:
                types = ", ".join(str(field.type) for field in stream.schema)
                raise ConfigError(
                    f"state {name!r} was stored as {types} and is now declared as "
                    f"{', '.join(str(field.type) for field in wanted)}: {error}; give the changed state "
                    "another name, declare the stored type again, or start without state"
                ) from error
