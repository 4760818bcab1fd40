"""The life of a job on one axis: of what the catalogue has, whatever is missing in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.eventually import WAIT_S, eventually
from tests.unit.master.served_cluster import Api
from unistream.base.ids import AttemptId, JobId, LineageId, VertexId
from unistream.master.job.journal import changed_widths
from unistream.master.shown.timeline import executions_of, states_of
from unistream.model.job_info import JobInfo
from unistream.port.metadata import RESCALE_EVENT, STATE_EVENT, AttemptHistoryRow, EventRecord

JOB = JobId("a" * 32)
INFO = JobInfo(job=JOB, name="n", lineage=LineageId("l"), state="RUNNING", target="mini", submitted_ms=10)


def event(at_ms: int, detail: str, kind: str = STATE_EVENT) -> EventRecord:
    return EventRecord(job=JOB, at_ms=at_ms, kind=kind, detail=detail)


@pytest.mark.parametrize(
    ("changes", "events", "wanted"),
    [
        pytest.param({}, [], [(10, "INITIALIZING")], id="nothing is recorded yet"),
        pytest.param(
            {"state_times": {"RUNNING": 12, "CREATED": 11}},
            [],
            [(10, "INITIALIZING"), (11, "CREATED"), (12, "RUNNING")],
            id="its events were removed: the first times are known",
        ),
        pytest.param(
            {},
            [event(10, "INITIALIZING"), event(11, "RUNNING"), event(12, "RUNNING"), event(13, "RESTARTING")],
            [(10, "INITIALIZING"), (11, "RUNNING"), (13, "RESTARTING")],
            id="a state that was recorded again",
        ),
        pytest.param(
            {}, [event(11, "x", RESCALE_EVENT)], [(10, "INITIALIZING")], id="other events are no states"
        ),
        pytest.param(
            {"state": "SUSPENDED", "ended_ms": 20},
            [event(11, "RUNNING")],
            [(10, "INITIALIZING"), (11, "RUNNING"), (20, "SUSPENDED")],
            id="its cluster has ended without a record",
        ),
    ],
)
def test_states(changes: dict[str, Any], events: list[EventRecord], wanted: list[tuple[int, str]]) -> None:
    found = states_of(replace(INFO, **changes), events)
    assert [(one.at_ms, one.state) for one in found] == wanted


def line(index: int, attempt: int, state: str, started_ms: int, updated_ms: int) -> AttemptHistoryRow:
    of = AttemptId(JOB, VertexId("v"), index, attempt)
    return AttemptHistoryRow(of, state, None, started_ms, updated_ms)


@pytest.mark.parametrize(
    ("lines", "job_ended_ms", "wanted"),
    [
        pytest.param([], None, [], id="none"),
        pytest.param(
            [line(0, 0, "RUNNING", 1, 2), line(1, 0, "FINISHED", 2, 9)],
            None,
            [(0, 2, "RUNNING", 1, None)],
            id="it goes on while one of its subtasks does",
        ),
        pytest.param(
            [line(0, 0, "CANCELED", 1, 5), line(1, 0, "FAILED", 2, 4), line(0, 1, "RUNNING", 6, 7)],
            None,
            [(0, 2, "FAILED", 1, 5), (1, 1, "RUNNING", 6, None)],
            id="an attempt that failed, and the next one",
        ),
        pytest.param(
            [line(0, 0, "RUNNING", 1, 2)], 8, [(0, 1, "RUNNING", 1, 8)], id="what ran ended with the job"
        ),
    ],
)
def test_executions(
    lines: list[AttemptHistoryRow],
    job_ended_ms: int | None,
    wanted: list[tuple[int, int, str, int, int | None]],
) -> None:
    found = executions_of(lines, None, job_ended_ms)
    assert [(o.attempt, o.subtasks, o.state, o.started_ms, o.ended_ms) for o in found] == wanted


def test_which_parallelism_has_changed(job_graph: Callable[..., Any]) -> None:
    two, three = job_graph(parallelism=2), job_graph(parallelism=3)
    assert changed_widths(two, two) == ""
    assert changed_widths(two, three) == "source: 2 to 3, sink: 2 to 3"


def test_over_http_from_its_start_to_its_end(
    api: Api, submission: Callable[..., Any], job_graph: Callable[..., Any], checkpointed: dict[str, str]
) -> None:
    dispatcher = api.cluster.dispatcher
    graph = replace(job_graph(), config=checkpointed)
    job = dispatcher.submit(submission(graph))
    path = f"/unistream/jobs/{job}/timeline"
    eventually(lambda: api.get(path)["checkpoints"], "a checkpoint is recorded")
    dispatcher.rescale(job, {"source": 1, "sink": 1}).result(WAIT_S)
    dispatcher.cancel(job)
    assert dispatcher.wait(job, WAIT_S)
    eventually(lambda: api.get(path)["states"][-1]["state"] == "CANCELED", "its end is recorded")
    shown = api.get(path)
    states = [one["state"] for one in shown["states"]]
    assert states[0] == "INITIALIZING"
    assert "RUNNING" in states
    assert [one["detail"] for one in shown["rescales"]] == ["source: 2 to 1, sink: 2 to 1"]
    assert {one["vertex_name"] for one in shown["executions"]} == {"source", "sink"}
    assert all(one["ended_ms"] is not None for one in shown["executions"])
    assert shown["began_ms"] <= shown["states"][-1]["at_ms"] <= shown["now_ms"]
    assert api.http.get(f"/unistream/jobs/{'f' * 32}/timeline").status_code == 404
