"""A master and its REST API open no pickle, wherever bytes come in: a canary in each place never runs."""

from __future__ import annotations

import pickle  # noqa: TID251  # as a canary
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.errors import ConfigError, Fenced
from unistream.base.ids import AttemptId, CheckpointId, EdgeId, OperatorUid, TaskManagerId, VertexId
from unistream.core.contract import SnapshotRequest
from unistream.model import messages as msg
from unistream.model.codec import decode_answer, encode
from unistream.model.snapshot import ListHandle, ListMode, OperatorStateHandle, TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.ha import HaStore
from unistream.rest.openapi import OPERATIONS


class PickledCanary:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self._file, "was run"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "was-run"


@pytest.fixture
def canary(file: Path) -> bytes:
    made = pickle.dumps(PickledCanary(file))
    pickle.loads(made)  # else it would prove nothing
    assert file.read_text() == "was run"
    file.unlink()
    return made


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    made = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


ANY_STATE = {"execution.state-recovery.allow-pickled-state": "true"}
CHANGING = [key for key in OPERATIONS if not key.startswith("GET ") and key != "DELETE /cluster"]
FORMS = ("application/json", "application/msgpack", "application/x-python-pickle", "")


@pytest.mark.parametrize("key", CHANGING)
def test_no_body_is_unpickled(api: Api, canary: bytes, file: Path, key: str) -> None:
    method, _, template = key.partition(" ")
    path = template.replace("{id_}", "a" * 32).replace("{name}", "n").replace("{job}", "a" * 32)
    for form in FORMS:
        answer = api.http.request(
            method, path, content=canary, headers={"Content-Type": form} if form else {}
        )
        assert answer.status_code < 500, answer.text
    assert not file.exists()


@pytest.mark.parametrize("field", ["artifact", "pipeline", "both"])
def test_a_submission_is_stored_deployed_and_recovered_without_being_opened(
    api: Api, canary: bytes, file: Path, field: str
) -> None:
    cluster = api.cluster
    fields = {"artifact": canary, "pipeline": canary} if field == "both" else {field: canary}
    submission = msgspec.structs.replace(request(), **fields)
    content = msgspec.msgpack.encode(submission)
    answer = api.http.post(
        "/unistream/jobs", content=content, headers={"Content-Type": "application/msgpack"}
    )
    assert answer.status_code == 202, answer.text
    job = answer.json()["jobid"]
    deployed = cluster.workers.await_message(msg.DeployTask).deployment
    fetched = cluster.workers.call_master(msg.FetchArtifact(job=job, sha256=deployed.artifact))
    assert isinstance(fetched, msg.Artifact)
    assert fetched.content == submission.artifact
    for path in ("", "/explain", "/plan", "/timeline", "/dead-letters?table=/t"):
        api.http.get(f"/unistream/jobs/{job}{path}")
    cluster.workers = ScriptedWorkers(ends=False)
    second = cluster.lead()
    try:
        second.recover()
        eventually(lambda: second.job(job).state == "RUNNING", "the job is RUNNING", WAIT_S)
        kept = second.kept_jobs.keep("k", job)
        assert second.kept_jobs.kept("k") == kept
        second.kept_jobs.check("k", {}, {})
    finally:
        second.close()
    assert not file.exists()


def test_no_message_of_a_worker_is_unpickled(api: Api, canary: bytes, file: Path) -> None:
    cluster = api.cluster
    job = cluster.dispatcher.submit(request())
    attempt = cluster.workers.await_message(msg.DeployTask).deployment.attempt
    handle = cluster.dispatcher.handle
    assert isinstance(decode_answer(handle(canary)), msg.Refused)
    assert isinstance(decode_answer(handle(b"\x81\xa4type" + canary)), msg.Refused)
    assert isinstance(decode_answer(handle(encode(msg.Bundle(messages=(canary, canary))))), msg.Answers)
    stranger = AttemptId(job=job, vertex=VertexId("v" * 32), index=0, attempt=0)
    reported = msg.ReportedPartition(edge=EdgeId("e"), contents=(canary,))
    for one in (attempt, stranger):
        handle(encode(msg.TaskStateChanged(attempt=one, state="RUNNING", committables=(reported,))))
        handle(encode(_acknowledged(one, canary, [OperatorUid("source")])))
    assert not file.exists()


def _acknowledged(attempt: AttemptId, canary: bytes, uids: Sequence[OperatorUid]) -> msg.CheckpointAcked:
    state = OperatorStateHandle(
        lists=(ListHandle(name="own", mode=ListMode.SPLIT, count=1, inline=(canary,)),)
    )
    snapshot = TaskSnapshot(operators=dict.fromkeys(uids, state))
    return msg.CheckpointAcked(attempt=attempt, checkpoint_id=CheckpointId(1), snapshot=snapshot)


def hold_state(workers: ScriptedWorkers, state: bytes) -> None:
    """Each operator has this in a list, `own`."""

    def acknowledge(_worker: TaskManagerId, message: msg.ToTaskManager) -> msg.Answer | None:
        if not isinstance(message, msg.TriggerCheckpoint):
            return None
        for deployed in workers.messages(msg.DeployTask):
            uids = [operator.uid for operator in deployed.deployment.vertex.operators]
            acked = _acknowledged(deployed.deployment.attempt, state, uids)
            workers.call_master(msgspec.structs.replace(acked, checkpoint_id=message.checkpoint_id))
        return msg.Ack()

    workers.intercept = acknowledge


def test_no_state_is_unpickled(api: Api, canary: bytes, file: Path) -> None:
    cluster = api.cluster
    hold_state(cluster.workers, canary)
    job = cluster.dispatcher.submit(request())
    eventually(lambda: cluster.dispatcher.job(job).state == "RUNNING", "the job is RUNNING", WAIT_S)
    savepoint = cluster.dispatcher.snapshot(job, SnapshotRequest(kind=SnapshotKind.SAVEPOINT)).result(WAIT_S)
    shown = api.get(f"/unistream/jobs/{job}/state")
    assert "own" in str(shown["operators"])
    sql = {"job": job, "sql": "SELECT * FROM states"}
    api.http.post("/unistream/savepoints/query", json=sql)
    again = request(savepoint=savepoint, request_id="again", config=ANY_STATE)
    with suppress(ConfigError):  # no matter whether it can start from there
        cluster.dispatcher.submit(again)
    assert not file.exists()


def is_replaced(ha: HaStore, name: str, value: bytes) -> bool:
    """False: the master has written it meanwhile."""
    there = ha.read(name)
    try:
        if there is None:
            ha.create(name, value)
        else:
            ha.replace(name, value, there.version)
    except Fenced:
        return False
    return True


def test_nothing_that_is_stored_is_unpickled(api: Api, canary: bytes, file: Path) -> None:
    cluster = api.cluster
    job = cluster.dispatcher.submit(request())
    for stored in (cluster.root / "artifacts").iterdir():
        stored.write_bytes(canary)
    ha = cluster.dispatcher._ports.jobs._ha
    for name in (f"jobs/{job}/request", f"jobs/{job}/attempts"):
        eventually(lambda name=name: is_replaced(ha, name, canary), f"{name} is another one", WAIT_S)
    cluster.workers = ScriptedWorkers(ends=False)
    second = cluster.lead()
    try:
        second.recover()
        eventually(lambda: second.job(job).state == "SUSPENDED", "the job is SUSPENDED", WAIT_S)
    finally:
        second.close()
    assert not file.exists()
