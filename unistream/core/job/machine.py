"""One job: events in, commands out.

    machine = JobMachine(graph, job_settings(config, job=..., ...), restore)
    for event, now_ms in events:                       # the first one is Started()
        for command in machine.handle(event, now_ms):  # performed in order, by the JobMaster
            ...
        machine.validate()

Dispatches events: `life` has the steps of a job's life, `core.checkpoint` snapshots and splits. Messages of
an attempt that is not the current one are ignored. After `JobEnded` requests are refused and all else is
ignored.
"""

from __future__ import annotations

from typing import Final, assert_never

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.core import contract
from unistream.core.execution import Execution, parse_reported
from unistream.core.graph import check
from unistream.core.job.deliveries import ALIVE, Deliveries
from unistream.core.job.life import JobLife
from unistream.core.job.offloaded import OffloadedEvents
from unistream.model import messages as msg
from unistream.model.bounded import (
    AttemptsChanged,
    CommittersStored,
    RunFailed,
    StagedCommitted,
    StagesRan,
)
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.stored_job import Sealed

_ORDER: Final = {state: place for place, state in enumerate(ALIVE)}

_CheckpointEvent = (
    contract.SnapshotRequest
    | contract.DirectoryReady
    | contract.DirectoryFailed
    | contract.ManifestDurable
    | contract.ManifestFailed
    | msg.CheckpointAcked
    | msg.CheckpointDeclined
)


class JobMachine:
    """One job, from its start to its end.

    Args:
        graph: Checked here again.
        restore: Snapshot to start from; None = a fresh start.

    Raises:
        ConfigError: the graph is not valid, or the state of `restore` does not fit it.
    """

    def __init__(
        self, graph: JobGraph, settings: contract.JobSettings, restore: contract.RestorePoint | None = None
    ) -> None:
        check(graph)
        if restore is not None and restore.manifest.lineage != settings.lineage:
            raise ConfigError(
                f"{restore.directory} belongs to lineage {restore.manifest.lineage}, but the job was given "
                f"{settings.lineage}: a restored job continues the lineage of its snapshot"
            )
        self._lineage = settings.lineage
        self._life = JobLife(graph, settings, restore)
        self._parts = self._life.parts
        self._coordinator = self._parts.coordinator
        self._deliveries = Deliveries(self._parts, self._life.fail)
        self._offloaded = OffloadedEvents(self._life)

    def handle(self, event: contract.Event, now_ms: int) -> list[contract.Command]:
        """The commands that follow from `event`, in order. `now_ms`: of any clock that never goes back.

        Raises:
            ProtocolError: a worker reported a state that it cannot report; nothing was changed.
        """
        if self._parts.log.is_terminal:
            return self._refuse_late(event)
        self._parts.now_ms = now_ms
        self._coordinator.at(now_ms)
        failure = self._dispatch(event)
        if failure is not None:
            self._life.fail(failure, None)
        self._life.move_on()
        return self._parts.outbox.take()

    def sealed(self) -> Sealed:
        """What a BATCH job commits, as far as it is fixed."""
        return self._parts.run.reported.sealed(self._lineage)

    def view(self) -> contract.JobView:
        return contract.JobView(
            graph=self._parts.run.graph,
            state=self._parts.state.status.value,
            restarts=self._parts.failures.number_of_restarts,
            attempts=self._parts.executions.views(),
            checkpoints_completed=self._coordinator.history.count_completed,
            checkpoints_failed=self._coordinator.history.count_failed,
            checkpoints_restored=self._coordinator.history.count_restored,
            failure=self._parts.failure,
            wanted=self._parts.scheduling.desired,
            next_restart_ms=self._parts.recoveries.next_ms,
            unread=self._parts.sources.unread,
        )

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo:
        """The history of snapshots. `now_ms`: as for `handle`; `wall_ms`: the wall clock at that time."""
        names = {vertex.id: vertex.name for vertex in self._parts.run.graph.vertices}
        return self._coordinator.figures(names, now_ms, wall_ms)

    def validate(self) -> None:
        """Invariants that hold between any two events; an AssertionError is a bug.

        I6: ids grow, and no manifest is written before every acknowledgement. I12: after a job's end no
        attempt is alive. I14: what runs has a lease that the job holds.
        """
        self._parts.validate()

    # --- dispatch ---------------------------------------------------------------------------------

    def _dispatch(self, event: contract.Event) -> msg.TaskFailure | None:  # noqa: C901  a case for each event
        match event:
            case contract.Started():
                self._life.start()
            case contract.SlotsGranted(leases=leases):
                self._parts.granted(leases)
            case contract.SlotsUnfulfillable():
                self._life.slots_unfulfillable(event)
            case contract.TaskManagerLost():
                self._on_lost(event)
            case contract.TaskManagerDraining(task_manager=task_manager):
                self._life.moving.drain(task_manager)
            case contract.Delivered():
                return self._deliveries.delivered(event)
            case contract.Undelivered():
                return self._deliveries.undelivered(event)
            case contract.SplitsDiscovered() | contract.DiscoveryFailed() if (
                event.vertex in self._parts.run.offloaded
            ):
                self._offloaded.found(event)
            case contract.SplitsDiscovered():
                self._parts.sources.discovered(event)
                return self._coordinator.obstacle_removed()
            case contract.DiscoveryFailed():
                return self._parts.sources.discovery_failed(event)
            case contract.TimerFired(timer):
                return self._on_timer(timer)
            case contract.CancelRequested():
                self._life.cancel()
            case contract.SuspendRequested():
                self._life.suspend(event)
            case contract.LeadershipLost(reason=reason):
                self._life.step_down(reason)
            case contract.RescaleRequested():
                return self._life.rescaling.request(event)
            case msg.TaskStateChanged():
                return self._on_task_state(event)
            case msg.EndOfDataReached():
                return self._on_end_of_data(event)
            case msg.StoredInputsRead():
                return self._on_inputs_read(event)
            case msg.SplitRequested(attempt=attempt):
                if self._parts.executions.find(attempt) is not None:
                    self._parts.sources.requested(attempt.subtask, event.phase, event.newest)
                    return self._coordinator.obstacle_removed()
            case AttemptsChanged() | StagesRan() | CommittersStored() | StagedCommitted() | RunFailed():
                return self._offloaded.reported(event)
            case _:
                return self._on_checkpoint_event(event)
        return None

    def _on_lost(self, event: contract.TaskManagerLost) -> None:
        self._deliveries.releases.lost(event.task_manager)
        self._life.lost(event.task_manager, event.reason)

    def _on_checkpoint_event(self, event: _CheckpointEvent) -> msg.TaskFailure | None:
        match event:
            case contract.SnapshotRequest():
                return self._coordinator.request(event)
            case contract.DirectoryReady():
                return self._coordinator.directory_ready(event)
            case contract.DirectoryFailed(checkpoint_id=checkpoint_id, reason=reason):
                return self._coordinator.directory_failed(checkpoint_id, reason)
            case contract.ManifestDurable(checkpoint_id=checkpoint_id):
                failure = self._coordinator.manifest_durable(checkpoint_id)
                self._parts.snapshot_completed()
                return failure
            case contract.ManifestFailed():
                return self._coordinator.manifest_failed(event)
            case msg.CheckpointAcked():
                return self._coordinator.acked(event)
            case msg.CheckpointDeclined():
                return self._coordinator.declined(event)
            case _:
                assert_never(event)

    def _on_timer(self, timer: contract.Timer) -> msg.TaskFailure | None:  # noqa: C901  a case for each kind
        match timer.kind:
            case contract.TimerKind.RESTART_DELAY:
                self._parts.recoveries.delay_over(timer.id)
            case contract.TimerKind.SLOT_REQUEST:
                return self._life.slots_overdue(timer.id)
            case contract.TimerKind.SLOT_IDLE:
                self._life.look_for_idle_slots()
            case contract.TimerKind.RESOURCES:
                self._parts.scheduling.fired(timer)
            case contract.TimerKind.CANCELLATION:
                self._parts.cancellation_overdue()
            case contract.TimerKind.UNDELIVERED:
                self._deliveries.suspicion_over(timer.id)
            case contract.TimerKind.SPLIT_DISCOVERY:
                self._parts.sources.discovery_due(timer.id)
            case contract.TimerKind.RELEASE:
                self._deliveries.releases.overdue(timer.id)
            case contract.TimerKind.CHECKPOINT_INTERVAL:
                return self._coordinator.interval_elapsed(timer)
            case contract.TimerKind.CHECKPOINT_TIMEOUT:
                return self._coordinator.expired(CheckpointId(timer.id))
            case _:
                assert_never(timer.kind)
        return None

    # --- what tasks report ------------------------------------------------------------------------

    def _on_task_state(self, report: msg.TaskStateChanged) -> msg.TaskFailure | None:
        state = parse_reported(report.state)
        execution = self._parts.executions.find(report.attempt)
        if execution is None or not execution.is_deployed:
            return None
        if state in _ORDER:
            return self._on_progress(execution, state)
        failure = report.failure
        if execution.state is ExecutionState.CANCELING:
            end = ExecutionState.FAILED if state is ExecutionState.FAILED else ExecutionState.CANCELED
            self._parts.executions.move(execution, end, failure.message if failure else "it ended")
            if state is ExecutionState.FINISHED:
                self._parts.scheduler.finished_too_late(execution)
            if failure is not None:
                self._parts.note(failure, execution)
            return None
        if state is ExecutionState.FINISHED:
            failure = self._deliveries.finished(execution.attempt) or self._parts.run.reported.reported(
                execution.attempt, report.committables
            )
        if state is ExecutionState.FINISHED and failure is None:
            self._parts.executions.move(execution, state, "reported")
            first, second = self._life.task_finished(execution), self._life.tasks_changed()
            return first or second
        if failure is None:
            text = f"{execution.vertex_name} is {state.value}, but was not canceled"
            failure = msg.TaskFailure(kind="TaskEnded", message=text)
        self._parts.executions.move(execution, ExecutionState.FAILED, failure.message)
        self._life.fail(failure, execution)
        return None

    def _on_progress(self, execution: Execution, state: ExecutionState) -> msg.TaskFailure | None:
        """INITIALIZING or RUNNING; a repeated or overtaken report changes nothing."""
        now = _ORDER.get(execution.state)
        if now is None or now >= _ORDER[state]:
            return None
        self._parts.executions.move(execution, state, "reported")
        if state is not ExecutionState.RUNNING:
            return None
        self._parts.sources.ready(execution.attempt.subtask)
        self._life.task_running(execution)
        return self._life.tasks_changed()

    def _on_end_of_data(self, report: msg.EndOfDataReached) -> msg.TaskFailure | None:
        execution = self._parts.executions.find(report.attempt)
        if execution is None or execution.end_of_data or not execution.is_deployed:
            return None
        execution.end_of_data = True
        return self._coordinator.end_of_data() if self._parts.executions.all_end_of_data else None

    def _on_inputs_read(self, report: msg.StoredInputsRead) -> msg.TaskFailure | None:
        execution = self._parts.executions.find(report.attempt)
        if execution is None or not execution.is_deployed:
            return None
        execution.inputs_read = True
        return self._coordinator.obstacle_removed()

    def _refuse_late(self, event: contract.Event) -> list[contract.Command]:
        match event:
            case contract.SnapshotRequest(id=request) | contract.RescaleRequested(request=request):
                state = self._parts.state.status.value
                return [contract.AnswerRequest(request=request, error=f"the job has ended: {state}")]
            case contract.SlotsGranted() if self._parts.state.status.is_globally_terminal:
                return [contract.ReleaseSlots()]
            case _:
                return []
