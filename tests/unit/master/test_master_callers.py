"""Workers on other hosts may say what they were asked for, and get what they need: nothing else. Each has a
certificate, whose name the server passes on as the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from tests.unit.master.scripted_workers import ScriptedWorkers
from unistream.base.ids import AttemptId, CheckpointId, JobId, TaskManagerId, VertexId
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.model import messages as msg
from unistream.model.bundle import parcels
from unistream.model.codec import decode_answer, encode
from unistream.model.snapshot import TaskSnapshot

Make = Callable[..., Any]

STRANGER = "tm-elsewhere-1"
FAILURE = msg.TaskFailure(kind="UserCodeError", message="said by another worker")


class Running(NamedTuple):
    """A job, one of its attempts, and the worker that has it."""

    dispatcher: Dispatcher
    job: JobId
    attempt: AttemptId
    artifact: str
    worker: TaskManagerId


@pytest.fixture
def running(make_cluster: Make, submission: Make) -> Iterator[Running]:
    cluster = make_cluster(workers=ScriptedWorkers(ends=False))
    job = cluster.dispatcher.submit(submission())
    cluster.workers.await_message(msg.AssignSplits, 2)
    deployed = cluster.workers.await_message(msg.DeployTask, 4).deployment
    worker = next(to for to, message in cluster.workers.received if is_of(message, deployed.attempt))
    yield Running(cluster.dispatcher, job, deployed.attempt, deployed.artifact, worker)
    assert cluster.dispatcher.job(job).state == "RUNNING"


def is_of(message: msg.ToTaskManager, attempt: AttemptId) -> bool:
    return isinstance(message, msg.DeployTask) and message.deployment.attempt == attempt


def said(running: Running, message: Any, caller: str) -> msg.Answer:
    return decode_answer(running.dispatcher.handle(encode(message), caller))


def reports(attempt: AttemptId) -> list[Any]:
    """All kinds."""
    one = CheckpointId(1)
    return [
        msg.TaskStateChanged(attempt=attempt, state="FAILED", failure=FAILURE),
        msg.TaskStateChanged(attempt=attempt, state="FINISHED"),
        msg.CheckpointAcked(attempt=attempt, checkpoint_id=one, snapshot=TaskSnapshot(operators={})),
        msg.CommitReported(attempt=attempt, sink_uid="sink", checkpoint_id=one, rows=1),
        msg.LogReported(attempt=attempt, number=1, lines=()),
        msg.SplitRequested(attempt=attempt),
        msg.EndOfDataReached(attempt=attempt),
    ]


def test_reports_of_an_attempt_are_taken_of_its_worker_alone(running: Running) -> None:
    for report in reports(running.attempt):
        answer = said(running, report, STRANGER)
        assert answer == msg.Refused(reason=f"{running.attempt} was not given to {STRANGER}"), report
    info = running.dispatcher.job(running.job)
    assert (info.state, info.restarts, info.sinks, info.exceptions) == ("RUNNING", 0, {}, ())
    own = msg.LogReported(attempt=running.attempt, number=1, lines=())
    assert said(running, own, running.worker) == msg.Ack()


def test_a_bundle_hides_no_report_of_another_worker(running: Running) -> None:
    [parcel] = parcels(reports(running.attempt))
    answers = said(running, parcel.request, STRANGER)
    refused = msg.Refused(reason=f"{running.attempt} was not given to {STRANGER}")
    assert answers == msg.Answers(answers=(refused,) * len(parcel.messages))


@pytest.mark.parametrize("number", [1, 7])
def test_an_attempt_that_was_not_given_yet_is_nobodys(running: Running, number: int) -> None:
    later = structs.replace(running.attempt, attempt=running.attempt.attempt + number)
    report = msg.TaskStateChanged(attempt=later, state="RUNNING")
    assert isinstance(said(running, report, running.worker), msg.Refused)


def test_a_vertex_that_there_is_not_is_nobodys(running: Running) -> None:
    report = msg.TaskStateChanged(attempt=AttemptId(running.job, VertexId("f" * 32), 0, 0), state="RUNNING")
    assert isinstance(said(running, report, running.worker), msg.Refused)


def test_figures_of_an_attempt_are_taken_of_its_worker_alone(running: Running) -> None:
    """A heartbeat has those of many."""
    metrics = ((running.attempt, msg.TaskMetrics(records_out=1_000_000)),)
    beat = msg.Heartbeat(task_manager=TaskManagerId(STRANGER), metrics=metrics)
    said(running, beat, STRANGER)
    assert running.dispatcher.job(running.job).metrics.get("records_out", 0) == 0


def test_code_is_given_to_workers_of_its_job_alone(running: Running) -> None:
    fetch = msg.FetchArtifact(job=running.job, sha256=running.artifact)
    assert said(running, fetch, STRANGER) == msg.Refused(
        reason=f"{STRANGER} has no task of job {running.job}"
    )
    assert said(running, fetch, running.worker) == msg.Artifact(content=b"opaque")


@pytest.mark.parametrize("worker", ["tm-victim-2", "tm-elsewhere", "jobmanager", f"{STRANGER}-a-b"])
def test_a_worker_registers_and_beats_under_its_own_name_alone(running: Running, worker: str) -> None:
    refused = msg.Refused(reason=f"the certificate of {STRANGER} is not that of {worker}")
    assert said(running, registration(worker, f"grpc+tls://{STRANGER}@10.0.0.7:1"), STRANGER) == refused
    assert said(running, msg.Heartbeat(task_manager=TaskManagerId(worker)), STRANGER) == refused


@pytest.mark.parametrize(
    "address",
    [
        "grpc+tls://tm-victim-2@10.0.0.7:1",
        "grpc+tls://jobmanager@10.0.0.7:1",
        "grpc+tls://10.0.0.7:1",
        "grpc+tcp://10.0.0.7:1",
        "grpc+unix:///run/some.sock",
        "",
    ],
)
def test_a_worker_registers_its_own_address_alone(running: Running, address: str) -> None:
    """At another one the master would speak to who is there, or in plain text."""
    answer = said(running, registration(f"{STRANGER}-1", address), STRANGER)
    assert answer == msg.Refused(reason=f"{STRANGER}-1 registers {address}, which is not {STRANGER}")


def registration(worker: str, address: str) -> msg.RegisterTaskManager:
    return msg.RegisterTaskManager(
        task_manager=TaskManagerId(worker), address=address, slots=1, pid=1, host="elsewhere"
    )


OTHERS = [
    pytest.param(
        {"version": "99.1.0"}, "has unistream 99.1.0, and this cluster has unistream ", id="unistream"
    ),
    pytest.param({"python": "2.7.18"}, "and Python 2.7.18, and this cluster has unistream ", id="Python"),
]


@pytest.mark.parametrize(("installed", "why"), OTHERS)
def test_a_worker_of_another_version_is_not_half_registered(
    make_cluster: Make, installed: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Both sides say so in one sentence, and the cluster knows nothing of it."""
    dispatcher = make_cluster(workers=ScriptedWorkers(ends=False)).dispatcher
    before = [one.id for one in dispatcher.task_managers()]
    message = structs.replace(registration("tm-1", "grpc+tcp://127.0.0.1:9"), **installed)
    answer = decode_answer(dispatcher.handle(encode(message)))
    assert isinstance(answer, msg.Refused)
    assert not answer.fenced
    assert "worker tm-1 on host elsewhere has unistream" in answer.reason
    assert why in answer.reason
    assert [one.id for one in dispatcher.task_managers()] == before
    assert "event=worker_refused task_manager=tm-1" in caplog.text
    beat = decode_answer(dispatcher.handle(encode(msg.Heartbeat(task_manager=TaskManagerId("tm-1")))))
    assert isinstance(beat, msg.Refused)
