"""Which tasks are deployed when, and in which slots.

    CREATED ── its region is due ──► SCHEDULED ── all slots of the bulk ──► DEPLOYING ──► … ──► FINISHED
       ▲                                                                                   │
       └───────────────────────── reset, one attempt later ◄── FAILED, CANCELED, FINISHED ─┘

The slots of a bulk (the subtasks of one region) are requested together; it is deployed when it has all of
them, so that its tasks find each other by address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.ids import AttemptId, PartitionId, SubtaskId, TaskManagerId, VertexId
from unistream.core.contract import (
    CancelTimer,
    CommandOutbox,
    JobSettings,
    Send,
    SlotLease,
    SlotRequest,
    Timer,
    TimerKind,
)
from unistream.core.execution.engine_region import ENGINE, EngineRegion
from unistream.core.execution.executions import Execution
from unistream.core.execution.job_run import JobRun
from unistream.core.execution.recoveries import Recoveries
from unistream.core.graph import endless_vertices
from unistream.core.resource import Slice, SlotPool, missing_slots_text
from unistream.model.deployment import TaskDeployment
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import (
    CancelTask,
    DeployTask,
    ReleasePartitions,
    ReleaseTaskManager,
    TaskFailure,
)
from unistream.model.plan import TaskManagerLocation
from unistream.model.snapshot import TaskRestore

_IDLE: Final = Timer(TimerKind.SLOT_IDLE)


@dataclass(frozen=True, slots=True)
class _Bulk:
    """A region that waits for its slots."""

    id: int
    subtasks: tuple[SubtaskId, ...]


def _is_alive(execution: Execution) -> bool:
    """It runs, or is about to."""
    return execution.state is not ExecutionState.CREATED and not execution.state.is_terminal


class RegionScheduler:
    """Tasks and slots of one run.

    Attributes:
        not_started: Why the latest worker for open slot requests did not start; empty if slots were granted
            since.
        engine: What has no slots.
    """

    def __init__(
        self,
        run: JobRun,
        slots: SlotPool,
        settings: JobSettings,
        outbox: CommandOutbox,
        former: RegionScheduler | None = None,
    ) -> None:
        """`former`: of the same job at another parallelism."""
        self._run = run
        self.engine: EngineRegion = EngineRegion(run, outbox, None if former is None else former.engine)
        self._slots = slots
        self._settings = settings
        self._outbox = outbox
        self._executions = run.executions
        self._vertices = {vertex.id: vertex for vertex in run.graph.vertices}
        self._endless = frozenset(endless_vertices(run.graph))
        self._waiting: dict[int, _Bulk] = {}
        self._last_bulk = -1
        self.not_started = ""
        self._restores: dict[SubtaskId, TaskRestore] = {}
        self._checked: dict[Slice, SlotLease] = {}

    # --- scheduling -------------------------------------------------------------------------------

    def give_up_partitions(self) -> None:
        """The results of this run are not read any more."""
        self._send(self._run.tracker.release_all())

    def restart(self, subtasks: frozenset[SubtaskId], restores: Mapping[SubtaskId, TaskRestore]) -> None:
        """Starts them (again); all former attempts have ended."""
        self._executions.reset(sorted(subtasks))
        for subtask in subtasks:
            self._restores.pop(subtask, None)
            if subtask in restores:
                self._restores[subtask] = restores[subtask]
        attempts = [self._executions[subtask].attempt for subtask in sorted(subtasks)]
        self._send(self._run.tracker.restarted(attempts))
        kept = self._slots.slices_on(self._run.tracker.holders)
        self._outbox.release_slots(self._slots.drop_distrusted(self._busy(()) | kept))
        self._schedule(self._run.scheduling.restart(subtasks), "restart")

    def had_finished(self, subtasks: Iterable[SubtaskId], why: str) -> None:
        """They ran under an earlier leader and are not needed again."""
        for subtask in sorted(subtasks):
            execution = self._executions[subtask]
            if execution.state is not ExecutionState.CREATED:
                continue  # it ran under this one
            for state in (ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.FINISHED):
                self._executions.move(execution, state, why)

    def _schedule(self, bulks: Iterable[Sequence[SubtaskId]], why: str) -> None:
        requests: list[SlotRequest] = []
        on_engine = False
        for subtasks in bulks:
            for subtask in subtasks:
                self._executions.move(self._executions[subtask], ExecutionState.SCHEDULED, why)
            if subtasks[0] in self.engine:
                on_engine = True
                continue
            self._last_bulk += 1
            self._waiting[self._last_bulk] = _Bulk(self._last_bulk, tuple(subtasks))
            requests += self._slots.require(subtasks)
            if self._slots.missing(subtasks):
                self._set_timer(self._last_bulk)
        self._outbox.request_slots(tuple(requests))
        if on_engine and self.engine.begin(self._restores):
            self._had_finished()

    def _had_finished(self) -> None:
        """The engine does not run: all that it would store was read before the snapshot."""
        for execution in self.engine.executions:
            subtask = execution.attempt.subtask
            self._send(self._run.tracker.passed(subtask))
            self._schedule(self._run.scheduling.on_finished(subtask), "its stored inputs were read before")
            self._send(self._run.tracker.finished(subtask))

    def _set_timer(self, bulk: int) -> None:
        self._outbox.set_timer(Timer(TimerKind.SLOT_REQUEST, bulk), self._settings.slot_request_timeout_ms)

    def running(self, execution: Execution) -> None:
        self._schedule(self._run.scheduling.on_running(execution.attempt.subtask), "its producers run")

    def finished(self, execution: Execution) -> None:
        """A task has finished: its partitions are complete, its inputs may be deleted."""
        subtask = execution.attempt.subtask
        tracker = self._run.tracker
        where = execution.place.task_manager if execution.place is not None else None
        if subtask in self.engine:
            where = ENGINE
        if where is not None and self._run.blocking_outputs(execution):
            self._send(tracker.produced(execution.attempt, where))
        why = f"{execution.vertex_name} has finished"
        readable = self._run.reported.finished(subtask)
        for producer in dict.fromkeys((subtask, *readable)):
            self._schedule(self._run.scheduling.on_finished(producer), why)
        self._send(tracker.finished(subtask))

    def finished_too_late(self, execution: Execution) -> None:
        """A task has finished although it was being canceled: its partitions are not needed."""
        if execution.place is not None and self._run.blocking_outputs(execution):
            self._send(self._run.tracker.unwanted(execution.attempt, execution.place.task_manager))

    def unreadable(self, partition: PartitionId) -> None:
        """A consumer found the partition missing or damaged."""
        self._send(self._run.tracker.unreadable(partition))

    def passed(self, vertices: Iterable[VertexId]) -> None:
        """A checkpoint has completed in which all tasks of these vertices had finished."""
        gone = frozenset(vertices)
        for execution in self._executions:
            if execution.attempt.vertex in gone and self._run.blocking_outputs(execution):
                self._send(self._run.tracker.passed(execution.attempt.subtask))

    def _send(self, sends: Iterable[Send]) -> None:
        for send in sends:
            if send.task_manager != ENGINE:
                self._outbox.send_tracked(send.task_manager, send.message)
            elif isinstance(send.message, ReleasePartitions):
                self.engine.released(send.message.partitions)

    @property
    def is_waiting(self) -> bool:
        """A scheduled region lacks slots."""
        return bool(self._waiting)

    # --- slots ------------------------------------------------------------------------------------

    def granted(self, leases: tuple[SlotLease, ...]) -> None:
        self.not_started = ""
        self._outbox.release_slots(self._slots.grant(leases))

    def deploy_ready(self, recoveries: Recoveries) -> None:
        """Deploys every bulk that has its slots. `recoveries`: what will need its slots again soon."""
        if self._waiting and self._run.has_blocking:
            self._outbox.release_slots(self._slots.share(self._busy(recoveries.subtasks)))
        ready = [bulk for bulk in self._waiting.values() if not self._slots.missing(bulk.subtasks)]
        if not ready:
            return
        attempts, places = self._executions.attempts, self._executions.places  # of all tasks, so once
        for bulk in ready:
            del self._waiting[bulk.id]
            self._outbox.add(CancelTimer(Timer(TimerKind.SLOT_REQUEST, bulk.id)))
            self._slots.used(bulk.subtasks)
            self._deploy(bulk.subtasks, attempts, places)

    def _deploy(
        self,
        bulk: Sequence[SubtaskId],
        attempts: Mapping[SubtaskId, AttemptId],
        places: dict[SubtaskId, TaskManagerLocation],
    ) -> None:
        """Their producers are in the same bulk, or have been deployed before, as `places` says, which the
        bulk is added to."""
        for subtask in bulk:
            places[subtask] = self._executions[subtask].place = self._slots.place(subtask)
        run, settings = self._run, self._settings
        for subtask in bulk:
            execution = self._executions[subtask]
            restore = self._restores.get(subtask)
            execution.restored_finished = restore is not None and restore.finished
            execution.restored_ended = restore is not None and restore.data_ended
            self._executions.move(execution, ExecutionState.DEPLOYING, "all slots of its region are there")
            deployment = TaskDeployment(
                attempt=execution.attempt,
                job_name=run.graph.name,
                lineage=settings.lineage,
                epoch=settings.epoch,
                vertex=self._vertices[subtask.vertex],
                artifact=settings.artifact,
                gates=run.stored.gates(run.plan.gates(subtask, attempts, places)),
                partitions=run.plan.partitions(subtask),
                restore=restore,
                checkpoint_root=settings.checkpoint_root,
                checkpointing=settings.checkpointing and run.stored.may_checkpoint(subtask.vertex),
                config=run.graph.config,
                allocation=self._slots.allocation(subtask),
            )
            self._outbox.send_tracked(places[subtask].task_manager, DeployTask(deployment=deployment))

    def _busy(self, reserved: Iterable[SubtaskId]) -> frozenset[Slice]:
        """Slices in which something runs, is about to run, or will run again."""
        alive = (e.attempt.subtask for e in self._executions if _is_alive(e))
        return frozenset(self._slots.slice_of(subtask) for part in (alive, reserved) for subtask in part)

    def release_idle(self, recoveries: Recoveries, now_ms: int) -> None:
        """Releases slots that were idle for `slot.idle.timeout`, except on workers whose partitions are still
        needed: a worker without slots would be stopped."""
        busy = self._busy(recoveries.subtasks) | self._slots.slices_on(self._run.tracker.holders)
        released, again_ms = self._slots.release_idle(busy, now_ms)
        self._outbox.release_slots(released)
        if again_ms is not None:
            self._outbox.set_timer(_IDLE, again_ms)

    def overdue(self, bulk_id: int, recoveries: Recoveries) -> tuple[TaskFailure, Execution] | None:
        """The slot request timeout of a bulk has expired: the failure, and the task that fails. The slots
        that the bulk has are released, because other bulks may be waiting for them."""
        bulk = self._waiting.get(bulk_id)
        missing = self._slots.missing(bulk.subtasks) if bulk is not None else ()
        if bulk is None or not missing:
            return None
        own = frozenset(self._slots.slice_of(subtask) for subtask in bulk.subtasks)
        ending = self._ending(recoveries.subtasks) - own
        if self._run.has_blocking and self._slots.can_pass_on(ending, missing):
            self._set_timer(bulk_id)  # other regions will release theirs
            return None
        self._give_up_slots(bulk, own)
        requests = [self._slots.describe(piece) for piece in missing]
        failure = TaskFailure(
            kind="NoResourceAvailable",
            message=missing_slots_text(
                requests, len(own), self._settings.slot_request_timeout_ms, self.not_started
            ),
        )
        return failure, self._executions[bulk.subtasks[0]]

    def _ending(self, restarting: Iterable[SubtaskId]) -> frozenset[Slice]:
        """Slices in which something runs, or will again, and all of it ends at some time."""
        running = (e.attempt.subtask for e in self._executions if e.is_deployed)
        slices: set[Slice] = set()
        endless: set[Slice] = set()
        for subtask in (*running, *restarting):
            found = endless if subtask.vertex in self._endless else slices
            found.add(self._slots.slice_of(subtask))
        return frozenset(slices - endless)

    def _give_up_slots(self, bulk: _Bulk, slices: frozenset[Slice]) -> None:
        """Gives up those of the `slices` in which nothing else runs or is kept."""
        own = frozenset(bulk.subtasks)
        alive = (e.attempt.subtask for e in self._executions if _is_alive(e))
        used = {self._slots.slice_of(subtask) for subtask in alive if subtask not in own}
        kept = self._slots.slices_on(self._run.tracker.holders)
        self._outbox.release_slots(self._slots.give_up(sorted(slices - used - kept)))

    def unfulfillable(self, requests: tuple[str, ...]) -> list[Execution]:
        """No worker can serve these requests: the first task of each region that waits for one of them."""
        refused = self._slots.refused(requests)
        return [
            self._executions[bulk.subtasks[0]]
            for bulk in self._waiting.values()
            if not refused.isdisjoint(self._slots.slice_of(subtask) for subtask in bulk.subtasks)
        ]

    def lost(self, task_manager: TaskManagerId, reason: str) -> list[Execution]:
        """A worker is lost: the executions that failed with it, and those that end there as CANCELED."""
        if not self._slots.is_on(task_manager):
            self.not_started = reason
        self._slots.lost(task_manager)
        victims = []
        for execution in self._executions:
            if execution.is_deployed and execution.place and execution.place.task_manager == task_manager:
                if execution.state is ExecutionState.CANCELING:
                    self._executions.move(execution, ExecutionState.CANCELED, reason)
                else:
                    self._executions.move(execution, ExecutionState.FAILED, reason)
                victims.append(execution)
        missing = (r for bulk in self._waiting.values() for r in self._slots.require(bulk.subtasks))
        self._outbox.request_slots(tuple(missing))
        return victims

    # --- workers that are drained -------------------------------------------------------------------

    def leave(self, task_manager: TaskManagerId) -> None:
        """Nothing more starts on that worker: requests other slots for what waits to."""
        self._slots.leave(task_manager)
        missing = (r for bulk in self._waiting.values() for r in self._slots.require(bulk.subtasks))
        self._outbox.request_slots(tuple(missing))

    def to_move(self) -> list[SubtaskId]:
        """What runs on workers that are drained."""
        if not self._slots.is_leaving:
            return []
        return [e.attempt.subtask for e in self._executions if e.is_deployed and self._slots.leaves(e.place)]

    def release_left(self) -> None:
        """Returns the leases of workers that are drained in which nothing runs, unless results that are still
        needed are stored there."""
        if self._slots.is_leaving:
            places = [e.place for e in self._executions if e.is_deployed]
            used = frozenset(
                one.allocation for one in places if one is not None and one.allocation is not None
            )
            self._outbox.release_slots(self._slots.left(used, self._run.tracker.holders))

    # --- ending tasks -----------------------------------------------------------------------------

    def cancel(self, subtasks: Iterable[SubtaskId], why: str) -> None:
        """Ends these tasks; those that have not been deployed end at once."""
        gone = frozenset(subtasks)
        if any(subtask in self.engine for subtask in gone):
            self.engine.cancel(why)
        for bulk in list(self._waiting.values()):
            left = tuple(subtask for subtask in bulk.subtasks if subtask not in gone)
            if left:  # all of it, unless everything is scheduled as one bulk
                self._waiting[bulk.id] = _Bulk(bulk.id, left)
            else:
                del self._waiting[bulk.id]
                self._outbox.add(CancelTimer(Timer(TimerKind.SLOT_REQUEST, bulk.id)))
        for subtask in sorted(gone):
            execution = self._executions[subtask]
            if execution.state is ExecutionState.SCHEDULED:
                self._executions.move(execution, ExecutionState.CANCELED, why)
            elif execution.is_deployed and execution.state is not ExecutionState.CANCELING:
                self._executions.move(execution, ExecutionState.CANCELING, why)
                self.send_cancel(execution)

    def send_cancel(self, execution: Execution) -> None:
        assert execution.place is not None, "only deployed tasks are cancelled"
        self._outbox.send_tracked(execution.place.task_manager, CancelTask(attempt=execution.attempt))

    def end_stuck_workers(self) -> None:
        """Tasks have not ended within `task.cancellation.timeout`: releases their workers."""
        stuck = {
            e.place.task_manager
            for e in self._executions
            if e.state is ExecutionState.CANCELING and e.place is not None
        }
        for task_manager in sorted(stuck):
            reason = "a task did not end within task.cancellation.timeout"
            self._outbox.send(task_manager, ReleaseTaskManager(task_manager=task_manager, reason=reason))

    def validate(self) -> None:
        """I14: what runs has a lease that the job holds; what waits for slots is SCHEDULED."""
        self._slots.validate()
        for execution in self._unchecked():
            if execution.is_deployed:
                holds = self._slots.holds(execution.attempt.subtask, execution.place)
                assert holds, f"{execution.attempt} runs where the job has no lease"
        for bulk in self._waiting.values():
            for subtask in bulk.subtasks:
                state = self._executions[subtask].state
                assert state is ExecutionState.SCHEDULED, f"{subtask} waits for a slot but is {state.value}"

    def _unchecked(self) -> Iterable[Execution]:
        """The executions that have moved since the last check; all of them if leases have come or gone. Of
        very many tasks one step moves few."""
        moved, leases = self._executions.take_moved(), self._slots.by_slice
        if leases == self._checked:
            return moved
        self._checked = leases
        return self._executions
