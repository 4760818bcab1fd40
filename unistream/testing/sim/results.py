"""Checks of stored results, parallelism and barriers: I11, I19 to I21, for one job under one leader.

A result is the output of one attempt on a blocking edge. It is available from the time its attempt has
FINISHED until it is released or its worker is lost. No task reads a result again after a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from unistream.base.ids import AttemptId, CheckpointId, EdgeId, JobId, SubtaskId, TaskManagerId, VertexId
from unistream.core import contract
from unistream.model.deployment import TaskDeployment
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.manifest_files import files_of_task, referenced_files
from unistream.model.messages import (
    CheckpointAborted,
    CheckpointAcked,
    DeployTask,
    ReleasePartitions,
    StoredInputsRead,
    TriggerCheckpoint,
)
from unistream.model.snapshot import Manifest, OperatorRestore, OperatorStateHandle
from unistream.testing.sim.store import SimStore

Result = tuple[AttemptId, EdgeId]

_READING = (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING)


class JobJudge:
    """Checks one job under one leader; raises `Violation`."""

    def __init__(self, store: SimStore, job: JobId) -> None:
        self._world = store.world
        self._store = store
        self._job = job

    def on_event(self, event: contract.Event) -> None:
        """The input of the job's machine, before it decides."""

    def on_commands(self, commands: Sequence[contract.Command]) -> None:
        """The decisions of the job's machine, before they are performed."""
        for command in commands:
            self.on_command(command)

    def on_command(self, command: contract.Command) -> None:
        """One of them."""


class BlockingResults(JobJudge):
    """I19: no task starts before all results that it reads are available. I20: a result is kept while a task
    reads it, and none is kept when the job has ended."""

    def __init__(self, store: SimStore, job: JobId, graph: JobGraph) -> None:
        super().__init__(store, job)
        self._operators = {v.id: {operator.uid for operator in v.operators} for v in graph.vertices}
        self._blocking = frozenset(edge.id for edge in graph.edges if edge.partition.is_released_by_scheduler)
        self._outputs: dict[VertexId, list[EdgeId]] = {}
        for edge in graph.edges:
            if edge.partition.is_released_by_scheduler:
                self._outputs.setdefault(edge.source, []).append(edge.id)
        self._states: dict[AttemptId, ExecutionState] = {}
        self._newest: dict[SubtaskId, int] = {}
        self._there: dict[Result, TaskManagerId] = {}
        self._gone: set[TaskManagerId] = set()
        self._reads: dict[AttemptId, frozenset[Result]] = {}  # of those that have not read all of it

    def on_event(self, event: contract.Event) -> None:
        if not self._blocking:
            return
        if isinstance(event, contract.TaskManagerLost):
            self._gone.add(event.task_manager)
            self._there = {r: worker for r, worker in self._there.items() if worker != event.task_manager}
        elif isinstance(event, StoredInputsRead):
            self._reads.pop(event.attempt, None)

    def on_commands(self, commands: Sequence[contract.Command]) -> None:
        """Releases are judged last: readers may be canceled by the same commands."""
        if not self._blocking:
            return
        released: set[Result] = set()
        for command in commands:
            match command:
                case contract.RecordAttempt():
                    self._attempt_is(command)
                case contract.Send(message=DeployTask(deployment=deployment)):
                    self._may_read(deployment)
                case contract.Send(message=ReleasePartitions(partitions=partitions)):
                    released.update(partitions)
                    for result in partitions:
                        self._there.pop(result, None)
                case contract.JobEnded():
                    self._nothing_is_left()
                case _:
                    pass
        if released:
            self._nobody_reads(released)

    def _attempt_is(self, record: contract.RecordAttempt) -> None:
        attempt, state = record.attempt, ExecutionState(record.state)
        self._states[attempt] = state
        self._newest[attempt.subtask] = max(attempt.attempt, self._newest.get(attempt.subtask, 0))
        if state is not ExecutionState.FINISHED or record.task_manager in self._gone:
            return
        if record.task_manager is None:  # under an earlier leader: nobody needs its results any more
            self._world.sometimes("a leader went on behind what an earlier one had sealed")
        else:
            for edge in self._outputs.get(attempt.vertex, ()):
                self._there[attempt, edge] = record.task_manager

    def _may_read(self, deployment: TaskDeployment) -> None:
        reads = []
        for gate in deployment.gates:
            for channel in gate.channels:
                if channel.edge not in self._blocking:
                    continue
                producer = channel.producer
                if channel.ended:
                    self._lies_behind(deployment, producer)
                    continue
                reads.append((producer, channel.edge))
                if self._there.get((producer, channel.edge)) == channel.task_manager:
                    continue
                state = self._states.get(producer, ExecutionState.CREATED).value
                why = "its worker is lost" if channel.task_manager in self._gone else f"{producer} is {state}"
                raise self._world.violated(
                    f"I19: {deployment.attempt} is deployed, but what it reads of edge {channel.edge} is not "
                    f"there: {why}"
                )
        self._reads[deployment.attempt] = frozenset(reads)
        if reads:
            self._world.sometimes("a consumer of a stored result was deployed")

    def _lies_behind(self, deployment: TaskDeployment, producer: AttemptId) -> None:
        """The task does not read the result of `producer`: its restored state contains it."""
        restore = deployment.restore
        outdated = deployment.epoch < self._store.epoch
        if outdated and restore is not None and restore.root in self._store.removed:
            return  # by the newer leader: this one's task finds nothing to start from
        manifest = None if restore is None else self._store.manifests.get(restore.root)
        finished = manifest is not None and any(
            vertex.fully_finished and set(vertex.operators) == self._operators[producer.vertex]
            for vertex in manifest.vertices
        )
        self._world.sometimes("a consumer was restored after it had read a stored result")
        if not finished:
            raise self._world.violated(
                f"I19: {deployment.attempt} reads nothing of {producer}, which had not finished in "
                f"{'no snapshot at all' if restore is None else restore.root}"
            )

    def _nobody_reads(self, released: set[Result]) -> None:
        """No running task that is not being canceled reads them."""
        self._world.sometimes("a stored result was released")
        for attempt, reads in self._reads.items():
            state = self._states[attempt]
            if state in _READING and not released.isdisjoint(reads):
                result = sorted(released & reads)[0]
                raise self._world.violated(
                    f"I20: what {result[0]} has produced on edge {result[1]} is released while {attempt} is "
                    f"{state.value} and reads it"
                )

    def _nothing_is_left(self) -> None:
        if self._there:
            (attempt, edge), worker = next(iter(self._there.items()))
            raise self._world.violated(
                f"I20: {self._job} has ended, and what {attempt} has produced on edge {edge} is still kept "
                f"on {worker}"
            )


class RequestedWidths:
    """The parallelism that users have requested for every vertex of every job."""

    def __init__(self) -> None:
        self._widths: dict[tuple[JobId, VertexId], set[int]] = {}
        self._adaptive: set[JobId] = set()

    def submitted(self, job: JobId, graph: JobGraph, *, adaptive: bool) -> None:
        """Notes a job that runs at the parallelism of `graph`; `adaptive`: or narrower."""
        for vertex in graph.vertices:
            self.rescale(job, vertex.id, vertex.parallelism)
        if adaptive:
            self._adaptive.add(job)

    def rescale(self, job: JobId, vertex: VertexId, parallelism: int) -> None:
        """Notes a change of one vertex's parallelism by hand."""
        self._widths.setdefault((job, vertex), set()).add(parallelism)

    def answered(self, job: JobId, vertex: VertexId, parallelism: int, others: Iterable[int]) -> None:
        """A rescale was reported as done: the job runs so, and under later leaders, too. `others`: that are
        requested meanwhile."""
        self._widths[job, vertex] = {parallelism, *others}

    def allows(self, job: JobId, vertex: VertexId, parallelism: int) -> bool:
        """An adaptive job may be narrower."""
        requested = self._widths[job, vertex]
        return parallelism in requested or (job in self._adaptive and 1 <= parallelism <= max(requested))


class RestoredWidths(JobJudge):
    """I11: a task restores exactly its own key groups, at a requested parallelism."""

    def __init__(self, store: SimStore, job: JobId, requested: RequestedWidths) -> None:
        super().__init__(store, job)
        self._requested = requested
        self._width: dict[VertexId, int] = {}

    def on_command(self, command: contract.Command) -> None:
        if isinstance(command, contract.Send) and isinstance(command.message, DeployTask):
            self._look_at(command.message.deployment)

    def _look_at(self, deployment: TaskDeployment) -> None:
        vertex = deployment.vertex
        before = self._width.get(vertex.id, vertex.parallelism)
        self._width[vertex.id] = vertex.parallelism
        if before != vertex.parallelism:
            kind = "wider" if before < vertex.parallelism else "narrower"
            self._world.sometimes(f"a job was redeployed {kind} than before")
        if not self._requested.allows(self._job, vertex.id, vertex.parallelism):
            raise self._world.violated(
                f"I11: {deployment.attempt} is one of {vertex.parallelism}, which was not requested"
            )
        restore = deployment.restore
        manifest = None if restore is None else self._store.manifests.get(restore.root)
        if restore is None or manifest is None or restore.finished:
            return
        index, width, most = deployment.attempt.index, vertex.parallelism, vertex.max_parallelism
        for uid, operator in restore.operators.items():
            wanted = _groups(manifest, uid, width, index)
            restored = _restored(operator, lambda group: owner(group, most, width) == index)
            if wanted != restored:
                raise self._world.violated(
                    f"I11: {deployment.attempt}, one of {vertex.parallelism}, restores key groups "
                    f"{sorted(restored)} of {uid}, and its own are {sorted(wanted)}"
                )


def owner(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Index of the subtask to which a key group belongs."""
    return key_group * parallelism // max_parallelism


def _groups(manifest: Manifest, uid: str, parallelism: int, index: int) -> set[tuple[str, int, int]]:
    """(file, place in it, key group) of all batches that are the subtask's own, and (file, -1, key group) of
    its own groups of a former subtask whose files are read whole."""
    found = set()
    for vertex in manifest.vertices:
        for task in vertex.subtasks:
            handle: OperatorStateHandle | None = None if task is None else task.operators.get(uid)  # type: ignore[call-overload]
            for table in () if handle is None else handle.keyed:
                for place, group in enumerate(table.key_groups):
                    if owner(group, vertex.max_parallelism, parallelism) == index:
                        found.add((table.file.path, place, group))
            for native in () if handle is None else handle.native:
                own = range(native.key_groups[0], native.key_groups[1] + 1)
                groups = [g for g in own if owner(g, vertex.max_parallelism, parallelism) == index]
                found.update((file.ref.path, -1, group) for file in native.files for group in groups)
    return found


def _restored(operator: OperatorRestore, is_own: Callable[[int], bool]) -> set[tuple[str, int, int]]:
    """What `_groups` lists, of what an operator reads; files with nothing of its own groups have the group
    -1."""
    found = {
        (share.handle.file.path, place, share.handle.key_groups[place])
        for share in operator.keyed
        for place in range(share.start, share.stop)
    }
    for native in operator.native:
        stored = range(native.key_groups[0], native.key_groups[1] + 1)
        groups = [group for group in stored if is_own(group)] or [-1]
        found.update((file.ref.path, -1, group) for file in native.files for group in groups)
    return found


class Barriers(JobJudge):
    """I21: no task begins a snapshot after the barrier of a stop."""

    def __init__(self, store: SimStore, job: JobId) -> None:
        super().__init__(store, job)
        self._behind: dict[AttemptId, CheckpointId] = {}

    def on_command(self, command: contract.Command) -> None:
        """A snapshot that begins or is aborted."""
        match command:
            case contract.Send(message=TriggerCheckpoint(attempt=attempt, checkpoint_id=id_, kind=kind)):
                stop = self._behind.get(attempt, id_)
                if stop != id_:
                    raise self._world.violated(
                        f"I21: {attempt} begins snapshot {id_} after the barrier of stop {stop}"
                    )
                if kind.is_synchronous:
                    self._behind[attempt] = id_
            case contract.Send(message=CheckpointAborted(attempt=attempt, checkpoint_id=id_)):
                if self._behind.get(attempt) == id_:
                    del self._behind[attempt]


class SharedNames(JobJudge):
    """Marks the runs in which a manifest refers to another copy of a shared file than the task did. That the
    copy exists is checked when the manifest is written."""

    def __init__(self, store: SimStore, job: JobId) -> None:
        super().__init__(store, job)
        self._acked: dict[CheckpointId, set[str]] = {}

    def on_event(self, event: contract.Event) -> None:
        if isinstance(event, CheckpointAcked):
            names = (ref.path for ref in files_of_task(event.snapshot) if ref.shared)
            self._acked.setdefault(event.checkpoint_id, set()).update(names)

    def on_command(self, command: contract.Command) -> None:
        if isinstance(command, contract.WriteManifest):
            manifest = command.manifest
            named = {ref.path for ref in referenced_files(manifest) if ref.shared}
            if not named <= self._acked.get(manifest.checkpoint_id, set()):
                self._world.sometimes("a manifest refers to another copy of a shared file than its task")
