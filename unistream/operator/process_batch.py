"""User functions per batch, with the rows grouped by key and state in columns.

A function is called once for each batch, knows the distinct keys in it and for each row which of them it has,
and reads and writes the state of these keys as Arrow arrays: no Python runs per row or per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.key_groups import canonical_keys
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import OperatorSnapshot
from unistream.model.state import StateDescriptor
from unistream.operator.expressions import conform, describe
from unistream.operator.process import KeyedOperator
from unistream.port.state import ColumnState, KeyedStateBackend


class KeyedBatch:
    """Rows, and which key each of them has.

    Attributes:
        records: n rows.
        timestamps: Event times of the rows, ms, or None.
        keys: The key columns of the k distinct keys, in the order in which they first come.
        groups: Row -> position in `keys`; n integers from 0 to k - 1.
    """

    def __init__(self, batch: Batch, key_names: Sequence[str]) -> None:
        self.records = batch.records
        self.timestamps = batch.timestamps
        self.keys, self.groups = distinct(canonical_keys(batch.records.select(list(key_names)), key_names))


class BatchContext:
    """What a function may ask while it is given a batch."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.watermark = MIN_WATERMARK
        self.now_ms = 0
        self._backend = backend
        self._keys: Sequence[Any] | None = None
        self._columns: dict[str, tuple[StateDescriptor, KeyedColumn]] = {}

    def column(self, descriptor: StateDescriptor) -> KeyedColumn:
        """A value state of the keys of the batch; the same object each time.

        Raises:
            ConfigError: the state is not a value, or is declared twice with different types, or what was
                stored under its name cannot be converted.
        """
        found = self._columns.get(descriptor.name)
        if found is None or found[0] is not descriptor:
            found = (descriptor, KeyedColumn(self._backend.column(descriptor), self))
            self._columns[descriptor.name] = found
        return found[1]

    def current_watermark(self) -> int:
        """ms; the lowest int64 before the first one."""
        return self.watermark

    def current_processing_time(self) -> int:
        """Wall clock of the task, ms."""
        return self.now_ms

    def enter(self, keys: Sequence[Any] | None) -> None:
        """Called by the operator around each call of the user's function."""
        self._keys = keys

    @property
    def batch_keys(self) -> Sequence[Any]:
        """Keys of the batch, as the backend has them."""
        if self._keys is None:
            raise RuntimeError("there is no batch in open(); use columns in process_batch")
        return self._keys


class KeyedColumn:
    """One value for each of the distinct keys of the batch."""

    def __init__(self, column: ColumnState, context: BatchContext) -> None:
        self._column = column
        self._context = context

    def get(self) -> pa.Array:
        """The values, in the order of `batch.keys`; null where there is none."""
        return self._column.get(self._context.batch_keys)

    def put(self, values: pa.Array | npt.NDArray[Any]) -> None:
        """Sets them, in the order of `batch.keys`; null removes."""
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        self._column.put(self._context.batch_keys, array)


class BatchCollector:
    """Takes the batches that a function emits."""

    def __init__(self) -> None:
        self.batches: list[tuple[str | None, Batch]] = []

    def emit(self, records: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Rows on the main output; `timestamps` are their event times, int64 ms."""
        self.emit_side(None, records, timestamps)

    def emit_side(self, tag: str | None, records: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Rows on the side output `tag`."""
        if not isinstance(records, pa.RecordBatch):
            raise TypeError(f"emit takes a pyarrow.RecordBatch, not {type(records).__name__}")
        if timestamps is not None and len(timestamps) != records.num_rows:
            raise ValueError(f"{len(timestamps)} event times for {records.num_rows} rows")
        self.batches.append((tag, Batch(records, timestamps)))


class KeyedBatchFunction:
    """Subclass it and override `process_batch`.

    >>> import numpy as np, pyarrow as pa, pyarrow.compute as pc, unistream as us
    >>> class Count(us.KeyedBatchFunction):
    ...     seen = us.ValueStateDescriptor("seen", pa.int64())
    ...     def process_batch(self, batch, context, out):
    ...         seen = context.column(self.seen)
    ...         new = np.bincount(batch.groups, minlength=batch.keys.num_rows)
    ...         total = pc.add(seen.get().fill_null(0), pa.array(new))
    ...         seen.put(total)
    ...         out.emit(batch.keys.append_column("seen", total))
    """

    def open(self, context: BatchContext) -> None:
        """Once, before the first batch."""

    def process_batch(self, batch: KeyedBatch, context: BatchContext, out: BatchCollector) -> None:
        """One batch of rows, with its keys."""
        raise TypeError(f"{type(self).__name__} must define process_batch(batch, context, out)")

    def close(self) -> None:
        """Once, at the end, always."""


class KeyedBatchOperator(KeyedOperator):
    """Runs a `KeyedBatchFunction` over rows that are partitioned by `keys`.

    Args:
        returns: Schema of the main output; None: whatever the function emits.
        key_schema: Names and types of the key columns; None: those of the first batch.
    """

    def __init__(
        self,
        function: KeyedBatchFunction,
        keys: Sequence[str],
        *,
        returns: pa.Schema | None = None,
        key_schema: pa.Schema | None = None,
    ) -> None:
        super().__init__(function, keys, key_schema)
        self._returns = returns
        self._batch_context: BatchContext | None = None

    def open(self) -> None:
        self._batch_context = BatchContext(self.backend)
        self._configured(self._open_states)
        self._call("open", None, self._function.open, self._batch_context)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        context, out = self._context_now(), BatchCollector()
        grouped = KeyedBatch(batch, self._keys)
        context.enter(self.keys_of(grouped.keys))
        try:
            self._function.process_batch(grouped, context, out)
        except (UserCodeError, ConfigError):
            raise
        except Exception as error:
            raise self.user_error(self._what("process_batch"), error) from error
        finally:
            context.enter(None)
        for tag, emitted in out.batches:
            if tag is None:
                self.output.emit(self._checked(emitted))
            else:
                self.output.emit_side(tag, emitted)

    def process_watermark(self, timestamp: int) -> None:
        self._context_now().watermark = timestamp

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(state=self.backend.snapshot(checkpoint_id))

    def _open_states(self) -> None:
        for descriptor in self.declared_states():
            if descriptor.kind is StateKind.VALUE and not descriptor.options.pickled:
                self.backend.column(descriptor)
            else:
                raise ConfigError(
                    f"state {descriptor.name!r}: a function per batch has value state of declared types"
                )

    def _context_now(self) -> BatchContext:
        assert self._batch_context is not None, "open comes first"
        self._batch_context.now_ms = self.context.timers.now_ms()
        return self._batch_context

    def _checked(self, emitted: Batch) -> Batch:
        if self._returns is None:
            self._returns = emitted.records.schema
        conformed = conform(emitted.records, self._returns)
        if conformed is None:
            raise self.user_error(
                f"{self._what('process_batch')} emitted columns ({describe(emitted.records.schema)}), wanted "
                f"({describe(self._returns)})",
                None,
            )
        return Batch(conformed, emitted.timestamps)


def distinct(keys: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[Any]]:
    """The distinct rows of `keys` in the order of their first, and for each row which of them it is.

    >>> found, groups = distinct(pa.record_batch({"k": ["b", "a", "b"]}))
    >>> found.column(0).to_pylist(), groups.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    if keys.num_columns == 1:
        encoded = _encoded(keys.column(0))
        return pa.RecordBatch.from_arrays(
            [encoded.dictionary], names=keys.schema.names
        ), encoded.indices.to_numpy()
    code = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        encoded = _encoded(column)
        code = code * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy()
        together = pa.array(code).dictionary_encode()  # small numbers again, so that the product never wraps
        code = together.indices.to_numpy().astype(np.int64)
    first = np.full(int(code.max()) + 1 if len(code) else 0, len(code), np.int64)
    np.minimum.at(first, code, np.arange(len(code)))
    return keys.take(pa.array(first)), code


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.dictionary_encode(null_encoding="encode")
