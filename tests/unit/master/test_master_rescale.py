"""Another parallelism for a running job: over REST, and in all that is known of the job afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from tests.eventually import eventually
from tests.metadata_rows import rows
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import WAIT_S, Api
from unistream.base.errors import AlreadyEnded, ConfigError, NotFound
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.master.shown.history import RecordedJob, recorded_info
from unistream.metadata import tables
from unistream.model import messages as msg
from unistream.model.graph import JobGraph
from unistream.model.job_info import JobInfo

UNKNOWN = "0" * 31 + "a"
NOT_RUNNING = "not all tasks are running; try again when it is RUNNING"
Make = Callable[..., Any]


class RescaleApi(Api):
    """With what a change of parallelism is asked for and seen by."""

    def put(self, job: str, **bounds: tuple[int, int]) -> httpx.Response:
        """`bounds` by vertex name."""
        body = {
            vertex.id: {
                "parallelism": {"lowerBound": bounds[vertex.name][0], "upperBound": bounds[vertex.name][1]}
            }
            for vertex in self.graph(job).vertices
            if vertex.name in bounds
        }
        return self.http.put(f"/jobs/{job}/resource-requirements", json=body)

    def graph(self, job: str) -> JobGraph:
        return self.cluster.dispatcher.graph(JobId(job))

    def await_widths(self, job: str, *widths: int) -> JobInfo:
        def as_wide(info: JobInfo) -> bool:
            return info.state == "RUNNING" and tuple(self.widths(info)) == widths

        info = self.cluster.dispatcher.wait_for(JobId(job), as_wide, WAIT_S)
        assert info is not None
        return info

    @staticmethod
    def widths(info: JobInfo) -> list[int]:
        names = [subtask.vertex_name for subtask in info.subtasks]
        return [names.count(name) for name in dict.fromkeys(names)]


@pytest.fixture
def api(make_cluster: Make) -> Iterator[RescaleApi]:
    """Jobs run until they are stopped."""
    api = RescaleApi(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield api
    api.close()


@pytest.fixture
def job(api: RescaleApi, submission: Make, checkpointed: dict[str, str]) -> str:
    """A running job with a checkpoint."""
    job = api.cluster.dispatcher.submit(submission(config=checkpointed))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    return str(job)


@pytest.fixture
def stuck(api: RescaleApi, submission: Make, checkpointed: dict[str, str]) -> str:
    """A job that is going to restart, some day."""
    config = checkpointed | {"restart-strategy.fixed-delay.delay": "1 h"}
    job = api.cluster.dispatcher.submit(submission(config=config))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    attempt = api.cluster.workers.messages(msg.DeployTask)[0].deployment.attempt
    failure = msg.TaskFailure(kind="UserCodeError", message="boom")
    api.cluster.workers.call_master(msg.TaskStateChanged(attempt=attempt, state="FAILED", failure=failure))
    assert api.cluster.dispatcher.wait_for(job, lambda i: i.state == "RESTARTING", WAIT_S)
    return str(job)


class TestResourceRequirements:
    @pytest.mark.parametrize("prefix", ["", "/v1"])
    def test_reading(self, api: RescaleApi, job: str, prefix: str) -> None:
        answer = api.http.get(f"{prefix}/jobs/{job}/resource-requirements")
        assert answer.status_code == 200
        one_to_two = {"parallelism": {"lowerBound": 1, "upperBound": 2}}
        assert answer.json() == {vertex.id: one_to_two for vertex in api.graph(job).vertices}

    def test_changing(self, api: RescaleApi, job: str) -> None:
        answer = api.put(job, source=(1, 3), sink=(-1, 1))
        assert (answer.status_code, answer.json()) == (200, {})
        api.await_widths(job, 3, 1)
        bounds = api.http.get(f"/jobs/{job}/resource-requirements").json().values()
        assert [b["parallelism"]["upperBound"] for b in bounds] == [3, 1]

    def test_a_lower_bound_is_kept_and_shown(self, api: RescaleApi, job: str) -> None:
        def shown() -> list[tuple[int, int]]:
            found = api.http.get(f"/jobs/{job}/resource-requirements").json()
            bounds = [found[vertex.id]["parallelism"] for vertex in api.graph(job).vertices]
            return [(bound["lowerBound"], bound["upperBound"]) for bound in bounds]

        assert shown() == [(1, 2), (1, 2)]
        assert api.put(job, source=(2, 2), sink=(1, 2)).status_code == 200
        assert shown() == [(2, 2), (1, 2)]
        assert api.put(job, source=(1, 2), sink=(3, 2)).status_code == 400
        assert shown() == [(2, 2), (1, 2)], "what is refused changes nothing"
        assert api.put(job, source=(-1, 2), sink=(-1, 2)).status_code == 200
        assert shown() == [(1, 2), (1, 2)]

    def test_what_it_has_already(self, api: RescaleApi, job: str) -> None:
        assert api.put(job, source=(2, 2), sink=(1, 2)).status_code == 200
        assert {s.attempt for s in api.cluster.dispatcher.job(job).subtasks} == {0}

    def test_refused(self, api: RescaleApi, job: str, subtests: pytest.Subtests) -> None:
        table: list[tuple[dict[str, tuple[int, int]], str]] = [
            ({"source": (1, 2)}, "the request is incomplete: it lacks vertex"),
            ({"source": (0, 2), "sink": (1, 1)}, "bounds 0 and 2 must both be at least 1"),
            ({"source": (1, 0), "sink": (1, 1)}, "bounds 1 and 0 must both be at least 1"),
            ({"source": (3, 2), "sink": (1, 1)}, "the lower bound 3 is above the upper bound 2"),
            ({"source": (1, 129), "sink": (1, 1)}, "129 is above its max parallelism 128"),
        ]
        for bounds, text in table:
            with subtests.test(text):
                answer = api.put(job, **bounds)
                assert answer.status_code == 400
                assert text in answer.json()["errors"][0]

    def test_bodies_that_are_none(self, api: RescaleApi, job: str, subtests: pytest.Subtests) -> None:
        path, json = f"/jobs/{job}/resource-requirements", {"content-type": "application/json"}
        for body in ("[]", '{"a": 3}', '{"a": {"parallelism": {"lowerBound": 1}}}', "{"):
            with subtests.test(body):
                assert api.http.put(path, content=body, headers=json).status_code == 400

    def test_an_unknown_vertex(self, api: RescaleApi, job: str) -> None:
        body = {"x": {"parallelism": {"lowerBound": 1, "upperBound": 2}}}
        answer = api.http.put(f"/jobs/{job}/resource-requirements", json=body)
        assert (answer.status_code, "has no vertex 'x'" in answer.text) == (400, True)

    def test_not_now(self, api: RescaleApi, stuck: str) -> None:
        answer = api.put(stuck, source=(1, 3), sink=(1, 3))
        assert (answer.status_code, answer.json()) == (409, {"errors": [NOT_RUNNING]})

    def test_a_job_that_is_slow_to_refuse_is_waited_for(
        self, api: RescaleApi, stuck: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A caller gets an older picture of a busy job, in which nothing is refused yet."""
        monkeypatch.setattr("unistream.master.job.pictures.TIMEOUT_S", 0.0)
        answer = api.put(stuck, source=(1, 3), sink=(1, 3))
        assert (answer.status_code, answer.json()) == (409, {"errors": [NOT_RUNNING]})

    def test_of_no_job_and_of_one_that_has_ended(self, api: RescaleApi, job: str) -> None:
        assert api.http.get(f"/jobs/{UNKNOWN}/resource-requirements").status_code == 404
        assert api.http.put(f"/jobs/{UNKNOWN}/resource-requirements", json={}).status_code == 404
        api.cluster.dispatcher.cancel(JobId(job))
        assert api.cluster.dispatcher.wait(JobId(job), WAIT_S)
        assert api.http.get(f"/jobs/{job}/resource-requirements").status_code == 200
        answer = api.put(job, source=(1, 3), sink=(1, 3))
        assert (answer.status_code, "already ended as CANCELED" in answer.text) == (409, True)


class TestOurOwnWay:
    def test_the_client_waits_until_it_is_done(self, api: RescaleApi, job: str) -> None:
        seen: list[JobInfo] = []
        with RestClient(api.server.url) as client:
            client.client(JobId(job)).rescale({"source": 3}, seen.append)
            assert api.widths(client.info(JobId(job))) == [3, 2]
            client.client(JobId(job)).rescale({"source": 1, "sink": 1})
            assert api.widths(client.info(JobId(job))) == [1, 1]
        assert {info.job for info in seen} <= {job}

    def test_its_path(self, api: RescaleApi, job: str) -> None:
        answer = api.http.post(f"/unistream/jobs/{job}/rescale", json={"parallelism": {"source": 1}})
        assert answer.status_code == 202
        api.await_widths(job, 1, 2)
        path = f"/unistream/jobs/{job}/rescale/{answer.json()['request-id']}"
        done = {"id": "COMPLETED"}
        eventually(lambda: api.http.get(path).json()["status"] == done, "it is answered", WAIT_S)
        status = api.http.get(path).json()
        assert list(status["operation"]["parallelism"].values()) == [1, 2]
        assert (
            api.http.get(path.replace("/unistream", "").replace("rescale", "savepoints")).status_code == 404
        )

    def test_refusals_reach_the_client(self, api: RescaleApi, job: str) -> None:
        with RestClient(api.server.url) as client:
            with pytest.raises(ConfigError, match=r"no vertex 'x'; there are 'source' \(uid source\)"):
                client.client(JobId(job)).rescale({"x": 3})
            with pytest.raises(NotFound):
                client.client(JobId(UNKNOWN)).rescale({"source": 3})
            client.client(JobId(job)).cancel()
            assert api.cluster.dispatcher.wait(JobId(job), WAIT_S)
            with pytest.raises(AlreadyEnded, match="it cannot be rescaled"):
                client.client(JobId(job)).rescale({"source": 3})

    def test_an_outcome_that_is_a_failure(self, api: RescaleApi, stuck: str) -> None:
        with RestClient(api.server.url) as client, pytest.raises(ConfigError, match=NOT_RUNNING):
            client.client(JobId(stuck)).rescale({"source": 1})


def test_everything_shows_the_parallelism_that_it_has_now(api: RescaleApi, job: str) -> None:
    workers, dispatcher = api.cluster.workers, api.cluster.dispatcher
    dispatcher.rescale(JobId(job), {"source": 3, "sink": 1}).result(WAIT_S)
    details = api.http.get(f"/jobs/{job}").json()
    assert [v["parallelism"] for v in details["vertices"]] == [3, 1]
    assert [v["tasks"]["RUNNING"] for v in details["vertices"]] == [3, 1]
    nodes = api.http.get(f"/jobs/{job}/plan").json()["plan"]["nodes"]
    assert {n["description"]: n["parallelism"] for n in nodes} == {"source": 3, "sink": 1}
    [item] = api.http.get("/jobs/overview").json()["jobs"]
    assert item["tasks"]["total"] == 4
    attempts = [message.deployment.attempt for message in workers.messages(msg.DeployTask)]
    newest = next(attempt for attempt in reversed(attempts) if attempt.index == 2)
    failure = msg.TaskFailure(kind="UserCodeError", message="boom")
    workers.call_master(msg.TaskStateChanged(attempt=newest, state="FAILED", failure=failure))
    info = dispatcher.wait_for(JobId(job), lambda i: bool(i.exceptions), WAIT_S)
    assert info.exceptions[0].task_name == f"source (3/3) - execution #{newest.attempt}"
    api.await_widths(job, 3, 1)
    dispatcher.rescale(JobId(job), {"source": 1}).result(WAIT_S)
    dispatcher.cancel(JobId(job))
    assert dispatcher.wait(JobId(job), WAIT_S)
    dispatcher.close()
    assert_catalogue(api, job)


def assert_catalogue(api: RescaleApi, job: str) -> None:
    store = api.cluster.store()
    try:
        record = store.job(JobId(job))
        graph = msgspec.json.decode(record.graph_json, type=JobGraph)
        assert [vertex.parallelism for vertex in graph.vertices] == [1, 1]
        assert (record.state, record.restarts) == ("CANCELED", 1)
        recorded = recorded_info(RecordedJob(record, None, None, is_here=True, now_ms=0), store)
        assert [e.task_name.partition(" -")[0] for e in recorded.exceptions] == ["source (3/3)"]
        attempts = rows(api.cluster.url, tables.attempts, "state", "subtask")
        assert {state for state, _ in attempts} <= {"CANCELED", "FAILED"}, "removed subtasks have ended"
        assert {subtask for _, subtask in attempts} == {0, 1, 2}
    finally:
        store.close()
