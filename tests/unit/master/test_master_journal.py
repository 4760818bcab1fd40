"""Counters of tasks, as their heartbeats and their last reports tell them."""

from __future__ import annotations

from typing import Any

import pytest

from unistream.base.ids import AttemptId, CheckpointId, EdgeId, JobId, LineageId, OperatorUid, VertexId
from unistream.core.contract import AttemptView, JobView
from unistream.master.job.journal import JobJournal
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.job_info import JobInfo
from unistream.model.messages import CommitReported, TaskMetrics
from unistream.model.positions import SourcePositions
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import POSITIONS_RECORDED_MAX, CommitRecord, JobRecord
from unistream.testing.harness.operators import ManualClock

JOB = JobId("j")
VERTEX = JobVertex(
    id=VertexId("v"),
    name="v",
    operators=(OperatorInfo(uid=OperatorUid("u"), name="v"),),
    parallelism=1,
    max_parallelism=128,
)
GRAPH = JobGraph(name="g", vertices=(VERTEX,), edges=(), config={})
NOBODY: Any = None
RECORD = JobRecord(job=JOB, name="g", lineage=LineageId("l"), state="RUNNING", target="mini", submitted_ms=0)


def shown(journal: JobJournal) -> JobInfo:
    """What is seen of the job, which has no tasks."""
    return journal.info(RECORD, JobView(graph=GRAPH, state="RUNNING", restarts=0), None)


Told = tuple[int, int, bool]  # attempt, its rows, whether they are its last


@pytest.mark.parametrize(
    ("reports", "shown"),
    [
        pytest.param([], 0, id="nothing yet"),
        pytest.param([(0, 5, False), (0, 7, False)], 7, id="heartbeats"),
        pytest.param([(0, 5, False), (0, 9, True)], 9, id="the last report"),
        pytest.param([(0, 9, True), (0, 7, False)], 9, id="a late heartbeat behind it"),
        pytest.param([(0, 9, True), (0, 9, True)], 9, id="the last report, twice"),
        pytest.param([(0, 9, True), (1, 2, False)], 2, id="the next attempt"),
        pytest.param([(1, 2, False), (0, 9, True)], 2, id="the last report of an older attempt"),
    ],
)
def test_the_newest_counters_are_shown(reports: list[Told], shown: int) -> None:
    journal = JobJournal(JOB, GRAPH, NOBODY, ManualClock())
    for number, rows, final in reports:
        attempt = AttemptId(JOB, VERTEX.id, 0, number)
        journal.metrics(attempt, TaskMetrics(records_out=rows), final=final)
    newest = AttemptId(JOB, VERTEX.id, 0, max((number for number, _, _ in reports), default=0))
    view = JobView(
        graph=GRAPH,
        state="RUNNING",
        restarts=0,
        attempts=(AttemptView(attempt=newest, state="RUNNING", task_manager=None),),
    )
    [subtask] = journal.info(RECORD, view, None).subtasks
    assert subtask.metrics.records_out == shown


class Commits:
    """A catalogue that keeps the rows and positions of commits."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.positions: dict[int, tuple[SourcePositions, ...]] = {}

    def record_commit(self, record: CommitRecord) -> None:
        self.rows[record.checkpoint_id] = record.rows
        self.positions[record.checkpoint_id] = record.positions

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None:
        """Not looked at here."""


Report = tuple[int, int, int, bool]  # attempt, checkpoint, its rows, whether they were visible before


@pytest.mark.parametrize(
    ("reports", "restored", "rows"),
    [
        pytest.param([(0, 1, 5, False), (0, 2, 7, False)], None, 12, id="each checkpoint once"),
        pytest.param([(0, 1, 5, False), (1, 1, 5, True)], None, 5, id="reported again behind a restart"),
        pytest.param(
            [(0, 1, 5, False), (1, 2, 7, True)], None, 12, id="committed by an attempt that died then"
        ),
        pytest.param([(0, 3, 9, True), (0, 4, 2, False)], 3, 2, id="a former job has committed its own"),
        pytest.param([(1, 3, 9, True), (1, 4, 2, False)], 3, 2, id="… also where the first attempt died"),
        pytest.param([(0, 3, 9, False)], 3, 9, id="what a former job had not committed is this one's"),
    ],
)
def test_rows_of_a_sink_are_what_the_job_has_committed(
    reports: list[Report], restored: int | None, rows: int
) -> None:
    catalogue: Any = Commits()
    began = None if restored is None else CheckpointId(restored)
    journal = JobJournal(JOB, GRAPH, catalogue, ManualClock(), restored=began)
    for number, checkpoint, count, already in reports:
        journal.commit(
            CommitReported(
                attempt=AttemptId(JOB, VERTEX.id, 0, number),
                sink_uid="sink",
                checkpoint_id=CheckpointId(checkpoint),
                rows=count,
                already=already,
            )
        )
    assert shown(journal).sinks["sink"].rows == sum(catalogue.rows.values()) == rows


TOPIC = SourceInfo(connector="kafka", options={}, bounded=False, pull=False, recorded_as="t")


def two_sources() -> JobGraph:
    """Of which only `near` is before the sink."""

    def vertex(name: str, source: SourceInfo | None) -> JobVertex:
        operator = OperatorInfo(uid=OperatorUid(name), name=name)
        return JobVertex(
            id=VertexId(name),
            name=name,
            operators=(operator,),
            parallelism=1,
            max_parallelism=8,
            source=source,
        )

    edge = JobEdge(id=EdgeId("e"), source=VertexId("near"), target=VERTEX.id, ship=Ship.REBALANCE)
    vertices = (vertex("near", TOPIC), vertex("far", TOPIC), VERTEX)
    return JobGraph(name="g", vertices=vertices, edges=(edge,), config={})


def read_up_to(uid: str, *offsets: int) -> SourcePositions:
    found = {str(partition): offset for partition, offset in enumerate(offsets)}
    return SourcePositions(uid=OperatorUid(uid), connector="kafka", name="t", offsets=found)


NEAR, FAR = read_up_to("near", 5, 6), read_up_to("far", 9)
MANY = read_up_to("near", *range(POSITIONS_RECORDED_MAX + 1))


@pytest.mark.parametrize(
    ("checkpoint", "read", "recorded"),
    [
        pytest.param(3, (NEAR, FAR), (NEAR,), id="of the sources whose rows the sink gets"),
        pytest.param(3, (FAR,), (), id="of another source only"),
        pytest.param(2, (NEAR,), (), id="of another checkpoint"),
        pytest.param(3, (MANY,), (), id="too many"),
    ],
)
def test_a_commit_says_up_to_where_sources_were_read(
    checkpoint: int, read: tuple[SourcePositions, ...], recorded: tuple[SourcePositions, ...]
) -> None:
    catalogue: Any = Commits()
    journal = JobJournal(JOB, two_sources(), catalogue, ManualClock())
    for status in (SnapshotStatus.IN_PROGRESS, SnapshotStatus.COMPLETED):
        journal.checkpoint(
            CheckpointFigures(
                checkpoint_id=CheckpointId(checkpoint),
                kind=SnapshotKind.CHECKPOINT,
                status=status,
                timestamp_ms=0,
                duration_ms=0,
                read=read if status is SnapshotStatus.COMPLETED else (),
            )
        )
    attempt = AttemptId(JOB, VERTEX.id, 0, 0)
    for rows in (4, 4):  # and again
        report = CommitReported(attempt=attempt, sink_uid="sink", checkpoint_id=CheckpointId(3), rows=rows)
        journal.commit(report)
    assert catalogue.positions == {3: recorded}
    assert shown(journal).sinks["sink"].positions == recorded
