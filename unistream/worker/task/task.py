"""StreamTask: one subtask of a vertex as a steppable machine.

    CREATED ─► INITIALIZING ─► RUNNING ─────────────────────────────► FINISHED
                   │              │  reading … data ended … final        │
                   └──────────────┴───────────► FAILED, CANCELED ◄───────┘ (close raises)

`step` does one bounded piece of work on the caller's thread: one mail, one timer, or one element of
input. A thread drives it in production, a loop in tests. Mail comes first, then timers, then input;
no input is taken while an output is full. The task's state is only accessed inside `step`; other threads
reach the task through its `Mailbox`.

The end: after the last row the operators finish (drain) or just stop (suspend), EndOfData is sent, and
the task stays RUNNING until the checkpoint that covers its last output has completed and all inputs
have sent EndOfPartition; then it closes and sends EndOfPartition itself. Without checkpointing
nothing is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from unistream.base.config import CHECKPOINTS_AFTER_TASKS_FINISH, Configuration
from unistream.base.errors import ProtocolError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model import elements as el
from unistream.model import messages as msg
from unistream.model.deployment import TaskDeployment
from unistream.port.storage import StateReader
from unistream.worker import exchange
from unistream.worker.task.barriers import TaskBarriers
from unistream.worker.task.chain import OperatorChain
from unistream.worker.task.environment import TaskEnvironment
from unistream.worker.task.failures import fails_the_task, task_failure
from unistream.worker.task.mailbox import BackgroundDone, Mail, Mailbox, SnapshotNotStored, SnapshotStored
from unistream.worker.task.operator_context import ContextFactory
from unistream.worker.task.snapshots import TaskSnapshots
from unistream.worker.task.source_operator import SourceOperator
from unistream.worker.task.state import Done, Progressed, StepResult, TaskState, Waiting

_log = logging.getLogger(__name__)

_PROGRESSED = Progressed()
_DONE = Done()


class StreamTask:
    """One attempt of one subtask. Created by `unistream.worker.task.builder.build_task`.

    Attributes:
        partitions: Its outputs, one per edge.
        data_ended: EndOfData was sent.
        drained: `finish` of its operators was called: after the end of all data, not at a suspension; now, or
            before the snapshot that it starts from.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        *,
        chain: OperatorChain,
        source: SourceOperator | None,
        inputs: exchange.InputGates,
        partitions: Sequence[exchange.OutputPartition],
        contexts: ContextFactory,
        environment: TaskEnvironment,
        mailbox: Mailbox,
    ) -> None:
        self.deployment = deployment
        self._chain = chain
        self._source = source
        self._inputs = inputs
        self._stored = exchange.StoredInputs(deployment)
        self.partitions = partitions
        self._row_edges = {one.edge for one in deployment.partitions if not one.committables}
        self._contexts = contexts
        self._timers = contexts.timers
        self.counters = contexts.counters
        self._environment = environment
        self.mailbox = mailbox
        self._outputs = exchange.Outputs(partitions)
        self._snapshots = TaskSnapshots(deployment, chain, environment, mailbox, self._outputs)
        self._barriers = TaskBarriers(
            deployment, self._outputs, self._snapshots, environment.clock, life=self
        )
        self._awaits_last_checkpoint = deployment.checkpointing and Configuration(deployment.config).get(
            CHECKPOINTS_AFTER_TASKS_FINISH
        )
        self.state = TaskState.CREATED
        self.data_ended = False
        restore = deployment.restore
        self.drained = self._had_ended = restore is not None and restore.data_ended

    def metrics(self) -> msg.TaskMetrics:
        """Counters since the start; from any thread."""
        now_ms = self._environment.clock.monotonic_ms()
        rows_out = sum(p.rows_out for p in self.partitions if p.edge in self._row_edges)
        counters = self.counters.to_metrics(rows_out, now_ms)
        outputs = [p for p in self.partitions if isinstance(p, exchange.ResultPartition)]
        return msgspec.structs.replace(
            counters,
            in_queue_length=self._inputs.queued,
            in_pool_used=self._inputs.pool_used,
            in_pool_size=self._inputs.pool_size,
            out_queue_length=sum(p.queued for p in outputs),
            out_pool_used=sum(p.memory.used for p in outputs),
            out_pool_size=sum(p.memory.size for p in outputs),
        )

    # --- one step ---------------------------------------------------------------------------------

    def step(self) -> StepResult:
        """Does one bounded piece of work. Errors of operators and channels fail the task; none is raised."""
        if self.state.is_terminal:
            return _DONE
        try:
            if self.mailbox.is_cancelled:
                return self._end_cancelled()
            return self._advance()
        except BaseException as error:
            if not fails_the_task(error):
                raise
            # an error after the cancellation is its consequence, as in Flink
            return self._end_cancelled() if self.mailbox.is_cancelled else self._end_failed(error)

    def _advance(self) -> StepResult:
        if self.state is TaskState.CREATED:
            self._initialize()
            return _PROGRESSED
        mail = self.mailbox.take()
        if mail is not None:
            self._on_mail(mail)
            return _PROGRESSED
        if self._timers.fire_due():
            return _PROGRESSED
        if self._advance_barriers():
            return _PROGRESSED
        if self._may_close():
            return self._end_finished()
        flush_at_ms = self._flush_due()
        deadline_ms = _earliest(
            self._timers.next_monotonic_ms,
            flush_at_ms,
            self._inputs.deadline_monotonic_ms,
            self._snapshots.deadline_monotonic_ms,
        )
        if not all(p.has_room for p in self.partitions):
            return Waiting(deadline_ms, backpressured=True)
        if self._read():
            return _PROGRESSED
        resume_at_ms = self._source.resume_at_ms if self._source and not self.data_ended else None
        return Waiting(_earliest(deadline_ms, resume_at_ms))

    def _advance_barriers(self) -> bool:
        """Handles barriers that overtake, and timeouts of waiting ones, even while an output is full. True:
        something was done."""
        urgent = self._inputs.poll_urgent()
        if urgent is not None:
            self._on_element(*urgent)
            return True
        timed_out = self._inputs.on_time()
        self._barriers.on_inputs(timed_out or ())
        return self._snapshots.check_outputs() or timed_out is not None

    def _flush_due(self) -> int | None:
        """Flushes gathered rows that are due; returns when the next are."""
        deadline: int | None = None
        for partition in self.partitions:
            if partition.flush_at_ms is None:
                continue
            if partition.flush_at_ms <= self._environment.clock.monotonic_ms():
                partition.flush()
            else:
                deadline = _earliest(deadline, partition.flush_at_ms)
        return deadline

    def _initialize(self) -> None:
        self._enter(TaskState.INITIALIZING)
        self._chain.setup(self._contexts.context_of)
        self._chain.open(self._contexts.state_of)
        self._contexts.note_restored()
        restore = self.deployment.restore
        if restore is not None and restore.in_flight:
            self._inputs.restore(exchange.RestoredRows(restore.in_flight, self._state_reader))
        self._inputs.open()
        self._contexts.watch_partition_requests(self._inputs)
        self._enter(TaskState.RUNNING)

    def _state_reader(self) -> StateReader:
        restore = self.deployment.restore
        assert restore is not None, "only a restored task reads state"
        return self._environment.state_reader(restore.root)

    def _enter(
        self,
        state: TaskState,
        failure: msg.TaskFailure | None = None,
        committables: tuple[msg.ReportedPartition, ...] = (),
    ) -> None:
        self.state = state
        self._environment.report(
            msg.TaskStateChanged(
                attempt=self.deployment.attempt,
                state=state.value,
                failure=failure,
                metrics=self.metrics() if state.is_terminal else None,
                committables=committables,
            )
        )

    # --- rows and events --------------------------------------------------------------------------

    @property
    def _is_source_vertex(self) -> bool:
        return self.deployment.vertex.source is not None

    def _read(self) -> bool:
        """One element of input. False: none is available."""
        if self._is_source_vertex:
            return self._read_source()
        polled = self._inputs.poll()
        if polled is None:
            return False
        self._on_element(*polled)
        return True

    def _read_source(self) -> bool:
        if self.data_ended:
            return False
        if self._source is None:  # restored as finished
            self.end_of_data(drain=True)
            return True
        if self._chain.poll(self._source):
            return True
        if self._source.is_exhausted:
            self.end_of_data(drain=True)
            return True
        return False

    def _on_element(self, channel: int, element: el.Element | exchange.Announcement) -> None:
        match element:
            case el.Batch():
                self.counters.records_in += element.num_rows
                self._chain.process_batch(element, self._inputs.input_of(channel))
                self._environment.crash_point("task.batch")
            case el.Watermark() | el.WatermarkStatus():
                self._on_watermark(channel, element)
            case el.CheckpointBarrier() | el.CancelCheckpointMarker() | exchange.Announcement():
                self._barriers.on_inputs(self._inputs.on_barrier(channel, element))
            case el.EndOfBucket():
                self._end_bucket(self._inputs.on_end_of_bucket(channel, element))
            case el.EndOfData():
                self._end_bucket(self._inputs.on_end_of_rows(channel))
                self._on_end_of_data(channel, element)
            case el.EndOfPartition():
                self._barriers.on_inputs(self._inputs.on_end_of_partition(channel))
                if self._inputs.all_ended:
                    self._barriers.on_inputs_ended()
                if self._stored.on_end_of_partition(channel):
                    self._environment.report(msg.StoredInputsRead(attempt=self.deployment.attempt))

    def _on_watermark(self, channel: int, element: el.Watermark | el.WatermarkStatus) -> None:
        for signal in self._inputs.on_watermark(channel, element):
            if isinstance(signal, el.Watermark):
                self.counters.watermark = signal.timestamp
                self._chain.process_watermark(signal.timestamp)
            else:
                self._chain.process_watermark_status(signal.idle)

    def _end_bucket(self, ended: el.EndOfBucket | None) -> None:
        if ended is not None:
            self._chain.end_bucket(ended)

    def _on_end_of_data(self, channel: int, element: el.EndOfData) -> None:
        if not self._inputs.on_end_of_data(channel, element):
            return
        input_index = self._inputs.input_of(channel)
        if self._inputs.is_drained(input_index):
            self._chain.end_input(input_index)
        if self._inputs.data_ended:
            self.end_of_data(drain=self._inputs.all_drained)

    def end_of_data(self, *, drain: bool) -> None:
        """No more rows: finishes the operators, if `drain`, and sends EndOfData."""
        assert not self.data_ended, "data ends once"
        if drain and self._is_source_vertex:
            self._chain.process_watermark(MAX_WATERMARK)
        if drain:
            self._chain.finish(self._timers.quiesce, again=self._had_ended)
        self._timers.quiesce_all()
        self.data_ended = True
        self.drained |= drain
        self._outputs.broadcast(el.EndOfData(drain))
        self._snapshots.on_end_of_data()
        if drain:
            self._environment.report(msg.EndOfDataReached(attempt=self.deployment.attempt))

    def advance_watermark(self, timestamp: int) -> None:
        """Sets the event time of a source whose rows so far are read."""
        assert self._is_source_vertex, "elsewhere watermarks come with the rows"
        if timestamp > MIN_WATERMARK:
            self._chain.process_watermark(timestamp)

    # --- mail -------------------------------------------------------------------------------------

    def _on_mail(self, mail: Mail) -> None:
        match mail:
            case msg.TriggerCheckpoint():
                self._barriers.on_trigger(mail)
            case msg.CheckpointCompleted():
                self._snapshots.on_completed(mail)
            case msg.CheckpointAborted():
                awaited = not self._is_source_vertex and self._inputs.give_up(mail.checkpoint_id)
                self._barriers.on_aborted(mail, awaited=awaited)
            case SnapshotStored():
                pass  # it has woken the task, which may be able to finish now
            case SnapshotNotStored():
                self._snapshots.on_not_stored(mail)
            case msg.AssignSplits():
                self._on_splits(mail)
            case BackgroundDone():
                mail.finish()

    def _on_splits(self, mail: msg.AssignSplits) -> None:
        if self._source is None or self.data_ended or self._had_ended:
            # splits assigned after the barrier of a stop are the master's in that savepoint
            if mail.splits and not self._snapshots.is_stopping:
                raise ProtocolError(f"splits for {self.deployment.attempt}, which has stopped reading")
            return
        self._source.assign(mail)

    # --- ends -------------------------------------------------------------------------------------

    def _may_close(self) -> bool:
        if not self.data_ended or self._snapshots.is_storing or self._contexts.background.is_busy:
            return False
        if not self._is_source_vertex and not self._inputs.all_ended:
            return False
        waits = self._awaits_last_checkpoint or self._snapshots.is_stopping
        return self._snapshots.final_completed or not waits

    def _end_finished(self) -> StepResult:
        self._chain.close()
        self._outputs.broadcast(el.EndOfPartition())
        self._inputs.close()
        self._enter(TaskState.FINISHED, committables=exchange.reported_by(self.partitions))
        return _DONE

    def _end_cancelled(self) -> StepResult:
        self._release()
        self._enter(TaskState.CANCELED)
        self._abandon_partitions()
        return _DONE

    def _end_failed(self, error: BaseException) -> StepResult:
        self._release()
        failure = task_failure(error)
        _log.error("event=task_failed attempt=%s", self.deployment.attempt, exc_info=error)
        self._enter(TaskState.FAILED, failure)
        self._abandon_partitions()
        return _DONE

    def _release(self) -> None:
        """Closes everything, without finish and end of data; errors are logged."""
        for what, release in (("operators", self._chain.close), ("inputs", self._inputs.close)):
            try:
                release()
            except Exception:  # of user code; the others are closed too
                _log.exception("event=close_failed attempt=%s what=%s", self.deployment.attempt, what)

    def _abandon_partitions(self) -> None:
        for partition in self.partitions:
            partition.abandon()


def _earliest(*deadlines: int | None) -> int | None:
    return min((d for d in deadlines if d is not None), default=None)
