"""Bugs that are planted on purpose, to check that the simulator finds them.

Each replaces a part of a real class (or of the simulated environment, if the rule belongs to an adapter)
while `planted` is active, in this process only. Most are bugs that streaming systems have had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from tests.support import mutants_drain as drain
from tests.support import mutants_shared as shared
from tests.support import mutants_wide as wide
from tests.support.mutants_shared import Patch
from unistream.base.ids import AttemptId, CheckpointId
from unistream.core import contract
from unistream.core.checkpoint.coordinator import CheckpointCoordinator
from unistream.core.checkpoint.pending import CheckpointPhase, PendingCheckpoint
from unistream.core.checkpoint.pendings import PendingSnapshots
from unistream.core.checkpoint.sources import Sources
from unistream.core.checkpoint.split_assignment import SplitAssigner
from unistream.core.checkpoint.start import Obstacle
from unistream.core.checkpoint.store import CompletedSnapshots
from unistream.core.execution.executions import Executions
from unistream.core.execution.recoveries import Recoveries
from unistream.core.resource.slot_pool import SlotPool
from unistream.core.resource.workers import Worker
from unistream.core.task.alignment import BarrierAligner
from unistream.core.task.commit import TaskCheckpoints
from unistream.master.cluster import recovery
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import CheckpointAcked
from unistream.operator.process import ProcessOperator
from unistream.operator.sink.committer import CommitterOperator
from unistream.port.operator import CommitPermit
from unistream.state.hashmap.backend import HashMapStateBackend
from unistream.testing.sim import network
from unistream.testing.sim.ha import SimHaStore
from unistream.testing.sim.store import MasterStorage
from unistream.testing.sim.table import Table
from unistream.worker.exchange.partition import ResultPartition
from unistream.worker.task.chain import OperatorChain
from unistream.worker.task.source_operator import SourceOperator


@dataclass(frozen=True, slots=True)
class Mutant:
    """`lesson`: the bug in one sentence; `patches`: (owner, name, replacement), created when planted."""

    lesson: str
    patches: Callable[[], list[Patch]]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants the bug `name` of `MUTANTS` for the block."""
    with plant(MUTANTS[name]):
        yield


@contextmanager
def plant(mutant: Mutant) -> Iterator[None]:
    """Plants a bug for the block."""
    with ExitStack() as stack:
        for owner, attribute, replacement in mutant.patches():
            if attribute in vars(owner):
                stack.callback(setattr, owner, attribute, vars(owner)[attribute])
            else:  # inherited: other classes keep it
                assert hasattr(owner, attribute), f"{owner} has no {attribute} to plant a bug in"
                stack.callback(delattr, owner, attribute)
            setattr(owner, attribute, replacement)
        yield


# --- commits ----------------------------------------------------------------------------------------


def _not_idempotent() -> list[Patch]:
    return [(Table, "is_committed", lambda *_a, **_k: False)]


def _aborted_drops_output() -> list[Patch]:
    def notify(self: Any, checkpoint_id: CheckpointId) -> None:
        self._committables.remove([checkpoint_id])

    return [(CommitterOperator, "notify_checkpoint_aborted", notify)]


def _no_recommit() -> list[Patch]:
    original = CommitterOperator.initialize_state

    def initialize_state(self: Any, state: Any) -> None:
        self._commit_now = lambda _permit: None
        original(self, state)
        del self._commit_now
        self._committables.remove(self._committables.checkpoints())

    return [(CommitterOperator, "initialize_state", initialize_state)]


def _commit_everything() -> list[Patch]:
    original = CommitterOperator.notify_checkpoint_complete

    def notify(self: Any, permit: CommitPermit) -> None:
        newest = CheckpointId(max(self._committables.newest, permit.checkpoint_id))
        original(self, CommitPermit(lineage=permit.lineage, checkpoint_id=newest, epoch=permit.epoch))

    return [(CommitterOperator, "notify_checkpoint_complete", notify)]


def _ends_early() -> list[Patch]:
    return [(TaskCheckpoints, "final_completed", property(lambda self: self._data_ended))]


# --- checkpoints ------------------------------------------------------------------------------------


def _fallback() -> list[Patch]:
    def latest(self: Any) -> Any:
        return self._all[-2] if len(self._all) > 1 else (self._all[-1] if self._all else None)

    return [(CompletedSnapshots, "latest", property(latest))]


def _notify_early() -> list[Patch]:
    original = CheckpointCoordinator._go_on

    def go_on(self: Any) -> Any:
        failure = original(self)
        written = [pending for pending in self._pendings if pending.phase is CheckpointPhase.FINALIZING]
        return self.manifest_durable(written[0].checkpoint_id) if written else failure

    return [(CheckpointCoordinator, "_go_on", go_on)]


def _reused_ids() -> list[Patch]:
    original = PendingSnapshots.drop

    def drop(self: Any, pending: PendingCheckpoint, *args: Any, **kwargs: Any) -> None:
        original(self, pending, *args, **kwargs)
        self._next_id = pending.checkpoint_id

    return [(PendingSnapshots, "drop", drop)]


def _ids_start_again() -> list[Patch]:
    return [(recovery, "first_free_checkpoint", lambda _snapshots, _restore: 1)]


def _late_ack() -> list[Patch]:
    original = CheckpointCoordinator.acked

    def acked(self: Any, ack: CheckpointAcked) -> Any:
        for pending in self._pendings:
            if pending.awaits(ack.attempt):
                pending.acks[ack.attempt.subtask] = ack
                return self._go_on()
        return original(self, ack)

    return [(CheckpointCoordinator, "acked", acked)]


def _discard_unknown() -> list[Patch]:
    original = CheckpointCoordinator._abort

    def abort(self: Any, obstacle: Obstacle) -> Any:
        return original(self, replace(obstacle, may_exist=False))

    return [(CheckpointCoordinator, "_abort", abort)]


def _no_gate() -> list[Patch]:
    def quiet(self: Any) -> bool:
        return bool(self._held)

    return [(Sources, "quiet", property(quiet)), *_no_order()]


def _no_order() -> list[Patch]:
    """Harmless alone; removes what hides a missing gate."""

    def send(self: Any, messages: Any) -> None:
        self._queue.extend(messages)
        self._busy = False
        self._next()

    return [(network._RequestQueue, "send", send)]


def _no_fence() -> list[Patch]:
    return [
        (MasterStorage, "check_epoch", lambda _self: None),
        (SimHaStore, "check", lambda _self: None),
        (Table, "check_epoch", lambda _self, _epoch: None),
    ]


# --- attempts, slots, splits ------------------------------------------------------------------------


def _stale_attempt() -> list[Patch]:
    def find(self: Any, attempt: AttemptId) -> Any:
        return self._current.get(attempt.subtask)

    return [(Executions, "find", find)]


def _restart_no_wait() -> list[Patch]:
    original = Recoveries.take

    def take(self: Any, _has_ended: Any) -> Any:
        return original(self, lambda _subtask: True)

    def reset(self: Any, subtasks: Any) -> None:
        for subtask in subtasks:
            former = self._current[subtask]
            if former.state is not ExecutionState.CREATED:
                self._counts[former.state] -= 1
                self._create(subtask, former.attempt.attempt + 1)

    return [(Recoveries, "take", take), (Executions, "reset", reset)]


def _no_wait() -> list[Patch]:
    def all_terminal(self: Any) -> bool:
        return all(e.state.is_terminal or e.state is ExecutionState.CANCELING for e in self)

    return [(Executions, "all_terminal", property(all_terminal))]


def _slots_kept() -> list[Patch]:
    return [(SlotPool, "lost", lambda _self, _task_manager: None)]


def _double_grant() -> list[Patch]:
    return [(Worker, "free", property(lambda self: self.slots - len(self.leases) + 1))]


def _runs_again() -> list[Patch]:
    return [(Dispatcher, "_exists", lambda _self, _job: False)]


def _splits_twice() -> list[Patch]:
    def restore(info: Any, parallelism: int, _state: bytes) -> SplitAssigner:
        return SplitAssigner(info, parallelism)

    return [(SplitAssigner, "restore", staticmethod(restore))]


def _assigned_twice() -> list[Patch]:
    original = SourceOperator.add_splits

    def add_splits(self: Any, splits: Any) -> None:
        self._given.clear()
        original(self, splits)

    return [(SourceOperator, "add_splits", add_splits)]


def _requests_lost() -> list[Patch]:
    """Treats an `Undelivered` as a `Delivered`."""
    from unistream.core.job.machine import JobMachine

    original = cast(Any, JobMachine.handle)

    def handle(self: Any, event: contract.Event, *when: Any) -> Any:
        if isinstance(event, contract.Undelivered):
            event = contract.Delivered(token=event.token)
        return original(self, event, *when)

    return [(JobMachine, "handle", handle)]


# --- data -------------------------------------------------------------------------------------------


def _no_alignment() -> list[Patch]:
    return [(BarrierAligner, "is_blocked", lambda _self, _channel: False)]


def _barrier_overtakes() -> list[Patch]:
    def broadcast(self: Any, event: Any) -> None:
        for subpartition in self._subpartitions:
            subpartition.add(event)

    return [(ResultPartition, "broadcast", broadcast)]


def _state_lost() -> list[Patch]:
    return [(HashMapStateBackend, "restore", lambda _self, _tables: None)]


def _finishes_again() -> list[Patch]:
    """Each alone does no harm to a function that emits what it holds."""
    finish, snapshot = OperatorChain.finish, ProcessOperator.snapshot_state

    def finish_again(self: Any, quiesce: Any, **_again: bool) -> None:
        finish(self, quiesce)

    def keeps_lists(self: Any, checkpoint_id: CheckpointId) -> Any:
        finished, self._finished = self._finished, False
        found = snapshot(self, checkpoint_id)
        self._finished = finished
        return found

    return [(OperatorChain, "finish", finish_again), (ProcessOperator, "snapshot_state", keeps_lists)]


MUTANTS: Final[dict[str, Mutant]] = {
    "commit-not-idempotent": Mutant("a commit that is repeated shows its rows twice", _not_idempotent),
    "aborted-checkpoint-drops-output": Mutant(
        "staged output of an aborted checkpoint is dropped instead of kept for the next",
        _aborted_drops_output,
    ),
    "recovery-does-not-recommit": Mutant("what the restored checkpoint lists is not committed", _no_recommit),
    "commit-everything": Mutant("everything prepared is committed, not what is durable", _commit_everything),
    "task-ends-before-its-commit": Mutant("a task does not wait for its last checkpoint", _ends_early),
    "silent-fallback": Mutant("a restart uses an older checkpoint than the newest (FLINK-22502)", _fallback),
    "notify-before-durable": Mutant("completion is announced before the manifest is durable", _notify_early),
    "reused-checkpoint-ids": Mutant("an aborted checkpoint's id is given out again", _reused_ids),
    "ids-start-again": Mutant("a new leader counts checkpoints from 1", _ids_start_again),
    "late-ack": Mutant("an acknowledgement of an aborted checkpoint counts for the next", _late_ack),
    "discard-after-unknown": Mutant(
        "a snapshot whose outcome is unknown is removed (FLINK-22494)", _discard_unknown
    ),
    "no-split-gate": Mutant(
        "a snapshot does not wait for splits in flight, and messages overtake (FLINK-21996)", _no_gate
    ),
    "no-epoch-fence": Mutant("an old leader's writes succeed", _no_fence),
    "stale-attempt": Mutant("reports of an earlier attempt are accepted", _stale_attempt),
    "restart-without-waiting": Mutant(
        "a restart does not wait until the old attempts have ended", _restart_no_wait
    ),
    "end-without-waiting": Mutant("a job ends while its attempts do not", _no_wait),
    "lost-slots-kept": Mutant("the slots of a lost worker are used again", _slots_kept),
    "double-grant": Mutant("a slot is granted to two requests", _double_grant),
    "job-runs-again": Mutant("a request that is repeated starts the job again", _runs_again),
    "splits-given-twice": Mutant("a restored source assigns splits that its readers have", _splits_twice),
    "repeated-assignment": Mutant(
        "a split that is assigned by a repeated message is read twice", _assigned_twice
    ),
    "undelivered-is-delivered": Mutant("a message without an answer counts as delivered", _requests_lost),
    "no-alignment": Mutant("channels are not blocked behind a barrier", _no_alignment),
    "barrier-overtakes": Mutant("a barrier overtakes rows that wait for a full batch", _barrier_overtakes),
    "state-not-restored": Mutant("keyed state is not restored", _state_lost),
    "finishes-again": Mutant(
        "a task that is restored behind `finish` calls it again, with the state that it had used up",
        _finishes_again,
    ),
    "consumer-before-producer": Mutant(
        "a region is scheduled before the results that it reads are complete", wide.consumer_too_early
    ),
    "lost-result-forgotten": Mutant(
        "results stored on a lost worker still count as available", wide.lost_forgotten
    ),
    "lost-result-not-named": Mutant(
        "a consumer that could not read a stored result does not say which", wide.lost_not_named
    ),
    "results-never-released": Mutant("stored results are never released", wide.never_released),
    "results-released-too-early": Mutant(
        "a stored result is released when the first of its readers has finished", wide.released_too_early
    ),
    "release-never-repeated": Mutant("a lost release is never sent again", wide.never_repeated),
    "end-never-reported": Mutant(
        "a worker that has missed the last release keeps what it stores", wide.never_told_over
    ),
    "lost-while-waiting": Mutant(
        "stored output lost while an adaptive job waits for slots is a failure, and the job keeps waiting",
        wide.lost_while_waiting,
    ),
    "old-key-groups": Mutant("a rescaled job keeps the old key-group ranges", wide.old_key_groups),
    "above-the-maximum": Mutant("an adaptive job is wider than was requested", wide.above_the_maximum),
    "never-wider": Mutant("an adaptive job does not use workers that come back", wide.never_wider),
    "attempts-counted-again": Mutant("a rescaled job begins at attempt 0 again", wide.attempts_again),
    "rescaled-too-early": Mutant(
        "a rescale is answered before the job runs at that parallelism", wide.answered_too_early
    ),
    "shared-file-released": Mutant(
        "a file is removed with an old checkpoint, though a newer one refers to it (FLINK-25395)",
        shared.released_too_early,
    ),
    "shared-name-kept": Mutant(
        "a manifest refers to a removed copy instead of the existing one", shared.placeholder_kept
    ),
    "unknown-keeps-all": Mutant(
        "no shared file is removed while a checkpoint of unknown outcome exists",
        shared.unknown_keeps_all,
    ),
    "sweep-takes-pending": Mutant("a sweep removes files of pending checkpoints", shared.sweep_takes_pending),
    "unclaimed-removed": Mutant(
        "a snapshot that a job has started from without claiming it is removed (FLINK-26985)",
        shared.unclaimed_removed,
    ),
    "aborted-upload-referred": Mutant(
        "a task refers to a file of a checkpoint that is not complete", shared.aborted_referred
    ),
    "granted-while-drained": Mutant("a worker that is drained gets leases", drain.still_granted),
    "drained-too-early": Mutant("a drained worker ends before its tasks have moved", drain.ended_too_early),
    "drained-never-moved": Mutant("no task moves from a worker that is drained", drain.never_moved),
    "drained-lease-kept": Mutant("a job keeps what it has of a drained worker", drain.lease_kept),
    "moved-without-state": Mutant("tasks that move start from nothing", drain.moved_without_state),
    "drained-lease-forgotten": Mutant("a job forgets what runs on a drained worker", drain.forgets_leases),
}
