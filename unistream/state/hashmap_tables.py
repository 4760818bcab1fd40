"""Rows by key as tables and back: what a snapshot reads in the background, and what a restore loads.

Everything goes in pieces of `PIECE_ROWS`, between which other threads of Python get their turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.model.arrow_layouts import filtered
from unistream.model.column_values import column_values
from unistream.model.key_groups import canonical_keys, key_groups
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import EXPIRES_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, StateDescriptor
from unistream.model.state_values import key_conformer
from unistream.state import pickled
from unistream.state.columns import Column, ColumnCopy, python_values
from unistream.state.migration import convert, plain_keys

PIECE_ROWS: Final = 65_536
_Dump = Callable[[Any], bytes]


class KeyCodec:
    """Keys as Python objects: a scalar for one column, a tuple for several.

    Dates and times are the numbers that they are stored as, which are cheaper to make and to hash; a NaN is
    always the same object, since it equals nothing else. Equal keys come in one form (`canonical_keys`).
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = plain_keys(schema)
        self._raw = [_raw_type(field.type) for field in self.schema]
        self._accepted = schema

    def encode(self, keys: pa.RecordBatch) -> list[Any]:
        """One key per row.

        Raises:
            ConfigError: other columns than those of the schema.
        """
        self.check(keys.schema)
        keys = canonical_keys(keys, keys.schema.names)
        columns = [
            _encode_column(column, field.type, raw)
            for column, field, raw in zip(keys.columns, self.schema, self._raw, strict=True)
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def decode(self, keys: Sequence[Any]) -> pa.RecordBatch:
        """The key columns of `keys`."""
        columns = (
            [keys] if len(self.schema) == 1 else list(zip(*keys, strict=True)) or [()] * len(self.schema)
        )
        arrays = [
            pa.array(values, raw).view(field.type) if raw is not None else pa.array(values, field.type)
            for values, field, raw in zip(columns, self.schema, self._raw, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def column_of(self, keys: pa.RecordBatch) -> pa.Array | None:
        """The one key column; None: there are several."""
        if keys.num_columns != 1:
            return None
        column, kind = canonical_keys(keys, keys.schema.names).column(0), self.schema.field(0).type
        return column if column.type.equals(kind) else column.cast(kind)

    def values_of(self, key: Any) -> tuple[Any, ...]:
        if all(raw is None for raw in self._raw):
            return (key,) if len(self.schema) == 1 else tuple(key)
        return tuple(column[0].as_py() for column in self.decode([key]).columns)

    def check(self, schema: pa.Schema) -> None:
        """Raises ConfigError unless these are the key columns, as such or as dictionaries."""
        if schema.equals(self._accepted):
            return
        same_names = schema.names == self.schema.names
        if not same_names or not all(
            _same_keys(old.type, new.type) for old, new in zip(self.schema, schema, strict=True)
        ):
            raise ConfigError(
                f"the key columns are ({described(schema)}), but state is kept by "
                f"({described(self.schema)}); a key's columns and types cannot change: cast them, or give "
                "the operator another uid"
            )
        self._accepted = schema


def described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _same_keys(declared: pa.DataType, given: pa.DataType) -> bool:
    """Values of `given` are keys as those of `declared`."""
    plain = plain_keys(pa.schema([("k", given)])).field(0).type
    text = (pa.types.is_string, pa.types.is_large_string)
    both_text = any(test(declared) for test in text) and any(test(plain) for test in text)
    return bool(plain.equals(declared)) or both_text


def _raw_type(kind: pa.DataType) -> pa.DataType | None:
    """The integer that a date or time is stored as; None for what is its own Python value."""
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None


_NAN: Final = float("nan")


def _encode_column(column: pa.Array, kind: pa.DataType, raw: pa.DataType | None) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if raw is not None:
        return column_values(column.view(raw))
    values = column_values(column)
    if pa.types.is_floating(kind):
        return [_NAN if value is not None and value != value else value for value in values]  # noqa: PLR0124
    return values


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """One state at a snapshot: rows by key as they were, at `now_ms`. `codec` None: no key was ever seen."""

    descriptor: StateDescriptor
    rows: dict[Any, Any]
    codec: KeyCodec | None
    max_parallelism: int
    now_ms: int
    release: Callable[[], None]

    @property
    def is_empty(self) -> bool:
        return not self.rows

    def live_keys(self) -> list[Any]:
        """Keys of what has not expired."""
        if self.descriptor.options.ttl is None:
            return list(self.rows)
        live: Callable[[Any], bool] = {
            StateKind.LIST: lambda cells: any(at > self.now_ms for _, at in cells),
            StateKind.MAP: lambda found: any(at > self.now_ms for _, at in found.values()),
        }.get(self.descriptor.kind, lambda cell: cell[1] > self.now_ms)
        return [key for key, cell in self.rows.items() if live(cell)]

    def table(self) -> StateTable:
        assert self.codec is not None, "rows have keys"
        return _table(self.descriptor, self.codec, self._batches(self.codec))

    def _batches(self, codec: KeyCodec) -> Iterator[pa.RecordBatch]:
        keys, groups, order = sorted_keys(self.rows, codec, self.max_parallelism)
        values: list[Any] = []
        waiting = iter(self.rows.values())
        while piece := list(itertools.islice(waiting, PIECE_ROWS)):
            values.extend(piece)
        for start in range(0, len(order), PIECE_ROWS):
            places = order[start : start + PIECE_ROWS]
            cells = [values[place] for place in places.tolist()]
            yield from self._piece(keys.take(pa.array(places)), groups[places], cells)

    def _piece(
        self, keys: pa.RecordBatch, groups: npt.NDArray[np.uint16], cells: list[Any]
    ) -> Iterator[pa.RecordBatch]:
        descriptor = self.descriptor
        try:
            dump = pickled.dumper(descriptor.name, keys.schema)
            rows, columns = _columns(descriptor, cells, self.now_ms, dump)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UserCodeError(
                f"state {descriptor.name!r} holds a value that is not of its declared type "
                f"{descriptor.type}: {error}"
            ) from error
        if rows is not None:
            keys, groups = keys.take(pa.array(rows)), groups[rows]
        made = pa.RecordBatch.from_arrays(
            [pa.array(groups, pa.uint16()), *keys.columns, *columns],
            schema=descriptor.table_schema(keys.schema),
        )
        for start in range(0, made.num_rows, PIECE_ROWS):
            yield made.slice(start, PIECE_ROWS)


@dataclass(frozen=True, slots=True)
class FrozenColumn:
    """One column state at a snapshot."""

    descriptor: StateDescriptor
    column: ColumnCopy
    codec: KeyCodec | None
    max_parallelism: int

    @property
    def is_empty(self) -> bool:
        return len(self.column.slots) == 0

    def live_keys(self) -> list[Any]:
        return list(self.column.keys())

    def release(self) -> None:
        """A copy of its own: nothing is shared."""

    def table(self) -> StateTable:
        assert self.codec is not None, "rows have keys"
        return _table(self.descriptor, self.codec, self._batches(self.codec))

    def _batches(self, codec: KeyCodec) -> Iterator[pa.RecordBatch]:
        keys, groups, order = sorted_keys(self.column.keys(), codec, self.max_parallelism)
        schema = self.descriptor.table_schema(codec.schema)
        for start in range(0, len(order), PIECE_ROWS):
            places = order[start : start + PIECE_ROWS]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(groups[places], pa.uint16()),
                    *keys.take(pa.array(places)).columns,
                    *self.column.columns(places),
                ],
                schema=schema,
            )


def _table(descriptor: StateDescriptor, codec: KeyCodec, batches: Iterator[pa.RecordBatch]) -> StateTable:
    return StateTable(
        name=descriptor.name,
        kind=descriptor.kind,
        pickled=descriptor.options.pickled,
        schema=descriptor.table_schema(codec.schema),
        batches=batches,
    )


def sorted_keys(
    keys: Iterable[Any], codec: KeyCodec, max_parallelism: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """Key columns, key groups, and the order of the rows by key group.

    Raises:
        UserCodeError: a key is not of the declared type.
    """
    batches, groups = [], []
    waiting = iter(keys)
    while piece := list(itertools.islice(waiting, PIECE_ROWS)):
        batch = codec.decode(piece)
        batches.append(batch)
        groups.append(key_groups(batch, codec.schema.names, max_parallelism).astype(np.uint16))
    if not batches:
        return codec.decode([]), np.zeros(0, np.uint16), np.zeros(0, np.int64)
    together = pa.Table.from_batches(batches, codec.schema).combine_chunks().to_batches()[0]
    all_groups = np.concatenate(groups)
    return together, all_groups, np.argsort(all_groups, kind="stable").astype(np.int64)


def _columns(
    descriptor: StateDescriptor, cells: list[Any], now_ms: int, dump: _Dump
) -> tuple[npt.NDArray[np.int64] | None, list[pa.Array]]:
    """Columns behind the key columns; and which of `cells` each row comes from (None: row i from i)."""
    if descriptor.kind is StateKind.MAP:
        return _map_columns(descriptor, cells, now_ms, dump)
    if descriptor.options.ttl is None:
        return None, [_value_array(descriptor, cells, dump)]
    if descriptor.kind is StateKind.LIST:
        cells = [[cell for cell in found if cell[1] > now_ms] for found in cells]
        rows = [place for place, found in enumerate(cells) if found]
        values = [[cell[0] for cell in cells[place]] for place in rows]
        times = pa.array([[cell[1] for cell in cells[place]] for place in rows], pa.list_(pa.int64()))
    else:
        rows = [place for place, cell in enumerate(cells) if cell[1] > now_ms]
        values = [cells[place][0] for place in rows]
        times = pa.array([cells[place][1] for place in rows], pa.int64())
    return np.asarray(rows, np.int64), [_value_array(descriptor, values, dump), times]


def _map_columns(
    descriptor: StateDescriptor, cells: list[dict[Any, Any]], now_ms: int, dump: _Dump
) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    if descriptor.options.ttl is not None:
        cells = [{key: cell for key, cell in found.items() if cell[1] > now_ms} for found in cells]
    counts = np.fromiter(map(len, cells), np.int64, len(cells))
    rows = np.repeat(np.arange(len(cells), dtype=np.int64), counts)
    key_type = descriptor.key_type  # type: ignore[attr-defined]  # a map's descriptor has it
    keys = pa.array([key for found in cells for key in found], key_type)
    values = [value for found in cells for value in found.values()]
    if descriptor.options.ttl is None:
        return rows, [keys, _value_array(descriptor, values, dump)]
    times = pa.array([cell[1] for cell in values], pa.int64())
    return rows, [keys, _value_array(descriptor, [cell[0] for cell in values], dump), times]


def _value_array(descriptor: StateDescriptor, values: list[Any], dump: _Dump) -> pa.Array:
    if descriptor.options.pickled:
        if descriptor.kind is StateKind.LIST:
            values = [[dump(value) for value in found] for found in values]
        else:
            values = [dump(value) for value in values]
    return pa.array(values, descriptor.stored_type)


def load_rows(
    descriptor: StateDescriptor, batch: pa.RecordBatch, codec: KeyCodec, expiry_ms: int, rows: dict[Any, Any]
) -> None:
    """Adds stored rows, whose columns `check_fits` the descriptor, to `rows`. What was stored without a time
    to live expires at `expiry_ms`, if it has one now."""
    keys = codec.encode(batch.select(codec.schema.names))
    values = restored_values(descriptor, batch)
    times = _times(descriptor, batch, values, expiry_ms)
    if descriptor.kind is StateKind.LIST:
        cells = [list(found) for found in values] if times is None else _pairs(values, times)
    else:
        cells = values if times is None else list(zip(values, times, strict=True))
    if descriptor.kind is not StateKind.MAP:
        rows.update(zip(keys, cells, strict=True))
        return
    key_type = descriptor.key_type  # type: ignore[attr-defined]
    map_keys = python_values(descriptor.name, convert(batch.column(MAP_KEY_COLUMN), key_type))
    conform = key_conformer(descriptor.name, key_type)
    for key, map_key, cell in zip(keys, map_keys, cells, strict=True):
        rows.setdefault(key, {})[conform(map_key)] = cell


def load_column(column: Column, batch: pa.RecordBatch, codec: KeyCodec, expiry_ms: int) -> None:
    """As `load_rows`, into a column."""
    descriptor = column.descriptor
    keys = codec.encode(batch.select(codec.schema.names))
    values = convert(batch.column(VALUE_COLUMN), descriptor.stored_type)
    expires: npt.NDArray[np.int64] | None = None
    if descriptor.options.ttl is not None:
        expires = np.full(len(keys), expiry_ms, np.int64)
        if EXPIRES_COLUMN in batch.schema.names:
            expires = batch.column(EXPIRES_COLUMN).to_numpy()
    column.load(keys, values, expires)


def restored_values(descriptor: StateDescriptor, batch: pa.RecordBatch) -> list[Any]:
    """The values as Python objects, of the declared type."""
    stored = convert(batch.column(VALUE_COLUMN), descriptor.stored_type)
    values = python_values(descriptor.name, stored)
    if not descriptor.options.pickled:
        return values
    if descriptor.kind is StateKind.LIST:
        return [[pickled.load(value) for value in found] for found in values]
    return [pickled.load(value) for value in values]


def _times(
    descriptor: StateDescriptor, batch: pa.RecordBatch, values: list[Any], expiry_ms: int
) -> list[Any] | None:
    if descriptor.options.ttl is None:
        return None
    if EXPIRES_COLUMN in batch.schema.names:
        return column_values(batch.column(EXPIRES_COLUMN))
    if descriptor.kind is StateKind.LIST:
        return [[expiry_ms] * len(found) for found in values]
    return [expiry_ms] * len(values)


def _pairs(values: list[list[Any]], times: list[list[int]]) -> list[Any]:
    return [list(zip(found, at, strict=True)) for found, at in zip(values, times, strict=True)]


def of_groups(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """The rows of key groups first to last, inclusive."""
    groups = batch.column(batch.schema.get_field_index(KEY_GROUP_COLUMN)).to_numpy()
    if len(groups) == 0 or (groups.min() >= first and groups.max() <= last):
        return batch
    return filtered(batch, (groups >= first) & (groups <= last))


def groups_in(parts: Iterable[StateTable]) -> npt.NDArray[np.uint16]:
    """Key groups that have rows in tables in memory."""
    found = [_groups(batch) for part in parts for batch in part.batches]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint16)


def without_groups(part: StateTable, groups: npt.NDArray[np.uint16]) -> StateTable:
    """A table in memory without the rows of some key groups."""
    if len(groups) == 0:
        return part
    left = [(batch, ~np.isin(_groups(batch), groups)) for batch in part.batches]
    kept = [batch if mask.all() else filtered(batch, mask) for batch, mask in left if mask.any()]
    return replace(part, batches=kept)


def _groups(batch: pa.RecordBatch) -> npt.NDArray[np.uint16]:
    found: npt.NDArray[np.uint16] = batch.column(KEY_GROUP_COLUMN).to_numpy()
    return found
