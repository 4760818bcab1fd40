"""Counters of tasks, as their heartbeats and their last reports tell them."""

from __future__ import annotations

from typing import Any

import pytest

from unistream.base.ids import AttemptId, JobId, OperatorUid, VertexId
from unistream.core.contract import AttemptView, JobView
from unistream.master.journal import Journal
from unistream.model.graph import JobGraph, JobVertex, OperatorInfo
from unistream.model.messages import TaskMetrics
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

Told = tuple[int, int, bool]  # attempt, its rows, whether they are its last


@pytest.mark.parametrize(
    ("told", "shown"),
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
def test_the_newest_counters_are_shown(told: list[Told], shown: int) -> None:
    journal = Journal(JOB, GRAPH, NOBODY, ManualClock())
    for number, rows, final in told:
        attempt = AttemptId(JOB, VERTEX.id, 0, number)
        journal.metrics(attempt, TaskMetrics(records_out=rows), final=final)
    newest = AttemptId(JOB, VERTEX.id, 0, max((number for number, _, _ in told), default=0))
    view = JobView(
        graph=GRAPH,
        state="RUNNING",
        restarts=0,
        attempts=(AttemptView(attempt=newest, state="RUNNING", task_manager=None),),
    )
    [subtask] = journal.subtasks(view)
    assert subtask.metrics.records_out == shown
