"""Requests that come again, over a real REST server whose answers are lost: one job, one snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import Any

import httpx
import pytest

from tests.asking import as_owner
from tests.unit.master.served_cluster import WAIT_S, Api
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, NothingListens, Unreachable
from unistream.base.ids import JobId
from unistream.client.job.submission import submit
from unistream.client.remote.policy import RULES, CallKind
from unistream.client.remote.rest_client import RestClient
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.submission import SubmitRequest

Submission = Callable[..., SubmitRequest]


class LosesAnswers:
    """Hands requests on to `url`; of the first `lost` answers the caller sees a broken connection."""

    def __init__(self, url: str, lost: int) -> None:
        self.requests = 0
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def hand_on(handler) -> None:
                body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
                sent = {"content-type": handler.headers["content-type"]} if body else {}
                sent |= as_owner(url)
                answer = httpx.request(
                    *(handler.command, url + handler.path),
                    content=body,
                    headers=sent,
                    trust_env=False,
                    verify=False,  # plain HTTP: no certificates are loaded
                    timeout=WAIT_S,
                )
                with lock:
                    self.requests += 1
                    if self.requests <= lost:
                        handler.close_connection = True
                        return
                handler.send_response(answer.status_code)
                handler.send_header("content-length", str(len(answer.content)))
                handler.end_headers()
                handler.wfile.write(answer.content)

            do_GET = do_POST = do_PATCH = hand_on

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)


@pytest.fixture
def behind(api: Api) -> Iterator[Callable[[int], LosesAnswers]]:
    """Makes the way to the cluster one on which so many answers are lost."""
    made: list[LosesAnswers] = []

    def make(lost: int) -> LosesAnswers:
        made.append(LosesAnswers(api.server.url, lost))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_lost_answer_makes_no_second_job(
    api: Api, submission: Submission, behind: Callable[[int], LosesAnswers]
) -> None:
    way = behind(1)
    with RestClient(way.url) as client:
        job = client.submit(submission()).job_id
    assert way.requests == 2
    assert [known.job for known in api.cluster.dispatcher.jobs()] == [job]


def test_every_way_to_submit_survives_a_lost_answer(
    api: Api, submission: Submission, behind: Callable[[int], LosesAnswers]
) -> None:
    config = Configuration({"rest.port": str(behind(1).port)})
    with submit(submission(), target="remote", config=config) as client:
        assert [known.job for known in api.cluster.dispatcher.jobs()] == [client.job_id]


def test_who_never_hears_an_answer_is_told_the_id_to_submit_again_with(
    api: Api, submission: Submission, behind: Callable[[int], LosesAnswers]
) -> None:
    way = behind(RULES[CallKind.SUBMIT].lost_max)
    request = submission(request_id="nightly 2026-01-05")
    with (
        RestClient(way.url) as client,
        pytest.raises(
            Unreachable, match=r"not known: .* with the request id nightly 2026-01-05 never starts"
        ),
    ):
        client.submit(request)
    with RestClient(way.url) as client:
        job = client.submit(request).job_id
    assert [known.job for known in api.cluster.dispatcher.jobs()] == [job]


def test_nothing_is_sent_again_to_where_nobody_is(submission: Submission) -> None:
    with RestClient("http://127.0.0.1:1") as client, pytest.raises(NothingListens, match=r"refused"):
        client.submit(submission())


def test_a_refusal_is_an_answer(submission: Submission, behind: Callable[[int], LosesAnswers]) -> None:
    way = behind(0)
    with RestClient(way.url) as client, pytest.raises(ConfigError, match="unknown configuration key"):
        client.submit(submission(config={"no.such.key": "1"}))
    assert way.requests == 1


def test_the_same_request_from_two_at_once_is_one_job(api: Api, submission: Submission) -> None:
    request = submission(request_id="both")
    with (
        RestClient(api.server.url) as one,
        RestClient(api.server.url) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        start = threading.Barrier(2)

        def send(client: RestClient) -> str:
            start.wait(WAIT_S)
            return client.submit(request).job_id

        jobs = {sent.result(WAIT_S) for sent in [pool.submit(send, one), pool.submit(send, other)]}
    assert len(jobs) == 1
    assert [known.job for known in api.cluster.dispatcher.jobs()] == list(jobs)


@pytest.fixture
def job(api: Api, submission: Submission) -> JobId:
    """A running job that takes no snapshot by itself."""
    job = JobId(api.cluster.dispatcher.submit(submission()))
    all_run = lambda info: all(subtask.state == "RUNNING" for subtask in info.subtasks)  # noqa: E731
    assert api.cluster.dispatcher.wait_for(job, all_run, WAIT_S)
    return job


@pytest.mark.parametrize(
    ("operation", "kinds"),
    [
        ("savepoint", [SnapshotKind.SAVEPOINT]),
        ("checkpoint", [SnapshotKind.CHECKPOINT]),
        ("stop", [SnapshotKind.SUSPEND]),
    ],
)
def test_a_lost_answer_takes_no_second_snapshot(
    api: Api,
    job: JobId,
    behind: Callable[[int], LosesAnswers],
    operation: str,
    kinds: list[SnapshotKind],
) -> None:
    with RestClient(behind(2).url) as client:
        path = getattr(client.client(job), operation)()
    info = api.cluster.dispatcher.job(job)
    assert [(taken.kind, taken.path) for taken in info.checkpoints] == [(kinds[0], path)]


def test_a_lost_answer_to_a_cancellation_is_asked_for_again(
    api: Api, job: JobId, behind: Callable[[int], LosesAnswers]
) -> None:
    with RestClient(behind(2).url) as client:
        client.client(job).cancel()
    assert api.cluster.dispatcher.wait(job, WAIT_S)
    assert api.cluster.dispatcher.job(job).state == "CANCELED"


def test_a_trigger_id_of_a_refused_request_is_free(api: Api, job: JobId) -> None:
    answers = [
        api.http.post(
            f"/unistream/jobs/{job}/rescale", json={"parallelism": {"nothing": 2}, "triggerId": "ab" * 16}
        )
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [400, 400], "what is refused was not started"


@pytest.mark.parametrize("path", ["savepoints", "stop", "checkpoints"])
def test_a_trigger_id_is_of_one_request(api: Api, job: JobId, path: str) -> None:
    def post(path: str, **body: object) -> httpx.Response:
        return api.http.post(f"/v1/jobs/{job}/{path}", json={**body, "triggerId": "AB" * 16})

    assert [(post(path).status_code, post(path).json()) for _ in range(2)] == [
        (202, {"request-id": "ab" * 16})
    ] * 2
    other = {"checkpointType": "FULL"} if path == "checkpoints" else {"formatType": "NATIVE"}
    answer = post(path, **other)
    assert (answer.status_code, answer.json()["errors"]) == (
        400,
        [f"trigger id {'ab' * 16} is the one of another request; choose a new one"],
    )


def test_a_malformed_trigger_id_is_refused(api: Api, job: JobId, subtests: pytest.Subtests) -> None:
    for path, trigger in product(["savepoints", "stop", "checkpoints"], ["", "x", "ab" * 17, "../" * 11]):
        with subtests.test(path, trigger=trigger):
            answer = api.http.post(f"/v1/jobs/{job}/{path}", json={"triggerId": trigger})
            assert answer.status_code == 400
            assert "is not a trigger id (32 hex digits)" in answer.text


def test_two_submissions_of_the_same_pipeline_are_two_jobs(api: Api, submission: Submission) -> None:
    with RestClient(api.server.url) as client:
        assert client.submit(submission()).job_id != client.submit(submission()).job_id
    assert len(api.cluster.dispatcher.jobs()) == 2
