"""Commits run next to their task: rows and barriers go on, the end waits, failures are the task's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.support.conformance.recorded_job import ScriptedSource
from tests.support.harness.task import Snapshot, TaskJob
from unistream.base.ids import CheckpointId, EdgeId, OperatorUid, SubtaskId, VertexId
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.sink import CommitterOperator, OnCommitOperator, SinkWriterOperator
from unistream.port.operator import CommitPermit, SourceOperatorSpec
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, Committer, SinkContext, SinkWriter
from unistream.worker.task import TaskState


@dataclass
class Output:
    """What writers staged and committers committed."""

    committed: list[tuple[int, ...]] = field(default_factory=list)
    seen_behind: list[tuple[int, ...]] = field(default_factory=list)
    fail: Exception | None = None


class Writer:
    def __init__(self) -> None:
        self.rows = 0

    def open(self, context: SinkContext, restored: Any) -> None: ...

    def write(self, batch: Any) -> None:
        self.rows += batch.num_rows

    def flush(self, end_of_input: bool) -> None: ...

    def prepare_commit(self, checkpoint_id: CheckpointId) -> list[bytes]:
        rows, self.rows = self.rows, 0
        return [str(rows).encode()] if rows else []

    def snapshot_state(self, checkpoint_id: CheckpointId) -> list[bytes]:
        return []

    def close(self) -> None: ...


class Into:
    """A committer that appends to a list."""

    def __init__(self, output: Output, into: list[tuple[int, ...]]) -> None:
        self.output, self.into = output, into

    def open(self, context: SinkContext) -> None: ...

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        if self.output.fail is not None:
            raise self.output.fail
        self.into.append((request.checkpoint_id, *(int(p) for p in request.committables)))
        return CommitResult(CommitOutcome.COMMITTED)

    def close(self) -> None: ...


@dataclass
class Sink:
    output: Output
    name: str = "sink"
    global_committer: bool = False

    def check(self, schema: pa.Schema | None) -> None: ...

    def create_writer(self) -> SinkWriter:
        return Writer()

    def create_committer(self) -> Committer:
        return Into(self.output, self.output.committed)


class Held(Executor):
    """Snapshots are written at once; commits wait until they are let go."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if "BackgroundWork" in fn.__qualname__:
            self.waiting.append(lambda: fn(*args, **kwargs))
        else:
            fn(*args, **kwargs)
        return Future()

    def let_go(self) -> None:
        self.waiting.pop(0)()


def _vertex(name: str, uids: str, *, source: bool) -> JobVertex:
    info = SourceInfo(connector="scripted", options={}, bounded=True, pull=False)
    return JobVertex(
        id=VertexId(name),
        name=name,
        operators=tuple(OperatorInfo(uid=OperatorUid(uid), name=uid) for uid in uids.split()),
        parallelism=1,
        max_parallelism=128,
        source=info if source else None,
        inputs=0 if source else 1,
    )


GRAPH = JobGraph(
    name="sink",
    vertices=(
        _vertex("T1", "s w", source=True),
        _vertex("T2", "c", source=False),
        _vertex("T3", "g", source=False),
    ),
    edges=(
        JobEdge(id=EdgeId("e1"), source=VertexId("T1"), target=VertexId("T2"), ship=Ship.GLOBAL),
        JobEdge(id=EdgeId("e2"), source=VertexId("T2"), target=VertexId("T3"), ship=Ship.GLOBAL),
    ),
)


class Job:
    """source -> writer -> committer -> global committer, in three tasks."""

    def __init__(self, **options: Any) -> None:
        self.output, self.source, self.held = Output(), ScriptedSource(), Held()
        sink = Sink(self.output)
        behind = OnCommitOperator(
            sink, lambda: Into(Output(), self.output.seen_behind), single_producer=False
        )
        spec = SourceOperatorSpec(source=self.source, watermarks=WatermarkStrategy.no_watermarks())

        def node(uid: str, operator: Any, *outputs: Any) -> ChainNode:
            return ChainNode(uid=OperatorUid(uid), name=uid, operator=operator, outputs=outputs)

        chains = {
            VertexId("T1"): Chain(
                nodes=(
                    node("s", spec, LocalOutput(target=1)),
                    node("w", SinkWriterOperator(sink), EdgeOutput(edge=EdgeId("e1"))),
                )
            ),
            VertexId("T2"): Chain(nodes=(node("c", CommitterOperator(sink), EdgeOutput(edge=EdgeId("e2"))),)),
            VertexId("T3"): Chain(nodes=(node("g", behind),)),
        }
        self.job = TaskJob(GRAPH, chains, executor=self.held, **options)

    def row(self) -> None:
        self.source.put_row()
        self.job.run()

    def checkpoint(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> Snapshot:
        snapshot = self.job.trigger(kind)
        self.job.run()
        return snapshot

    def let_go(self) -> None:
        self.held.let_go()
        self.job.run()

    def state(self, task: str) -> TaskState:
        return self.job.tasks[SubtaskId(VertexId(task), 0)].state


def test_rows_and_barriers_go_on_while_a_commit_hangs() -> None:
    job = Job()
    job.row()
    assert job.checkpoint().completed
    for _ in range(2):
        job.row()
        assert job.checkpoint().completed
    assert (job.output.committed, len(job.held.waiting)) == ([], 1)
    job.let_go()
    assert job.output.committed == [(1, 1)]
    job.let_go()  # the global committer
    job.let_go()
    assert job.output.committed == [(1, 1), (2, 1), (3, 1)]


def test_a_task_ends_behind_its_last_commit_and_those_behind_it_get_all() -> None:
    job = Job()
    job.row()
    job.source.end()
    job.job.run()
    assert job.checkpoint().completed
    assert [job.state(task) for task in ("T1", "T2", "T3")] == [
        TaskState.FINISHED,
        TaskState.RUNNING,
        TaskState.RUNNING,
    ]
    job.let_go()
    assert (job.state("T2"), job.state("T3")) == (TaskState.FINISHED, TaskState.RUNNING)
    job.let_go()
    assert job.state("T3") is TaskState.FINISHED
    assert (job.output.committed, job.output.seen_behind) == ([(1, 1)], [(1, 1)])


def test_a_stop_is_over_when_its_commits_are() -> None:
    job = Job()
    job.row()
    assert job.checkpoint(SnapshotKind.SUSPEND).completed
    assert job.state("T2") is TaskState.RUNNING
    job.let_go()
    job.let_go()
    assert set(job.job.states().values()) == {TaskState.FINISHED}
    assert job.output.seen_behind == [(1, 1)]


def test_a_commit_that_fails_fails_its_task_and_names_the_operator() -> None:
    job = Job()
    job.row()
    assert job.checkpoint().completed
    job.output.fail = OSError("no way")
    job.let_go()
    failure = job.job.failures[SubtaskId(VertexId("T2"), 0)]
    assert "operator 'c'" in failure.message
    assert "OSError: no way" in failure.message
    assert job.job.snapshots[CheckpointId(1)].completed


def test_what_was_being_committed_at_a_failure_is_committed_after_the_restore() -> None:
    job = Job()
    job.row()
    snapshot = job.checkpoint()
    again = Job(restore=snapshot, store=job.job.store, first_checkpoint=2)
    again.job.run()
    assert again.output.committed == [(1, 1)]
    again.let_go()
    assert again.output.seen_behind == [(1, 1)]
