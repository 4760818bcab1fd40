"""Which tasks are deployed when, and in which slots.

    CREATED ── its region is due ──► SCHEDULED ── all slots of the bulk ──► DEPLOYING ──► … ──► FINISHED
       ▲                                                                                   │
       └───────────────────────── reset, one attempt later ◄── FAILED, CANCELED, FINISHED ─┘

A bulk (the subtasks of one region) asks for its slots together and is deployed when all of them are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.ids import PartitionId, SubtaskId, TaskManagerId, VertexId
from unistream.core.contract import (
    CancelTimer,
    JobSettings,
    Outbox,
    ReleaseSlots,
    RequestSlots,
    Send,
    SetTimer,
    SlotLease,
    SlotRequest,
    Timer,
    TimerKind,
)
from unistream.core.execution.deployment import Deployer
from unistream.core.execution.execution import ExecutionState
from unistream.core.execution.executions import Execution
from unistream.core.execution.job_run import JobRun
from unistream.core.execution.recoveries import Recoveries
from unistream.core.graph import endless_vertices
from unistream.core.resource import Slice, SlotPool, missing_slots_text
from unistream.model.messages import CancelTask, ReleaseTaskManager, TaskFailure
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
        not_started: Why the latest worker that was to bring slots did not come up; empty: none, or others
            have brought some since.
    """

    def __init__(self, run: JobRun, slots: SlotPool, settings: JobSettings, outbox: Outbox) -> None:
        self._run = run
        self._slots = slots
        self._settings = settings
        self._outbox = outbox
        self._executions = run.executions
        self._deployer = Deployer(
            settings=settings,
            plan=run.plan,
            executions=run.executions,
            slots=slots,
            outbox=outbox,
            stored=run.stored,
        )
        self._endless = frozenset(endless_vertices(run.graph))
        self._waiting: dict[int, _Bulk] = {}
        self._last_bulk = -1
        self.not_started = ""
        self._restores: dict[SubtaskId, TaskRestore] = {}

    # --- scheduling -------------------------------------------------------------------------------

    def give_up_partitions(self) -> None:
        """Nobody will read what this run has produced."""
        self._send(self._run.tracker.release_all())

    def restart(self, subtasks: frozenset[SubtaskId], restores: Mapping[SubtaskId, TaskRestore]) -> None:
        """They start (again), after all former attempts have ended; at once where their inputs are there."""
        self._executions.reset(sorted(subtasks))
        for subtask in subtasks:
            self._restores.pop(subtask, None)
            if subtask in restores:
                self._restores[subtask] = restores[subtask]
        attempts = [self._executions[subtask].attempt for subtask in sorted(subtasks)]
        self._send(self._run.tracker.restarted(attempts))
        holders = frozenset(self._run.tracker.holders)
        dropped = self._slots.drop_distrusted(self._busy(()) | self._slots.slices_on(holders))
        if dropped:
            self._outbox.add(ReleaseSlots(requests=dropped))
        self._schedule(self._run.scheduling.restart(subtasks), "restart")

    def _schedule(self, bulks: Iterable[Sequence[SubtaskId]], why: str) -> None:
        requests: list[SlotRequest] = []
        for subtasks in bulks:
            for subtask in subtasks:
                self._executions.move(self._executions[subtask], ExecutionState.SCHEDULED, why)
            self._last_bulk += 1
            self._waiting[self._last_bulk] = _Bulk(self._last_bulk, tuple(subtasks))
            requests += self._slots.require(subtasks)
            if self._slots.missing(subtasks):
                self._set_timer(self._last_bulk)
        if requests:
            self._outbox.add(RequestSlots(requests=tuple(requests)))

    def _set_timer(self, bulk: int) -> None:
        timer = Timer(TimerKind.SLOT_REQUEST, bulk)
        self._outbox.add(SetTimer(timer=timer, delay_ms=self._settings.slot_request_timeout_ms))

    def running(self, execution: Execution) -> None:
        """A task has come up."""
        self._schedule(self._run.scheduling.on_running(execution.attempt.subtask), "its producers run")

    def finished(self, execution: Execution) -> None:
        """A task has ended well: its partitions are complete, its inputs may be deleted."""
        subtask = execution.attempt.subtask
        tracker = self._run.tracker
        if execution.place is not None and self._run.blocking_outputs(execution):
            self._send(tracker.produced(execution.attempt, execution.place.task_manager))
        self._schedule(self._run.scheduling.on_finished(subtask), f"{execution.vertex_name} has finished")
        self._send(tracker.finished(subtask))

    def finished_too_late(self, execution: Execution) -> None:
        """A task has ended well after it was told to end: its partitions come too late."""
        if execution.place is not None and self._run.blocking_outputs(execution):
            self._send(self._run.tracker.unwanted(execution.attempt, execution.place.task_manager))

    def unreadable(self, partition: PartitionId) -> None:
        """A consumer found it missing or damaged."""
        self._send(self._run.tracker.unreadable(partition))

    def passed(self, vertices: Iterable[VertexId]) -> None:
        """A checkpoint is complete in which all tasks of these had finished."""
        gone = frozenset(vertices)
        for execution in self._executions:
            if execution.attempt.vertex in gone and self._run.blocking_outputs(execution):
                self._send(self._run.tracker.passed(execution.attempt.subtask))

    def _send(self, sends: Iterable[Send]) -> None:
        for send in sends:
            self._outbox.send_tracked(send.task_manager, send.message)

    @property
    def is_waiting(self) -> bool:
        """Some region is scheduled and has not got all its slots."""
        return bool(self._waiting)

    # --- slots ------------------------------------------------------------------------------------

    def granted(self, leases: tuple[SlotLease, ...]) -> None:
        self.not_started = ""
        unwanted = self._slots.grant(leases)
        if unwanted:
            self._outbox.add(ReleaseSlots(requests=unwanted))

    def deploy_ready(self, recoveries: Recoveries) -> None:
        """Deploys every bulk that has its slots. `recoveries`: what will need its slots again soon."""
        if self._waiting and self._run.has_blocking:
            cancelled = self._slots.share(self._busy(recoveries.subtasks))
            if cancelled:
                self._outbox.add(ReleaseSlots(requests=cancelled))
        for bulk in list(self._waiting.values()):
            if not self._slots.missing(bulk.subtasks):
                del self._waiting[bulk.id]
                self._outbox.add(CancelTimer(Timer(TimerKind.SLOT_REQUEST, bulk.id)))
                self._slots.used(bulk.subtasks)
                self._deployer.deploy(bulk.subtasks, self._restores)

    def _busy(self, reserved: Iterable[SubtaskId]) -> frozenset[Slice]:
        """Slices in which something runs, is about to run, or will run again."""
        alive = (e.attempt.subtask for e in self._executions if _is_alive(e))
        return frozenset(self._slots.slice_of(subtask) for part in (alive, reserved) for subtask in part)

    def release_idle(self, recoveries: Recoveries, now_ms: int) -> None:
        """Looks for slots that have had nothing to do for `slot.idle.timeout`.

        A worker that holds partitions which are still needed keeps its slots, and so stays.
        """
        holders = frozenset(self._run.tracker.holders)
        busy = self._busy(recoveries.subtasks) | self._slots.slices_on(holders)
        released, again_ms = self._slots.release_idle(busy, now_ms)
        if released:
            self._outbox.add(ReleaseSlots(requests=released))
        if again_ms is not None:
            self._outbox.add(SetTimer(timer=_IDLE, delay_ms=again_ms))

    def overdue(self, bulk_id: int, recoveries: Recoveries) -> tuple[TaskFailure, Execution] | None:
        """The slot request timeout of a bulk is over; who fails because of it. What the bulk has got so far
        goes back: others may have waited for that, as it has for theirs."""
        bulk = self._waiting.get(bulk_id)
        missing = self._slots.missing(bulk.subtasks) if bulk is not None else ()
        if bulk is None or not missing:
            return None
        own = frozenset(self._slots.slice_of(subtask) for subtask in bulk.subtasks)
        ending = self._ending(recoveries.subtasks) - own
        if self._run.has_blocking and self._slots.can_pass_on(ending, missing):
            self._set_timer(bulk_id)  # other regions will give theirs up
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
        """Slices in which something runs, or will again, and nothing that has no end."""
        running = (e.attempt.subtask for e in self._executions if e.is_deployed)
        slices: set[Slice] = set()
        endless: set[Slice] = set()
        for subtask in (*running, *restarting):
            found = endless if subtask.vertex in self._endless else slices
            found.add(self._slots.slice_of(subtask))
        return frozenset(slices - endless)

    def _give_up_slots(self, bulk: _Bulk, slices: frozenset[Slice]) -> None:
        """Those of its `slices` in which nothing else runs or is kept."""
        own = frozenset(bulk.subtasks)
        alive = (e.attempt.subtask for e in self._executions if _is_alive(e))
        used = {self._slots.slice_of(subtask) for subtask in alive if subtask not in own}
        kept = self._slots.slices_on(frozenset(self._run.tracker.holders))
        released = self._slots.give_up(sorted(slices - used - kept))
        if released:
            self._outbox.add(ReleaseSlots(requests=released))

    def unfulfillable(self, requests: tuple[str, ...]) -> list[Execution]:
        """No worker can serve these requests: the first task of each region that waits for one."""
        refused = self._slots.refused(requests)
        return [
            self._executions[bulk.subtasks[0]]
            for bulk in self._waiting.values()
            if not refused.isdisjoint(self._slots.slice_of(subtask) for subtask in bulk.subtasks)
        ]

    def lost(self, task_manager: TaskManagerId, reason: str) -> list[Execution]:
        """A worker is gone with all that ran there; returns what failed by that."""
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
        requests = [r for bulk in self._waiting.values() for r in self._slots.require(bulk.subtasks)]
        if requests:
            self._outbox.add(RequestSlots(requests=tuple(requests)))
        return victims

    # --- ending tasks -----------------------------------------------------------------------------

    def cancel(self, subtasks: Iterable[SubtaskId], why: str) -> None:
        """Ends these tasks; those that have not been deployed end at once."""
        gone = frozenset(subtasks)
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
        """Tasks have not ended in time although they were told to: their processes must."""
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
        for execution in self._executions:
            if execution.is_deployed:
                holds = self._slots.holds(execution.attempt.subtask, execution.place)
                assert holds, f"{execution.attempt} runs where the job has no lease"
        for bulk in self._waiting.values():
            for subtask in bulk.subtasks:
                state = self._executions[subtask].state
                assert state is ExecutionState.SCHEDULED, f"{subtask} waits for a slot but is {state.value}"
