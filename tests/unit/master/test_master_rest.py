from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.unit.master.served_cluster import WAIT_S, Api
from unistream.base.errors import AlreadyEnded, ConfigError, NotFound, Unreachable
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.core.contract import SnapshotRequest
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.rest.backpressure import backpressure
from unistream.rest.body_limit import BODY_BYTES_MAX
from unistream.rest.listener import Listener
from unistream.rest.triggers import Triggers

STOP = SnapshotRequest(kind=SnapshotKind.SUSPEND)

UNKNOWN = "0" * 31 + "a"
Make = Callable[..., Any]


@pytest.fixture
def job(api: Api, submission: Make, checkpointed: dict[str, str]) -> str:
    """A running job with a checkpoint."""
    job = api.cluster.dispatcher.submit(submission(config=checkpointed))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    return str(job)


class TestFlinkShapes:
    """Fields as a session cluster of Flink 2.3.0 shows them; more than these may be there."""

    def test_the_cluster_and_its_features(self, api: Api, job: str) -> None:
        numbers = {"taskmanagers", "slots-total", "slots-available"}
        numbers |= {f"jobs-{state}" for state in ("running", "finished", "cancelled", "failed")}
        overview = api.get("/overview")
        assert numbers | {"flink-version", "flink-commit"} <= set(overview)
        assert all(isinstance(overview[name], int) for name in numbers)
        config = api.get("/config")
        assert {"refresh-interval", "timezone-name", "timezone-offset"} <= set(config)
        assert {"flink-version", "flink-revision"} <= set(config)
        assert set(config["features"]) == {"web-submit", "web-cancel", "web-rescale", "web-history"}
        assert all(isinstance(feature, bool) for feature in config["features"].values())

    @pytest.mark.parametrize(("scheduler", "reported"), [("default", "Default"), ("adaptive", "Adaptive")])
    def test_what_kind_of_job_it_is(
        self, api: Api, submission: Make, checkpointed: dict[str, str], scheduler: str, reported: str
    ) -> None:
        config = checkpointed | {"jobmanager.scheduler": scheduler}
        job = str(api.cluster.dispatcher.submit(submission(config=config)))
        (item,) = api.get("/jobs/overview")["jobs"]
        details = api.get(f"/jobs/{job}")
        assert (item["jobType"], item["schedulerType"]) == ("STREAMING", reported)
        assert (details["job-type"], details["schedulerType"]) == ("STREAMING", reported)

    def test_backpressure_of_a_vertex(self, api: Api, job: str) -> None:
        vertices = api.get(f"/jobs/{job}")["vertices"]
        for vertex in vertices:
            shown = api.get(f"/jobs/{job}/vertices/{vertex['id']}/backpressure")
            assert (shown["status"], shown["backpressureLevel"], shown["backpressure-level"]) == ("ok",) * 3
            assert shown["end-timestamp"] > 0
            assert [s["subtask"] for s in shown["subtasks"]] == list(range(vertex["parallelism"]))
            for subtask in shown["subtasks"]:
                assert {"ratio", "idleRatio", "busyRatio", "backpressureLevel"} <= set(subtask)

    def test_backpressure_is_that_of_the_worst_subtask(self, api: Api, job: str) -> None:
        info = api.cluster.dispatcher.job(job)
        subtasks = [s for s in info.subtasks if s.vertex == info.subtasks[0].vertex]
        times = msg.TaskMetrics(busy_per_s=200, idle_per_s=150, backpressured_per_s=650)
        changed = (msgspec.structs.replace(subtasks[0], metrics=times), *subtasks[1:])
        shown: Any = backpressure(msgspec.structs.replace(info, subtasks=changed), subtasks[0].vertex, 7)
        assert (shown["backpressureLevel"], shown["end-timestamp"]) == ("high", 7)
        first = shown["subtasks"][0]
        assert (first["ratio"], first["busyRatio"], first["idleRatio"]) == (0.65, 0.2, 0.15)
        assert [s["backpressureLevel"] for s in shown["subtasks"]] == ["high"] + ["ok"] * (len(subtasks) - 1)

    def test_backpressure_of_what_is_not_there(self, api: Api, job: str) -> None:
        assert api.get(f"/jobs/{job}/vertices/{UNKNOWN}/backpressure") == {"status": "deprecated"}
        answer = api.http.get(f"/jobs/{UNKNOWN}/vertices/{UNKNOWN}/backpressure")
        assert answer.status_code == 404
        assert answer.json()["errors"]


class TestReading:
    @pytest.mark.parametrize("prefix", ["", "/v1"])
    def test_the_cluster(self, api: Api, job: str, prefix: str) -> None:
        overview = api.get(f"{prefix}/overview")
        assert (overview["taskmanagers"], overview["slots-total"], overview["slots-available"]) == (2, 2, 0)
        assert (overview["jobs-running"], overview["jobs-failed"]) == (1, 0)
        assert api.get(f"{prefix}/config")["features"]["web-submit"] is False
        workers = api.get(f"{prefix}/taskmanagers")["taskmanagers"]
        assert [w["slotsNumber"] for w in workers] == [1, 1]
        assert api.get(f"{prefix}/taskmanagers/{workers[0]['id']}")["freeSlots"] == 0

    @pytest.mark.parametrize("prefix", ["", "/v1"])
    def test_jobs(self, api: Api, job: str, prefix: str) -> None:
        assert api.get(f"{prefix}/jobs") == {"jobs": [{"id": job, "status": "RUNNING"}]}
        [item] = api.get(f"{prefix}/jobs/overview")["jobs"]
        assert (item["jid"], item["name"], item["state"], item["end-time"]) == (job, "numbers", "RUNNING", -1)
        assert (item["tasks"]["total"], item["tasks"]["running"]) == (4, 4)
        assert item["pending-operators"] == 0
        assert api.get(f"{prefix}/jobs/{job}/status") == {"status": "RUNNING"}

    def test_one_job(self, api: Api, job: str) -> None:
        details = api.get(f"/jobs/{job}")
        assert [v["name"] for v in details["vertices"]] == ["source", "sink"]
        assert {v["status"] for v in details["vertices"]} == {"RUNNING"}
        assert details["status-counts"]["RUNNING"] == 4
        assert details["timestamps"]["RUNNING"] > 0
        assert details["plan"]["nodes"][1]["inputs"][0]["ship_strategy"] == "HASH"
        assert api.get(f"/jobs/{job}/plan")["plan"]["nodes"] == details["plan"]["nodes"]
        assert api.get(f"/jobs/{job.upper()}")["jid"] == job

    def test_checkpoints(self, api: Api, job: str) -> None:
        found = api.get(f"/jobs/{job}/checkpoints")
        assert found["counts"]["completed"] >= 1
        latest = found["latest"]["completed"]
        assert latest["checkpoint_type"] == "CHECKPOINT"
        assert latest["external_path"].endswith(f"chk-{latest['id']}")
        assert len(found["history"]) <= 10

    def test_exceptions(self, api: Api, job: str) -> None:
        assert api.get(f"/jobs/{job}/exceptions") == {"exceptionHistory": {"entries": [], "truncated": False}}
        attempt = api.cluster.workers.messages(msg.DeployTask)[0].deployment.attempt
        failure = msg.TaskFailure(kind="UserCodeError", message="<img onerror=x>")
        api.cluster.workers.call_master(
            msg.TaskStateChanged(attempt=attempt, state="FAILED", failure=failure)
        )
        api.cluster.workers.await_message(msg.DeployTask, 8)
        [entry] = api.get(f"/jobs/{job}/exceptions", params={"maxExceptions": 1})["exceptionHistory"][
            "entries"
        ]
        assert entry["exceptionName"] == "UserCodeError"
        assert "<img onerror=x>" in entry["stacktrace"]
        assert entry["taskName"].endswith(f"({attempt.index + 1}/2) - execution #0")
        assert entry["taskManagerId"] in api.cluster.workers.registered
        assert entry["endpoint"]
        assert entry["failureLabels"] == {}
        assert entry["concurrentExceptions"] == []

    def test_an_ended_job(self, api: Api, job: str) -> None:
        api.http.patch(f"/jobs/{job}", params={"mode": "cancel"})
        assert api.cluster.dispatcher.wait(job, WAIT_S)
        [item] = api.get("/jobs/overview")["jobs"]
        assert item["state"] == "CANCELED"
        assert item["end-time"] >= item["start-time"]
        assert api.get("/overview")["slots-available"] == 2


class TestChanges:
    def test_cancel(self, api: Api, job: str) -> None:
        answer = api.http.patch(f"/v1/jobs/{job}", params={"mode": "cancel"})
        assert (answer.status_code, answer.json()) == (202, {})
        assert api.cluster.dispatcher.wait(job, WAIT_S)
        assert api.get(f"/jobs/{job}/status") == {"status": "CANCELED"}

    def test_cancel_after_the_end_is_a_conflict(self, api: Api, job: str) -> None:
        api.cluster.dispatcher.snapshot(job, STOP).result(WAIT_S)
        answer = api.http.patch(f"/jobs/{job}")
        assert answer.status_code == 409
        assert "FINISHED" in answer.json()["errors"][0]

    @pytest.mark.parametrize("action", ["savepoints", "stop"])
    def test_a_snapshot_has_a_trigger_that_is_polled(self, api: Api, job: str, action: str, tmp_path) -> None:
        key = {"savepoints": "target-directory", "stop": "targetDirectory"}[action]
        body = {key: str(tmp_path / "sp"), "formatType": "CANONICAL", "triggerId": None}
        answer = api.http.post(f"/v1/jobs/{job}/{action}", json=body)
        assert answer.status_code == 202, answer.text
        trigger = answer.json()["request-id"]
        assert len(trigger) == 32
        for _ in range(2_000):
            status = api.get(f"/v1/jobs/{job}/savepoints/{trigger}")
            if status["status"]["id"] == "COMPLETED":
                break
        assert str(tmp_path / "sp") in status["operation"]["location"]
        assert (
            api.get(f"/jobs/{job}/status")["status"] == {"savepoints": "RUNNING", "stop": "FINISHED"}[action]
        )

    @pytest.mark.parametrize(
        ("action", "body", "form"),
        [
            ("savepoints", {}, SavepointFormat.CANONICAL),
            ("savepoints", {"formatType": None}, SavepointFormat.CANONICAL),
            ("savepoints", {"formatType": "CANONICAL"}, SavepointFormat.CANONICAL),
            ("savepoints", {"formatType": "NATIVE"}, SavepointFormat.NATIVE),
            ("savepoints", {"formatType": "NATIVE", "cancel-job": True}, SavepointFormat.NATIVE),
            ("stop", {}, SavepointFormat.CANONICAL),
            ("stop", {"formatType": "NATIVE"}, SavepointFormat.NATIVE),
            ("stop", {"formatType": "NATIVE", "drain": True}, SavepointFormat.NATIVE),
        ],
    )
    def test_a_savepoint_is_of_the_format_that_the_body_says(
        self, api: Api, job: str, action: str, body: Any, form: SavepointFormat
    ) -> None:
        assert api.http.post(f"/jobs/{job}/{action}", json=body).status_code == 202
        assert api.cluster.dispatcher.wait_for(JobId(job), lambda info: info.savepoint is not None, WAIT_S)
        reported = {
            m.kind.is_savepoint: m.format for m in api.cluster.workers.messages(msg.TriggerCheckpoint)
        }
        assert reported == {False: SavepointFormat.CANONICAL, True: form}
        shown = api.get(f"/jobs/{job}/checkpoints")["latest"]["savepoint"]
        assert shown["savepointFormat"] == form.name

    @pytest.mark.parametrize("action", ["savepoints", "stop"])
    def test_a_format_that_there_is_not_is_refused(self, api: Api, job: str, action: str) -> None:
        answer = api.http.post(f"/v1/jobs/{job}/{action}", json={"formatType": "NOPE"})
        assert (answer.status_code, answer.json()) == (
            400,
            {"errors": ["the format of a savepoint is canonical or native, not 'NOPE'"]},
        )
        assert api.cluster.dispatcher.job(JobId(job)).state == "RUNNING"

    def test_a_snapshot_that_fails_says_why(self, api: Api, submission: Make) -> None:
        job = api.cluster.dispatcher.submit(submission())
        assert api.cluster.dispatcher.wait_for(
            job, lambda info: all(subtask.state == "RUNNING" for subtask in info.subtasks), 20.0
        )
        api.cluster.workers.decline_checkpoints("no barrier today")
        with RestClient(api.server.url) as client, pytest.raises(ConfigError, match="no barrier today"):
            client.client(job).savepoint()

    def test_shutdown_is_passed_on(self, api: Api) -> None:
        assert api.http.delete("/cluster").status_code == 202
        assert api.shutdown_asked.wait(WAIT_S)


class TestClient:
    """The same through `RestClient`."""

    def test_a_whole_life(self, api: Api, submission: Make, checkpointed: dict[str, str]) -> None:
        with RestClient(api.server.url) as client:
            job = client.submit(submission(config=checkpointed, request_id="one"))
            assert client.submit(submission(request_id="one")).job_id == job.job_id
            api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
            assert job.status().state == "RUNNING"
            assert {w.pid for w in job.status().task_managers} != set()
            with pytest.raises(TimeoutError):
                job.wait(0.05)
            assert "savepoint-" in job.savepoint()
            with pytest.raises(ConfigError, match="is canonical or native, not 'open'"):
                job.savepoint(format="open")
            path = job.stop(drain=True, format="native")
            triggers = api.cluster.workers.messages(msg.TriggerCheckpoint)
            reported = {m.kind: m.format.value for m in triggers if m.kind.is_savepoint}
            assert reported == {SnapshotKind.SAVEPOINT: "canonical", SnapshotKind.TERMINATE: "native"}
            result = job.wait(WAIT_S)
            assert (result.state, result.savepoint) == ("FINISHED", path)
            with pytest.raises(AlreadyEnded):
                job.cancel()
            assert [summary.state for summary in client.jobs()] == ["FINISHED"]

    def test_errors_are_those_of_the_embedded_client(self, api: Api, submission: Make) -> None:
        with RestClient(api.server.url) as client:
            with pytest.raises(NotFound, match="there is no job"):
                client.info(UNKNOWN)
            with pytest.raises(ConfigError, match="nowhere: the directory does not exist"):
                client.submit(submission(savepoint="/nowhere"))
            with pytest.raises(ConfigError, match="unknown configuration key"):
                client.submit(submission(config={"a.b": "1"}))

    def test_a_cluster_that_is_gone_is_unreachable(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            with RestClient(url) as client, pytest.raises(Unreachable, match="does not answer"):
                client.jobs()


BAD = [
    pytest.param("GET", "/jobs/xyz", {}, 400, "not a job id", id="malformed job id"),
    pytest.param("GET", "/jobs/..%2f..%2fetc%2fpasswd", {}, 404, "Not found", id="path traversal"),
    pytest.param("GET", f"/jobs/{UNKNOWN}", {}, 404, "there is no job", id="unknown job"),
    pytest.param(
        "GET", f"/v1/jobs/{UNKNOWN}/checkpoints", {}, 404, "there is no job", id="unknown job below"
    ),
    pytest.param("GET", "/taskmanagers/nope", {}, 404, "no task manager", id="unknown worker"),
    pytest.param("GET", "/taskmanagers/a%20b", {}, 400, "not a task manager id", id="malformed worker id"),
    pytest.param("GET", "/nope", {}, 404, "Not found: /nope", id="unknown path"),
    pytest.param("PUT", "/jobs", {}, 404, "Not found", id="unsupported method"),
    pytest.param("PATCH", f"/jobs/{UNKNOWN}?mode=nope", {}, 400, "not 'cancel'", id="unknown mode"),
    pytest.param("PATCH", f"/jobs/{UNKNOWN}", {}, 404, "there is no job", id="cancel of an unknown job"),
    pytest.param(
        "GET", f"/jobs/{UNKNOWN}/exceptions?maxExceptions=x", {}, 400, "maxExceptions", id="bad query"
    ),
    pytest.param(
        "POST", f"/jobs/{UNKNOWN}/stop", {"json": {}}, 404, "there is no job", id="stop, unknown job"
    ),
    pytest.param(
        "POST", f"/jobs/{UNKNOWN}/stop", {"json": {"drain": "yes"}}, 400, "does not fit", id="bad body"
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/stop",
        {"content": b"{", "headers": {"content-type": "application/json"}},
        400,
        "does not fit",
        id="no json",
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/stop",
        {"content": b"[" * 100_000, "headers": {"content-type": "application/json"}},
        400,
        "",
        id="deep json",
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/stop",
        {"content": b"{}", "headers": {"content-type": "text/plain"}},
        400,
        "application/json",
        id="a form of another web page",
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/savepoints",
        {"json": {"target-directory": "http://169.254.169.254/latest"}},
        400,
        "scheme 'http'",
        id="savepoint to a web address",
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/savepoints",
        {"json": {"target-directory": "/data/../etc"}},
        400,
        "must not contain '..'",
        id="savepoint outside",
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/savepoints",
        {"json": {"target-directory": "sp"}},
        400,
        "absolute path",
        id="relative savepoint",
    ),
    pytest.param(
        "GET", f"/jobs/{UNKNOWN}/savepoints/{UNKNOWN}", {}, 404, "no savepoint operation", id="trigger"
    ),
    pytest.param("GET", f"/jobs/{UNKNOWN}/savepoints/x", {}, 400, "not a trigger id", id="malformed trigger"),
    pytest.param(
        "POST", "/unistream/jobs", {"json": {}}, 400, "application/msgpack", id="submission as json"
    ),
    pytest.param(
        "POST",
        "/unistream/jobs",
        {"content": b"\x80", "headers": {"content-type": "application/msgpack"}},
        400,
        "not a submission",
        id="submission without fields",
    ),
    pytest.param(
        "POST",
        f"/jobs/{UNKNOWN}/stop",
        {"content": b" " * (BODY_BYTES_MAX + 1), "headers": {"content-type": "application/json"}},
        413,
        "larger than",
        id="body over the limit",
    ),
    pytest.param(
        "GET",
        "/overview",
        {"headers": {"host": "evil.example"}},
        403,
        "not called",
        id="foreign host name",
    ),
]


def test_bad_input(api: Api, subtests: pytest.Subtests) -> None:
    """One server gets all of it: what is refused changes nothing for the next one."""
    for row in BAD:
        method, path, arguments, status, text = row.values
        with subtests.test(row.id):
            answer = api.http.request(method, path, **arguments)
            assert answer.status_code == status, answer.text
            if text:
                assert text in answer.json()["errors"][0]


def test_a_body_without_length_is_limited_too(api: Api) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 65_536 + 2):
            yield b" " * 65_536

    headers = {"content-type": "application/json"}
    answer = api.http.post(f"/jobs/{UNKNOWN}/stop", content=endless(), headers=headers)
    assert answer.status_code == 413
    assert "larger than" in answer.json()["errors"][0]


def test_a_pickle_as_submission_is_not_executed(api: Api, tmp_path) -> None:
    marker = tmp_path / "executed"
    canary = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    answer = api.http.post("/unistream/jobs", content=canary, headers={"content-type": "application/msgpack"})
    assert answer.status_code == 400
    assert not marker.exists()


class TestServer:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", ""])
    def test_it_listens_on_loopback_only(self, api: Api, host: str) -> None:
        with pytest.raises(ConfigError, match="it needs a certificate"):
            Listener(host, 0)

    def test_a_taken_port_is_named(self, api: Api) -> None:
        with pytest.raises(ConfigError, match=f"rest.port {api.server.port}: cannot listen"):
            Listener("127.0.0.1", api.server.port)


def test_outcomes_are_waited_for_until_they_are_read() -> None:
    from concurrent.futures import Future

    triggers = Triggers(lambda: uuid.uuid4().hex)
    done: Future[str] = Future()
    done.set_result("/sp")
    trigger = triggers.start("j", lambda _trigger: done)  # type: ignore[arg-type]
    triggers.start("j", lambda _trigger: Future())  # type: ignore[arg-type]
    lingered = threading.Event()

    def linger() -> None:
        triggers.linger(WAIT_S)
        lingered.set()

    thread = threading.Thread(target=linger)
    thread.start()
    assert not lingered.is_set()
    assert triggers.outcome("j", trigger) == "/sp"  # type: ignore[arg-type]
    assert lingered.wait(WAIT_S)
    thread.join()


def test_a_submission_survives_the_wire(submission: Make) -> None:
    request = submission(config={"a": "b"}, savepoint="/s", request_id="r", allow_non_restored=True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=type(request)) == request
