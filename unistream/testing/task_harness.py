"""Real stream tasks of one job, stepped in turn by one thread, with memory for storage and a coordinator
that does as it is told: deterministic tests of what happens between tasks.

    job = TaskJob(graph, chains)
    job.run()                                  # until nobody has anything to do
    job.trigger(SnapshotKind.CHECKPOINT)       # barriers flow, acks are collected
    job.run()                                  # ... all acked: tasks are told that it completed
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

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
from unistream.core.in_flight import with_in_flight
from unistream.model.chain import Chain
from unistream.model.elements import SavepointFormat, SnapshotKind
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship
from unistream.model.messages import (
    AssignSplits,
    ChannelDescriptor,
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    GateDescriptor,
    PartitionDescriptor,
    Split,
    TaskDeployment,
    TaskFailure,
    TaskStateChanged,
    ToJobManager,
    TriggerCheckpoint,
)
from unistream.model.snapshot import (
    KeyedShare,
    ListShare,
    Manifest,
    OperatorRestore,
    TaskRestore,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.testing.harness import ManualClock
from unistream.testing.task_services import InlineExecutor, MemoryStateStore, NoRemote
from unistream.worker.blocking_store import BlockingPartitions
from unistream.worker.mailbox import Mailbox
from unistream.worker.network_memory import NetworkMemory
from unistream.worker.partition_registry import PartitionRegistry
from unistream.worker.task import StreamTask
from unistream.worker.task_builder import TaskNetwork, build_task
from unistream.worker.task_environment import TaskEnvironment
from unistream.worker.task_state import Done, StepResult, TaskState, Waiting

_JOB = JobId("0" * 32)
_LINEAGE = LineageId("lineage")
_EPOCH = LeaderEpoch(1)
_HERE = TaskManagerId("here")


@dataclass
class Snapshot:
    """One checkpoint or savepoint of the harness."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    expected: set[SubtaskId]
    acked: dict[SubtaskId, TaskSnapshot] = field(default_factory=dict)
    finished_before: frozenset[SubtaskId] = frozenset()
    completed: bool = False
    graph: JobGraph | None = None

    @property
    def directory(self) -> str:
        return f"chk-{self.checkpoint_id}"

    def manifest(self) -> Manifest:
        """What a master would have written of one that a job has triggered."""
        assert self.graph is not None, "no job has triggered it"
        return Manifest(
            job=_JOB,
            job_name=self.graph.name,
            lineage=_LINEAGE,
            checkpoint_id=self.checkpoint_id,
            kind=self.kind,
            timestamp_ms=0,
            vertices=tuple(self._vertex(vertex) for vertex in self.graph.vertices),
        )

    def _vertex(self, vertex: JobVertex) -> VertexSnapshot:
        tasks = [SubtaskId(vertex.id, index) for index in range(vertex.parallelism)]
        return VertexSnapshot(
            vertex=vertex.id,
            name=vertex.name,
            operators=tuple(operator.uid for operator in vertex.operators),
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            subtasks=tuple(self.acked.get(task) for task in tasks),
            finished_subtasks=tuple(
                task.index
                for task in tasks
                if task in self.finished_before or (task in self.acked and self.acked[task].finished)
            ),
        )


class TaskJob:
    """All tasks of `graph` in one thread.

    Args:
        restore: A completed snapshot of an earlier job with the same parallelisms.
        restores: What each subtask reads of it, instead, if the parallelisms are others.
        first_checkpoint: Id of the first snapshot.
        order: Vertices in the order in which their tasks are stepped; None = that of the graph.
        blocking: Where blocking partitions are kept; None: the graph has none.
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
    ) -> None:
        self.graph = graph
        self.clock = ManualClock()
        self.store = store or MemoryStateStore()
        self.reports: list[ToJobManager] = []
        self.snapshots: dict[CheckpointId, Snapshot] = {}
        self.failures: dict[SubtaskId, TaskFailure] = {}
        self.completed: Snapshot | None = restore
        self._next_id = first_checkpoint
        self._checkpointing = checkpointing
        self._restore, self._restores = restore, restores
        self._chains = chains
        self._folder: Path | None = None
        environment = self._environment(executor or InlineExecutor())
        network = TaskNetwork(
            task_manager=_HERE,
            registry=PartitionRegistry(blocking),
            blocking=blocking,
            data_client=NoRemote(),
            memory=NetworkMemory.of(Configuration(), 1),
        )
        self.tasks: dict[SubtaskId, StreamTask] = {}
        for vertex_id in order or [vertex.id for vertex in graph.vertices]:
            for index in range(graph.vertex(vertex_id).parallelism):
                self.tasks[SubtaskId(vertex_id, index)] = build_task(
                    self._deployment(SubtaskId(vertex_id, index)),
                    chains[vertex_id],
                    environment=environment,
                    network=network,
                    mailbox=Mailbox(),
                )

    # --- driving ----------------------------------------------------------------------------------

    def _environment(self, executor: Executor) -> TaskEnvironment:
        return TaskEnvironment(
            clock=self.clock,
            report=self._on_report,
            executor=executor,
            state_writer=self.store.writer,
            state_reader=self.store.reader,
            crash_point=lambda _name: None,
            state_folder=self._state_folder,
        )

    def _state_folder(self) -> Path:
        """For keyed state on disk; the job's own, as attempts of several jobs have the same names here."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="unistream-task-job-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

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
        while True:
            result: StepResult = task.step()
            if isinstance(result, Done | Waiting):
                return did
            did = True

    def task(self, vertex: str, index: int = 0) -> StreamTask:
        return self.tasks[SubtaskId(VertexId(vertex), index)]

    def assign(self, vertex: str, splits: Sequence[Split], *, index: int = 0, no_more: bool = False) -> None:
        """Gives splits to a source task."""
        task = self.task(vertex, index)
        task.mailbox.post(
            AssignSplits(attempt=task.deployment.attempt, splits=tuple(splits), no_more=no_more)
        )

    def trigger(self, kind: SnapshotKind, form: SavepointFormat = SavepointFormat.CANONICAL) -> Snapshot:
        """Triggers sources that run and tasks whose producers have all finished. `form`: of a savepoint."""
        running = {s for s, task in self.tasks.items() if not task.state.is_terminal}
        snapshot = Snapshot(
            CheckpointId(self._next_id),
            kind,
            set(running),
            finished_before=frozenset(set(self.tasks) - running),
            graph=self.graph,
        )
        self._next_id += 1
        self.snapshots[snapshot.checkpoint_id] = snapshot
        for subtask in running:
            if all(producer not in running for producer in self._producers(subtask)):
                self.tasks[subtask].mailbox.post(
                    TriggerCheckpoint(
                        attempt=self.tasks[subtask].deployment.attempt,
                        checkpoint_id=snapshot.checkpoint_id,
                        timestamp_ms=self.clock.wall_ms(),
                        kind=kind,
                        directory=snapshot.directory,
                        format=form,
                    )
                )
        return snapshot

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """Tells all tasks that it will not complete."""
        latest = self.completed.checkpoint_id if self.completed else None
        for task in self.tasks.values():
            task.mailbox.post(
                CheckpointAborted(
                    attempt=task.deployment.attempt, checkpoint_id=checkpoint_id, latest_completed=latest
                )
            )

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """Tells all tasks that it is durable."""
        for task in self.tasks.values():
            task.mailbox.post(
                CheckpointCompleted(
                    attempt=task.deployment.attempt, checkpoint_id=checkpoint_id, epoch=_EPOCH
                )
            )

    def cancel(self) -> None:
        for task in self.tasks.values():
            task.mailbox.cancel()

    def states(self) -> dict[str, TaskState]:
        return {str(subtask): task.state for subtask, task in self.tasks.items()}

    # --- the master's side ------------------------------------------------------------------------

    def _on_report(self, message: ToJobManager) -> None:
        self.reports.append(message)
        match message:
            case CheckpointAcked(attempt=attempt, checkpoint_id=checkpoint_id, snapshot=state):
                snapshot = self.snapshots[checkpoint_id]
                snapshot.acked[attempt.subtask] = state
                if snapshot.expected <= snapshot.acked.keys():
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
            return  # the job goes on and its next checkpoint commits
        self.completed = snapshot
        self.complete(snapshot.checkpoint_id)

    # --- deployment -------------------------------------------------------------------------------

    def _attempt(self, subtask: SubtaskId) -> AttemptId:
        return AttemptId(_JOB, subtask.vertex, subtask.index, 0)

    def _deployment(self, subtask: SubtaskId) -> TaskDeployment:
        vertex = self.graph.vertex(subtask.vertex)
        gates = []
        for input_index in range(vertex.inputs):
            edges = [e for e in self.graph.inputs_of(vertex.id) if e.input_index == input_index]
            channels = [channel for edge in edges for channel in self._channels(edge, subtask.index)]
            gates.append(GateDescriptor(input_index=input_index, channels=tuple(channels)))
        return TaskDeployment(
            attempt=self._attempt(subtask),
            job_name=self.graph.name,
            lineage=_LINEAGE,
            epoch=_EPOCH,
            vertex=vertex,
            artifact="",
            gates=tuple(gates),
            partitions=tuple(self._partition(e, subtask.index) for e in self.graph.outputs_of(vertex.id)),
            restore=self._task_restore(subtask),
            checkpoint_root="memory",
            checkpointing=self._checkpointing,
            config=self.graph.config,
        )

    def _consumers(self, edge: JobEdge, producer: int) -> tuple[int, ...]:
        if edge.ship is Ship.FORWARD:
            return (producer,)
        return tuple(range(self.graph.vertex(edge.target).parallelism))

    def _partition(self, edge: JobEdge, producer: int) -> PartitionDescriptor:
        target = self.graph.vertex(edge.target)
        return PartitionDescriptor(
            edge=edge.id,
            ship=edge.ship,
            consumers=self._consumers(edge, producer),
            consumer_parallelism=target.parallelism,
            consumer_max_parallelism=target.max_parallelism,
            key_columns=edge.key_columns,
            type=edge.partition,
        )

    def _channels(self, edge: JobEdge, consumer: int) -> list[ChannelDescriptor]:
        return [
            ChannelDescriptor(
                producer=self._attempt(SubtaskId(edge.source, producer)),
                edge=edge.id,
                subpartition=self._consumers(edge, producer).index(consumer),
                task_manager=_HERE,
                address="",
            )
            for producer in range(self.graph.vertex(edge.source).parallelism)
            if consumer in self._consumers(edge, producer)
        ]

    def _producers(self, subtask: SubtaskId) -> set[SubtaskId]:
        return {
            channel.producer.subtask
            for gate in self.tasks[subtask].deployment.gates
            for channel in gate.channels
        }

    def _task_restore(self, subtask: SubtaskId) -> TaskRestore | None:
        if self._restores is not None:
            return self._restores.get(subtask)
        snapshot = self._restore
        if snapshot is None:
            return None
        siblings = [
            SubtaskId(subtask.vertex, i) for i in range(self.graph.vertex(subtask.vertex).parallelism)
        ]
        states = [snapshot.acked.get(sibling) for sibling in siblings]
        finished = all(
            sibling in snapshot.finished_before or (state is not None and state.finished)
            for sibling, state in zip(siblings, states, strict=True)
        )
        own = states[subtask.index]
        operators = {}
        for uid, handle in (own.operators if own else {}).items():
            operators[uid] = OperatorRestore(
                keyed=tuple(KeyedShare(handle=k, start=0, stop=len(k.key_groups)) for k in handle.keyed),
                lists=tuple(ListShare(handle=one, start=0, stop=one.count) for one in handle.lists),
            )
        restore = TaskRestore(
            root=snapshot.directory,
            checkpoint_id=snapshot.checkpoint_id,
            operators={} if finished else operators,
            finished=finished,
        )
        if not any(state.in_flight for state in snapshot.acked.values()):
            return restore
        manifest, directory = snapshot.manifest(), snapshot.directory
        restores = {subtask: restore}
        return with_in_flight(restores, manifest, directory, self.graph, allow_non_restored=False)[subtask]
