"""The interface between a task and its operators.

Calls come from the task's one thread, in Flink's order (tail -> head: initialize_state + open per
operator; head -> tail: prepare_snapshot_pre_barrier, end_input + finish; tail -> head:
snapshot_state, notify_*, close). An operator object is picklable until `setup`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from unistream.base.clock import Clock
from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid
from unistream.base.limits import MIB
from unistream.model.elements import Batch
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.model.watermarks import WatermarkStrategy
from unistream.port.metrics import Metrics
from unistream.port.sorting import RowSorter
from unistream.port.source import Source
from unistream.port.state import KeyedStateBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPermit:
    """Proof that the manifest of `checkpoint_id` is durable and `epoch` owns it.

    Made only by the worker, from `CheckpointCompleted` or from the checkpoint that it restored.
    Everything that was prepared up to and including `checkpoint_id` may be committed, nothing else.

    Attributes:
        positions: How far the sources were read whose rows are all committed when everything that was
            prepared up to `checkpoint_id` is; for a sink that records them (`RecordsPositions`).
        snapshot: Directory of the snapshot from which a job can go on behind these commits; empty: not known.
    """

    lineage: LineageId
    checkpoint_id: CheckpointId
    epoch: LeaderEpoch
    positions: tuple[SourcePositions, ...] = ()
    snapshot: str = ""

    def require(self, lineage: LineageId, checkpoint_id: CheckpointId) -> None:
        """Raises ProtocolError unless what was prepared for `checkpoint_id` of `lineage` may be committed."""
        if self.lineage != lineage or self.checkpoint_id < checkpoint_id:
            raise ProtocolError(
                f"checkpoint {checkpoint_id} of lineage {lineage} is not covered by the "
                f"permit for checkpoint {self.checkpoint_id} of lineage {self.lineage}"
            )


class Output(Protocol):
    """An operator's outputs. Never blocks; may be called any number of times in one call."""

    def emit(self, batch: Batch) -> None:
        """Rows on the main output. Empty batches are dropped."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Rows on the side output `tag`; dropped if it has no consumer."""

    def emit_watermark(self, timestamp: int) -> None:
        """Emits a watermark, for operators that make their own; they must not decrease."""

    def emit_watermark_status(self, idle: bool) -> None: ...


class ProcessingTimers(Protocol):
    """Timers on the clock of the task, fired on the task's thread between two elements."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds."""

    def register(self, at_ms: int, action: Callable[[int], None]) -> None:
        """Calls `action(at_ms)` once the clock has reached `at_ms`. Not durable: an operator that
        needs it after a restore registers it again in `open`. Those that are due when the operator's
        input has ended fire before `finish`; none fires after `finish` began."""


def _no_sorter(_keys: Sequence[str]) -> RowSorter:
    raise AssertionError("rows are sorted in tasks of bounded jobs only")


def _no_wait() -> None:
    """Does not wait: with one thread for all tasks, waiting would make no room."""


def _run_here(action: Callable[[], None], then: Callable[[], None]) -> None:
    """Runs both on the only thread, one after the other."""
    action()
    then()


class ReportCommit(Protocol):
    """Reports committed rows of a sink to the master."""

    def __call__(
        self,
        sink_uid: OperatorUid,
        checkpoint_id: CheckpointId,
        rows: int,
        table_version: int | None,
        /,
        *,
        already: bool,
        table_rows: int | None,
        watermark: int | None,
    ) -> None:
        """`rows` of one checkpoint; `already`: an earlier call had committed them; `table_rows`: see
        `port.sink.CommitResult`; `watermark`, ms: no row up to it comes in a later checkpoint, but late
        ones; None: nobody knows one, or there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """Where an operator runs.

    Attributes:
        key_groups: (first, last), inclusive: the key groups of this subtask.
        restored: Any operator of this task has restored state.
        checkpointing: False: committables are committed at the end of input.
        exclusive: False: other attempts of this subtask may run at the same time, as Spark's copies of slow
            tasks do.
        make_sorter: Key columns -> what groups rows by key, in a bounded job.
        make_state: The operator's keyed state backend, made at the first call; see `state`.
        managed_memory_bytes: The limit for rows or state before the operator spills, or merges; 0 for one
            without `uses_managed_memory`.
        tmp_dir: Local folder for spilled data; None: the system's.
        await_room: Blocks while the task's outputs are full; for an operator that emits much in one call,
            between its pieces. The task does nothing else meanwhile, so rows and watermarks keep their order.
            Its exception (the task is cancelled) must not be caught.
        run_in_background: (action, then): calls `action` on another thread, without blocking rows or
            barriers, and then `then` on the task's thread. An exception of either fails the task. The task
            does not end before; after a failure or a cancellation `then` is not called.
    """

    job: JobId
    job_name: str
    lineage: LineageId
    epoch: LeaderEpoch
    attempt: AttemptId
    uid: OperatorUid
    name: str
    index: int
    parallelism: int
    max_parallelism: int
    key_groups: tuple[int, int]
    restored: bool
    checkpointing: bool
    exclusive: bool = True
    clock: Clock
    timers: ProcessingTimers
    metrics: Metrics
    make_state: Callable[[], KeyedStateBackend]
    make_sorter: Callable[[Sequence[str]], RowSorter] = _no_sorter
    report_commit: ReportCommit
    config: dict[str, str] = field(default_factory=dict)
    managed_memory_bytes: int = 64 * MIB
    tmp_dir: str | None = None
    await_room: Callable[[], None] = _no_wait
    run_in_background: Callable[[Callable[[], None], Callable[[], None]], None] = _run_here

    @property
    def state(self) -> KeyedStateBackend:
        """The operator's keyed state, always the same backend. An operator that uses it restores it in
        `initialize_state` and closes it in `close`."""
        return self.make_state()


class Operator(Protocol):
    """Rows in, rows out, state in between.

    `unistream.operator.common.base.BaseOperator` gives every method a default; most operators override one
    or two. The watermark that arrives in `process_watermark` is already the minimum over all inputs;
    the task forwards it after the call, so rows emitted inside it precede it.

    Attributes:
        forwards_watermarks: False: the task does not forward watermarks and their status; the operator emits
            them itself, after the rows that must precede them.
        uses_managed_memory: It may ask its context for keyed state, a sorter or `managed_memory_bytes`. Those
            of a task share its managed memory equally (as in Flink those with a declared use, FLIP-53).
    """

    forwards_watermarks: bool
    uses_managed_memory: bool

    def setup(self, context: OperatorContext, output: Output) -> None:
        """First call. Only keeps the arguments."""

    def initialize_state(self, state: OperatorState) -> None:
        """Take over restored state (or none). A committer commits what was pending here."""

    def open(self) -> None:
        """Acquire resources; called before the first row."""

    def process_batch(self, batch: Batch, input_index: int) -> None:
        """N > 0 rows of one logical input."""

    def process_watermark(self, timestamp: int) -> None:
        """The combined watermark has advanced to `timestamp` (ms): fire event timers here."""

    def process_watermark_status(self, idle: bool) -> None:
        """All inputs are idle now, or one is active again; forwarded after the call. While they are idle
        consumers ignore this task's watermark, so buffered rows must be emitted here."""

    def end_input(self, input_index: int) -> None:
        """No more rows on this input; MAX_WATERMARK of that input came before. May come again after
        a restore (when the producer had finished), so it must be idempotent."""

    def finish(self) -> None:
        """All inputs have ended: emit what is left. No more data will be produced after it. State that it has
        emitted is in no later snapshot. A task that is restored behind it does not call it again, if none of
        its producers has more rows."""

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        """Rows emitted here precede the barrier."""

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        """State by reference; written in the background, so it must not be changed in place."""

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """All up to `permit.checkpoint_id` is durable. An exception fails the task."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None: ...

    def close(self) -> None:
        """Release resources; always called, also if `open` was not. Commits nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOperatorSpec:
    """Head of a source vertex: the worker wraps it with its own source operator."""

    source: Source
    watermarks: WatermarkStrategy

    def batch_form(self) -> SourceOperatorSpec:
        """See `port.batch`: event times, and no watermark before the end."""
        times = WatermarkStrategy(timestamp_column=self.watermarks.timestamp_column)
        return replace(self, watermarks=times)
