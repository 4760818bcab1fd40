"""Drives one operator as a task does: for tests of built-in and of users' operators.

>>> import pyarrow as pa, pyarrow.compute as pc
>>> from unistream.operator.stateless import FilterBatches
>>> with OperatorHarness(FilterBatches(pc.field("n") > 1)) as harness:
...     harness.process({"n": [1, 2, 3]}, timestamps=[10, 20, 30])
...     harness.rows()
[{'n': 2}, {'n': 3}]
"""

from __future__ import annotations

import heapq
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.closing import Closing
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.base.limits import MAX_WATERMARK, MIB, MIN_WATERMARK
from unistream.model.elements import Batch, Watermark, WatermarkStatus
from unistream.model.key_groups import key_group_range
from unistream.model.keyed_snapshot import FileSet, RestoredFiles, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN, ListMode, OperatorSnapshot, OperatorState
from unistream.port.operator import CommitPermit, Operator, OperatorContext
from unistream.port.sorting import RowSorter
from unistream.port.state import KeyedStateBackend

Rows: TypeAlias = pa.RecordBatch | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
Emitted = Batch | Watermark | WatermarkStatus


class ManualClock:
    """A clock that moves only when a test sets it."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class ManualTimers:
    """Processing timers of a `ManualClock`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._pending: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._clock.now_ms

    def register(self, at_ms: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._pending, (at_ms, self._count, action))

    def advance(self, to_ms: int) -> None:
        """Moves the clock; fires what is due, in order."""
        while self._pending and self._pending[0][0] <= to_ms:
            at_ms, _, action = heapq.heappop(self._pending)
            self._clock.now_ms = max(self._clock.now_ms, at_ms)
            action(at_ms)
        self._clock.now_ms = max(self._clock.now_ms, to_ms)


class CountingMetrics:
    """Named counters and gauges."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str, amount: int) -> None:
        self.counts[name] += amount

    def set(self, name: str, value: int) -> None:
        self.counts[name] = value


@dataclass(slots=True)
class CollectedOutput:
    """All output of the operator. `elements`: the main output in order."""

    elements: list[Emitted] = field(default_factory=list)
    side: dict[str, list[Batch]] = field(default_factory=dict)

    def emit(self, batch: Batch) -> None:
        if batch.num_rows:
            self.elements.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if batch.num_rows:
            self.side.setdefault(tag, []).append(batch)

    def emit_watermark(self, timestamp: int) -> None:
        self.elements.append(Watermark(timestamp))

    def emit_watermark_status(self, idle: bool) -> None:
        self.elements.append(WatermarkStatus(idle))


class OperatorHarness(Closing):
    """One subtask of one operator.

    A context manager: enters with `open`, leaves with `close`. As in a task, a watermark is forwarded
    after all that the operator emits for it.

    Args:
        state: The `snapshot` of an earlier harness, see `restore_state`.
        index, parallelism, max_parallelism: Which subtask, of how many.
        checkpointing: False: committers commit at the end of input.
        backend: Keyed state of process functions; None: a hash map, created on first use.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        state: OperatorState | None = None,
        index: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        checkpointing: bool = True,
        config: Mapping[str, str] | None = None,
        lineage: str = "lineage",
        name: str = "operator",
        backend: KeyedStateBackend | None = None,
        managed_memory_bytes: int = 64 * MIB,
        tmp_dir: str | None = None,
        await_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.operator, self.output = operator, CollectedOutput()
        self.clock, self.metrics = ManualClock(), CountingMetrics()
        self.timers = ManualTimers(self.clock)
        self.commits, self.watermarks = list[tuple[int, int, int | None]](), dict[int, int | None]()
        self.table_rows = list[int | None]()
        self._state, self._backend = state or OperatorState(), backend
        self._watermarks: dict[int, int] = {}
        self._combined, self._lineage = MIN_WATERMARK, LineageId(lineage)
        self.context = OperatorContext(
            job=JobId("0" * 32),
            job_name="harness",
            lineage=self._lineage,
            epoch=LeaderEpoch(1),
            attempt=AttemptId(JobId("0" * 32), VertexId("vertex"), index, 0),
            uid=OperatorUid(name),
            name=name,
            index=index,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            key_groups=key_group_range(max_parallelism, parallelism, index),
            restored=self._state.is_restored,
            checkpointing=checkpointing,
            clock=self.clock,
            timers=self.timers,
            metrics=self.metrics,
            make_sorter=self._make_sorter,
            make_state=self._make_state,
            report_commit=self._commit,
            config=dict(config or {}),
            managed_memory_bytes=managed_memory_bytes,
            tmp_dir=tmp_dir,
            await_room=await_room,
        )

    def _commit(
        self,
        _sink: OperatorUid,
        checkpoint_id: int,
        rows: int,
        version: int | None,
        /,
        *,
        already: bool,
        table_rows: int | None,
        watermark: int | None,
    ) -> None:
        self.table_rows.append(table_rows)
        self.commits.append((checkpoint_id, 0 if already else rows, version))
        self.watermarks[checkpoint_id] = watermark

    def _make_sorter(self, keys: Sequence[str]) -> RowSorter:
        from unistream.worker.sort import KeySorter

        folder = Path(self.context.tmp_dir or tempfile.gettempdir()) / f"sort-{uuid.uuid4().hex}"
        return KeySorter(keys, folder, self.context.managed_memory_bytes)

    def _make_state(self) -> KeyedStateBackend:
        if self._backend is None:
            from unistream.state.hashmap import HashMapStateBackend

            self._backend = HashMapStateBackend(
                key_groups=self.context.key_groups,
                max_parallelism=self.context.max_parallelism,
                clock=self.clock,
                allow_pickled=True,
            )
        return self._backend

    def open(self) -> Self:
        """setup, initialize_state, open."""
        self.operator.setup(self.context, self.output)
        self.operator.initialize_state(self._state)
        self.operator.open()
        return self

    def close(self) -> None:
        """Closes the operator, then its keyed state."""
        self.operator.close()
        if self._backend is not None:
            self._backend.close()

    def __enter__(self) -> Self:
        return self.open()

    def process(self, rows: Rows, timestamps: Sequence[int] | None = None, input_index: int = 0) -> None:
        """One batch; `rows` as a record batch, as columns or as dicts, `timestamps` in ms.

        Raises:
            ConfigError: there are more rows than timestamps, or fewer.
        """
        records = as_records(rows)
        times = None if timestamps is None else pa.array(timestamps, pa.int64())
        if times is not None and len(times) != records.num_rows:
            raise ConfigError(
                f"process: {len(times)} timestamps for {records.num_rows} rows; give one for each"
            )
        self.operator.process_batch(Batch(records, times), input_index)

    def watermark(self, timestamp: int, input_index: int = 0, *, inputs: int = 1) -> None:
        """The watermark of one of `inputs` logical inputs; the operator sees the minimum of all."""
        self._watermarks[input_index] = timestamp
        combined = min(self._watermarks.get(i, MIN_WATERMARK) for i in range(inputs))
        if combined > self._combined:
            self._combined = combined
            self.operator.process_watermark(combined)
            if self.operator.forwards_watermarks:
                self.output.emit_watermark(combined)

    def idle(self, idle: bool = True) -> None:
        """All inputs are idle now, or active again."""
        self.operator.process_watermark_status(idle)
        if self.operator.forwards_watermarks:
            self.output.emit_watermark_status(idle)

    def end_input(self, input_index: int = 0, *, inputs: int = 1) -> None:
        """MAX_WATERMARK, then end_input."""
        self.watermark(MAX_WATERMARK, input_index, inputs=inputs)
        self.operator.end_input(input_index)

    def end(self) -> None:
        """End of the only input: MAX_WATERMARK, end_input, finish."""
        self.end_input()
        self.operator.finish()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """prepare_snapshot_pre_barrier, then snapshot_state; state and timers as they would be stored."""
        checkpoint = CheckpointId(checkpoint_id)
        self.operator.prepare_snapshot_pre_barrier(checkpoint)
        return stored(self.operator.snapshot_state(checkpoint))

    def complete(self, checkpoint_id: int) -> None:
        """The manifest of `checkpoint_id` is durable."""
        self.operator.notify_checkpoint_complete(
            CommitPermit(
                lineage=self._lineage, checkpoint_id=CheckpointId(checkpoint_id), epoch=self.context.epoch
            )
        )

    def batches(self) -> list[Batch]:
        """Main output so far, without watermarks."""
        return [element for element in self.output.elements if isinstance(element, Batch)]

    def rows(self, tag: str | None = None) -> list[dict[str, Any]]:
        """Rows of the main output, or of a side output, in order."""
        batches = self.batches() if tag is None else self.output.side.get(tag, [])
        return [row for batch in batches for row in batch.records.to_pylist()]

    def timestamps(self) -> list[int]:
        """Event times of `rows()`."""
        return [t for b in self.batches() if b.timestamps is not None for t in b.timestamps.to_pylist()]

    def clear(self) -> None:
        """Forgets what was emitted."""
        self.output.elements.clear()
        self.output.side.clear()


@dataclass(frozen=True, slots=True)
class InMemorySnapshot:
    """`model.keyed_snapshot.KeyedSnapshot` of tables in memory, which can be read many times."""

    stored: Sequence[StateTable]

    def tables(self) -> Iterator[StateTable]:
        return iter(self.stored)

    def files(self) -> FileSet | None:
        return None

    def release(self) -> None:
        """Nothing is shared."""


def stored(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """The same snapshot with its tables in memory; what they were read from is released."""
    timers = tuple(replace(table, batches=list(table.batches)) for table in snapshot.timers)
    if snapshot.state is None:
        return replace(snapshot, timers=timers)
    try:
        tables = [replace(table, batches=list(table.batches)) for table in snapshot.state.tables()]
    finally:
        snapshot.state.release()
    return replace(snapshot, timers=timers, state=InMemorySnapshot(tables) if tables else None)


def restore_state(
    snapshots: Sequence[OperatorSnapshot],
    checkpoint_id: int,
    *,
    index: int = 0,
    parallelism: int = 1,
    max_parallelism: int = 128,
) -> OperatorState:
    """The share of subtask `index` in the snapshots of all former subtasks.

    Keyed rows by key group; SPLIT lists in contiguous runs, of which the first may be one longer; UNION
    lists whole; BROADCAST lists from one former subtask.
    """
    first, last = key_group_range(max_parallelism, parallelism, index)
    keyed: dict[str, list[pa.Table]] = {}
    lists: dict[str, Sequence[bytes]] = {}
    modes = {name: found.mode for snapshot in snapshots for name, found in snapshot.lists.items()}
    for name in {name for snapshot in snapshots for name in snapshot.keyed}:
        tables = [snapshot.keyed[name] for snapshot in snapshots if name in snapshot.keyed]
        groups = pc.field(KEY_GROUP_COLUMN)
        keyed[name] = [t.filter((groups >= first) & (groups <= last)) for t in tables]
    for name in {name for snapshot in snapshots for name in snapshot.lists}:
        states = [snapshot.lists[name] for snapshot in snapshots if name in snapshot.lists]
        items = [item for state in states for item in state.items]
        if states[0].mode is ListMode.SPLIT:
            each, more = divmod(len(items), parallelism)
            start = index * each + min(index, more)
            items = items[start : start + each + (index < more)]
        elif states[0].mode is ListMode.BROADCAST:
            items = list(states[index % len(states)].items)
        lists[name] = items
    state: list[StateTable | RestoredFiles] = []
    for snapshot in snapshots:
        for timers in snapshot.timers:
            table = pa.Table.from_batches(list(_of_groups(timers, first, last).batches), timers.schema)
            keyed.setdefault(timers.name, []).append(table)
        if snapshot.state is not None:
            state.extend(_of_groups(table, first, last) for table in snapshot.state.tables())
    return OperatorState(
        checkpoint_id=CheckpointId(checkpoint_id), keyed=keyed, lists=lists, modes=modes, state=tuple(state)
    )


def _of_groups(table: StateTable, first: int, last: int) -> StateTable:
    """The rows of key groups first to last, in memory."""
    groups = pc.field(KEY_GROUP_COLUMN)
    return replace(
        table, batches=[batch.filter((groups >= first) & (groups <= last)) for batch in table.batches]
    )


def as_records(rows: Rows) -> pa.RecordBatch:
    """The rows as a record batch. Raises ConfigError: they are something else."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    if isinstance(rows, Mapping):
        return pa.RecordBatch.from_pydict(dict(rows))
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise ConfigError(
            "the harness takes rows as a pyarrow.RecordBatch, as a dict of columns or as a list of dicts, "
            f"not {type(rows).__name__}"
        )
    return pa.RecordBatch.from_pylist(rows)
