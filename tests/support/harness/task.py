"""Real stream tasks of one job, stepped in turn by one thread, with storage in memory and a scripted
coordinator: deterministic tests of the interaction of tasks.

    job = TaskJob(graph, chains)
    job.run()                                  # until no task has anything to do
    job.trigger(SnapshotKind.CHECKPOINT)       # barriers flow, acks are collected
    job.run()                                  # ... all acked: tasks are notified of the completion
    again = TaskJob(other, chains, restore=job.completed, store=job.store)

Channels and restored state are assigned as by a master, also at another parallelism: `model.plan`,
`core.restore`.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.support.harness.services import InlineExecutor, MemoryStateStore, NoRemote
from unistream.base.config import Configuration
from unistream.base.ids import (
    AttemptId,
    CheckpointId,
    JobId,
    LeaderEpoch,
    LineageId,
    SubtaskId,
    TaskManagerId,
    VertexId,
)
from unistream.core.graph import ExecutionPlan
from unistream.core.memory import memory_plan
from unistream.core.restore import assign_state, with_in_flight
from unistream.core.task import CombinedWatermark
from unistream.model.chain import Chain
from unistream.model.deployment import TaskDeployment
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.messages import (
    AssignSplits,
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    Split,
    TaskFailure,
    TaskStateChanged,
    ToJobManager,
    TriggerCheckpoint,
)
from unistream.model.plan import TaskManagerLocation
from unistream.model.snapshot import Manifest, TaskRestore, TaskSnapshot, VertexSnapshot
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.testing.harness.operators import ManualClock
from unistream.worker.exchange import BlockingPartitions, NetworkMemory, PartitionRegistry, Shares
from unistream.worker.task import (
    Done,
    Mail,
    Mailbox,
    StreamTask,
    TaskEnvironment,
    TaskNetwork,
    TaskState,
    Waiting,
    build_task,
)

_JOB = JobId("0" * 32)
_LINEAGE = LineageId("lineage")
_EPOCH = LeaderEpoch(1)
_HERE = TaskManagerLocation(TaskManagerId("here"), "")


@dataclass
class Snapshot:
    """One checkpoint or savepoint of the harness.

    Attributes:
        acks: The acknowledgement of each subtask.
        finished_before: Subtasks that had ended when it was triggered, now or before the job was restored.
        graph: The graph of the job that triggered it; None: that of the job that starts from it.
    """

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    expected: set[SubtaskId]
    acks: dict[SubtaskId, CheckpointAcked] = field(default_factory=dict)
    finished_before: frozenset[SubtaskId] = frozenset()
    completed: bool = False
    graph: JobGraph | None = None

    @property
    def directory(self) -> str:
        return f"chk-{self.checkpoint_id}"

    @property
    def acked(self) -> dict[SubtaskId, TaskSnapshot]:
        return {subtask: ack.snapshot for subtask, ack in self.acks.items()}

    @property
    def finished(self) -> frozenset[SubtaskId]:
        """Subtasks whose operators had finished when their part of the snapshot was taken."""
        return self.finished_before | {s for s, state in self.acked.items() if state.finished}

    def restores(self, graph: JobGraph) -> dict[SubtaskId, TaskRestore]:
        """The state that a master would assign to each subtask of `graph`.

        Raises:
            ConfigError: the state does not fit the graph.
        """
        manifest, directory = self._manifest(self.graph or graph), self.directory
        restores = assign_state(manifest, directory, graph, allow_non_restored=False)
        return with_in_flight(restores, manifest, directory, graph, allow_non_restored=False)

    def _manifest(self, graph: JobGraph) -> Manifest:
        return Manifest(
            job=_JOB,
            job_name=graph.name,
            lineage=_LINEAGE,
            checkpoint_id=self.checkpoint_id,
            kind=self.kind,
            timestamp_ms=0,
            vertices=tuple(self._vertex(vertex) for vertex in graph.vertices),
        )

    def _vertex(self, vertex: JobVertex) -> VertexSnapshot:
        tasks = [SubtaskId(vertex.id, index) for index in range(vertex.parallelism)]
        acked, finished = self.acked, self.finished_before
        return VertexSnapshot(
            vertex=vertex.id,
            name=vertex.name,
            operators=tuple(operator.uid for operator in vertex.operators),
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            subtasks=tuple(None if task in finished else acked.get(task) for task in tasks),
            finished_subtasks=tuple(task.index for task in tasks if task in finished),
        )


class TaskJob:
    """All tasks of `graph` in one thread.

    Args:
        restore: A completed snapshot of an earlier job, maybe of another parallelism.
        restores: State of each subtask, instead of its part of `restore`.
        first_checkpoint: Id of the first snapshot.
        order: Vertices in the order in which their tasks are stepped; None: the order of the graph.
        blocking: Stores blocking partitions; None: the graph has none.
    """

    def __init__(
        self,
        graph: JobGraph,
        chains: Mapping[VertexId, Chain],
        *,
        checkpointing: bool = True,
        restore: Snapshot | None = None,
        restores: Mapping[SubtaskId, TaskRestore] | None = None,
        store: MemoryStateStore | None = None,
        first_checkpoint: int = 1,
        order: Sequence[VertexId] | None = None,
        executor: Executor | None = None,
        blocking: BlockingPartitions | None = None,
        combine: Callable[[int], CombinedWatermark] = CombinedWatermark,
    ) -> None:
        self.graph = graph
        self.clock = ManualClock()
        self.store = store or MemoryStateStore()
        self.reports: list[ToJobManager] = []
        self.snapshots: dict[CheckpointId, Snapshot] = {}
        self.failures: dict[SubtaskId, TaskFailure] = {}
        self.completed: Snapshot | None = restore
        self.next_checkpoint = first_checkpoint
        self._checkpointing = checkpointing
        self._plan = ExecutionPlan(graph)
        if restores is None:
            restores = {} if restore is None else restore.restores(graph)
        environment = self._environment(executor or InlineExecutor())
        network = TaskNetwork(
            task_manager=_HERE.task_manager,
            registry=PartitionRegistry(blocking),
            blocking=blocking,
            data_client=NoRemote(),
            memory=NetworkMemory(memory_plan(Configuration(), 1).network, Shares.of(Configuration())),
            combine=combine,
        )
        self.tasks: dict[SubtaskId, StreamTask] = {}
        for vertex_id in order or [vertex.id for vertex in graph.vertices]:
            for subtask in self.subtasks(vertex_id):
                self.tasks[subtask] = build_task(
                    self._deployment(subtask, restores.get(subtask)),
                    chains[vertex_id],
                    environment=environment,
                    network=network,
                    mailbox=Mailbox(),
                )

    # --- driving ----------------------------------------------------------------------------------

    def run(self, only: Iterable[SubtaskId] | None = None, *, steps_max: int = 100_000) -> None:
        """Steps the tasks in turn until none has anything to do at the present time of the clock."""
        chosen = list(self.tasks) if only is None else list(only)
        for _ in range(steps_max):
            results = [self._drain(self.tasks[subtask]) for subtask in chosen]
            if not any(results):
                return
        raise AssertionError(f"tasks still have work after {steps_max} rounds")

    def _drain(self, task: StreamTask) -> bool:
        """Steps one task until it waits. True: it did something."""
        did = False
        while not isinstance(task.step(), Done | Waiting):
            did = True
        return did

    def step_each(self, rounds: int = 1) -> None:
        """One step of every task, one after the other."""
        for _ in range(rounds):
            for task in self.tasks.values():
                task.step()

    def step_until(self, reached: Callable[[], bool], *, rounds_max: int = 10_000) -> None:
        """One step of every task, again and again."""
        for _ in range(rounds_max):
            if reached():
                return
            self.step_each()
        raise AssertionError(f"not reached in {rounds_max} rounds: {self.states()}, {self.failures}")

    def finish(self, *, rounds_max: int = 20) -> None:
        """Checkpoints until all tasks have finished."""
        for _ in range(rounds_max):
            if set(self.states().values()) == {TaskState.FINISHED}:
                return
            self.run()
            self.trigger(SnapshotKind.CHECKPOINT)
            self.run()
        raise AssertionError(f"it does not end: {self.states()}, {self.failures}")

    def task(self, vertex: str, index: int = 0) -> StreamTask:
        return self.tasks[SubtaskId(VertexId(vertex), index)]

    def subtasks(self, vertex: str, *indexes: int) -> list[SubtaskId]:
        """The subtasks of a vertex, for `run`. No `indexes`: all of them."""
        chosen = indexes or range(self.graph.vertex(VertexId(vertex)).parallelism)
        return [SubtaskId(VertexId(vertex), index) for index in chosen]

    def assign(self, vertex: str, splits: Sequence[Split], *, index: int = 0, no_more: bool = False) -> None:
        """Gives splits to a source task."""
        self._post(
            self.subtasks(vertex, index),
            lambda attempt: AssignSplits(attempt=attempt, splits=tuple(splits), no_more=no_more),
        )

    def trigger(
        self,
        kind: SnapshotKind,
        form: SavepointFormat = SavepointFormat.CANONICAL,
        *,
        aligned: bool = False,
    ) -> Snapshot:
        """Triggers running sources and tasks whose producers have all finished. `form`: the format, if it is
        a savepoint. `aligned`: its barriers overtake nothing."""
        running = {s for s, task in self.tasks.items() if not task.state.is_terminal}
        snapshot = Snapshot(
            CheckpointId(self.next_checkpoint),
            kind,
            set(running),
            finished_before=frozenset(s for s in self.tasks if s not in running or self._had_finished(s)),
            graph=self.graph,
        )
        self.next_checkpoint += 1
        self.snapshots[snapshot.checkpoint_id] = snapshot
        heads = [subtask for subtask in running if not self._producers(subtask) & running]
        self.send_trigger(snapshot, heads, form, aligned=aligned)
        return snapshot

    def _had_finished(self, subtask: SubtaskId) -> bool:
        restore = self.tasks[subtask].deployment.restore
        return restore is not None and restore.finished

    def send_trigger(
        self,
        snapshot: Snapshot,
        only: Iterable[SubtaskId],
        form: SavepointFormat = SavepointFormat.CANONICAL,
        *,
        aligned: bool = False,
    ) -> None:
        """Triggers these tasks in any state: a master may trigger one twice, or too late."""
        self._post(
            only,
            lambda attempt: TriggerCheckpoint(
                attempt=attempt,
                checkpoint_id=snapshot.checkpoint_id,
                timestamp_ms=self.clock.wall_ms(),
                kind=snapshot.kind,
                directory=snapshot.directory,
                format=form,
                aligned=aligned,
            ),
        )

    def abort(self, checkpoint_id: CheckpointId, only: Iterable[SubtaskId] | None = None) -> None:
        """Notifies all tasks, or `only` these, that the checkpoint is aborted."""
        latest = self.completed.checkpoint_id if self.completed else None
        self._post(
            self.tasks if only is None else only,
            lambda attempt: CheckpointAborted(
                attempt=attempt, checkpoint_id=checkpoint_id, latest_completed=latest
            ),
        )

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """Notifies all tasks that the checkpoint is durable."""
        self._post(
            self.tasks,
            lambda attempt: CheckpointCompleted(attempt=attempt, checkpoint_id=checkpoint_id, epoch=_EPOCH),
        )

    def _post(self, subtasks: Iterable[SubtaskId], message: Callable[[AttemptId], Mail]) -> None:
        for subtask in subtasks:
            task = self.tasks[subtask]
            task.mailbox.post(message(task.deployment.attempt))

    def cancel(self) -> None:
        for task in self.tasks.values():
            task.mailbox.cancel()

    def states(self) -> dict[str, TaskState]:
        return {str(subtask): task.state for subtask, task in self.tasks.items()}

    # --- the master's side ------------------------------------------------------------------------

    def _on_report(self, message: ToJobManager) -> None:
        self.reports.append(message)
        match message:
            case CheckpointAcked(attempt=attempt, checkpoint_id=checkpoint_id):
                snapshot = self.snapshots[checkpoint_id]
                snapshot.acks[attempt.subtask] = message
                if snapshot.expected <= snapshot.acks.keys():
                    self._on_complete(snapshot)
            case CheckpointDeclined(checkpoint_id=checkpoint_id):
                self.abort(checkpoint_id)
            case TaskStateChanged(attempt=attempt, failure=TaskFailure() as failure):
                self.failures[attempt.subtask] = failure
            case _:
                pass

    def _on_complete(self, snapshot: Snapshot) -> None:
        snapshot.completed = True
        if snapshot.kind is SnapshotKind.SAVEPOINT:
            return  # the next checkpoint of the job commits
        self.completed = snapshot
        self.complete(snapshot.checkpoint_id)

    # --- deployment -------------------------------------------------------------------------------

    def _environment(self, executor: Executor) -> TaskEnvironment:
        return TaskEnvironment(
            clock=self.clock,
            report=self._on_report,
            executor=executor,
            state_writer=self.store.writer,
            state_reader=self.store.reader,
            crash_point=lambda _name: None,
            state_folder=lambda: self._state_folder,
        )

    @cached_property
    def _state_folder(self) -> Path:
        """The folder for keyed state on disk. Jobs do not share one, as their attempts have the same
        names."""
        folder = Path(tempfile.mkdtemp(prefix="unistream-task-job-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _deployment(self, subtask: SubtaskId, restore: TaskRestore | None) -> TaskDeployment:
        attempts = {one: AttemptId(_JOB, one.vertex, one.index, 0) for one in self._plan.subtasks}
        return TaskDeployment(
            attempt=attempts[subtask],
            job_name=self.graph.name,
            lineage=_LINEAGE,
            epoch=_EPOCH,
            vertex=self.graph.vertex(subtask.vertex),
            artifact="",
            gates=self._plan.gates(subtask, attempts, dict.fromkeys(attempts, _HERE)),
            partitions=self._plan.partitions(subtask),
            restore=restore,
            checkpoint_root="memory",
            checkpointing=self._checkpointing,
            config=self.graph.config,
        )

    def _producers(self, subtask: SubtaskId) -> set[SubtaskId]:
        return {
            channel.producer.subtask
            for gate in self.tasks[subtask].deployment.gates
            for channel in gate.channels
        }
