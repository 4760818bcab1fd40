"""Checkpoints that a user asks for: POST /jobs/{id}/checkpoints as Flink's CLI sends it, and both clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.master.served_cluster import WAIT_S, Api
from unistream.base.errors import AlreadyEnded, ConfigError
from unistream.base.ids import JobId
from unistream.client.embedded.embedded_cluster import EmbeddedJobClient
from unistream.client.remote.rest_client import RestClient
from unistream.core.contract import SnapshotRequest
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind

STOP = SnapshotRequest(kind=SnapshotKind.SUSPEND)

UNKNOWN = "0" * 31 + "a"
Make = Callable[..., Any]


@pytest.fixture
def job(api: Api, submission: Make) -> JobId:
    """A running job that takes no checkpoint by itself."""
    job = JobId(api.cluster.dispatcher.submit(submission()))
    all_run = lambda info: all(subtask.state == "RUNNING" for subtask in info.subtasks)  # noqa: E731
    assert api.cluster.dispatcher.wait_for(job, all_run, WAIT_S)
    return job


@pytest.mark.parametrize(
    ("body", "full"),
    [
        ({}, False),
        ({"checkpointType": None, "triggerId": None}, False),
        ({"checkpointType": "CONFIGURED", "triggerId": None}, False),
        ({"checkpointType": "INCREMENTAL"}, False),
        ({"checkpointType": "FULL", "triggerId": None}, True),
    ],
)
def test_a_checkpoint_has_a_trigger_that_is_polled(api: Api, job: JobId, body: Any, full: bool) -> None:
    answer = api.http.post(f"/v1/jobs/{job}/checkpoints", json=body)
    assert answer.status_code == 202, answer.text
    (trigger,) = answer.json().values()
    assert (list(answer.json()), len(trigger)) == (["request-id"], 32)
    assert api.cluster.dispatcher.wait_for(job, lambda info: info.checkpoints_completed == 1, WAIT_S)
    for _ in range(2_000):
        status = api.http.get(f"/v1/jobs/{job}/checkpoints/{trigger}").json()
        if status["status"]["id"] == "COMPLETED":
            break
        assert status == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    assert status == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 1}}
    assert {m.full for m in api.cluster.workers.messages(msg.TriggerCheckpoint)} == {full}
    shown = api.http.get(f"/jobs/{job}/checkpoints").json()
    assert shown["latest"]["completed"]["id"] == 1
    assert shown["latest"]["savepoint"] is None


def test_both_clients_tell_its_directory(api: Api, job: JobId) -> None:
    with RestClient(api.server.url) as client:
        first = client.client(job).checkpoint()
    second = EmbeddedJobClient(api.cluster.dispatcher, job).checkpoint(type="FULL")
    assert [path.rpartition("/")[2] for path in (first, second)] == ["chk-1", "chk-2"]
    assert api.cluster.dispatcher.job(job).latest_checkpoint == second


def test_a_checkpoint_that_fails_says_why(api: Api, job: JobId) -> None:
    api.cluster.workers.decline_checkpoints("no barrier today")
    with RestClient(api.server.url) as client, pytest.raises(ConfigError, match="no barrier today"):
        client.client(job).checkpoint()


def test_a_job_that_has_ended_takes_none(api: Api, job: JobId) -> None:
    api.cluster.dispatcher.snapshot(job, STOP).result(WAIT_S)
    message = "has already ended as FINISHED: no checkpoint can be taken"
    with RestClient(api.server.url) as client:
        for checkpoint in (client.client(job), EmbeddedJobClient(api.cluster.dispatcher, job)):
            with pytest.raises(AlreadyEnded, match=message):
                checkpoint.checkpoint()
    assert api.http.post(f"/jobs/{job}/checkpoints", json={}).status_code == 409


@pytest.mark.parametrize(
    ("method", "path", "body", "reported"),
    [
        pytest.param("POST", f"{UNKNOWN}/checkpoints", {}, (404, "there is no job"), id="unknown job"),
        pytest.param("POST", "x/checkpoints", {}, (400, "is not a job id"), id="malformed job"),
        pytest.param(
            "POST",
            f"{UNKNOWN}/checkpoints",
            {"checkpointType": "SOME"},
            (400, "the type of a checkpoint is configured or full or incremental, not 'SOME'"),
            id="a type that there is not",
        ),
        pytest.param("POST", f"{UNKNOWN}/checkpoints", {"checkpointType": 7}, (400, ""), id="no type at all"),
        pytest.param("POST", f"{UNKNOWN}/checkpoints", [], (400, "does not fit"), id="another shape"),
        pytest.param(
            "GET", f"{UNKNOWN}/checkpoints/{UNKNOWN}", None, (404, "no checkpoint operation"), id="trigger"
        ),
        pytest.param(
            "GET", f"{UNKNOWN}/checkpoints/7", None, (400, "not a trigger id"), id="malformed trigger"
        ),
    ],
)
def test_bad_requests(api: Api, method: str, path: str, body: Any, reported: tuple[int, str]) -> None:
    answer = api.http.request(method, f"/jobs/{path}", json=body)
    assert answer.status_code == reported[0]
    assert reported[1] in answer.json()["errors"][0]
