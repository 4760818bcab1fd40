"""The event stream over HTTP: what a client has is what the paths answer, whatever happens to either side."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.event_reader import Events
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.model import messages as msg
from unistream.rest import event_log, events
from unistream.rest.connections import ConnectionLimits
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer

Make = Callable[..., Any]
UNKNOWN = "0" * 32
FIELDS = {"now_ms", "task_managers"}  # they change all the time


@pytest.fixture(autouse=True)
def nobody_waits_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "INTERVAL_S", 0.1)
    monkeypatch.setattr(events, "BEAT_S", 0.2)


def steady(picture: Any) -> Any:
    return {name: value for name, value in picture.items() if name not in FIELDS}


@pytest.fixture
def job(api: Api, submission: Make, checkpointed: dict[str, str]) -> str:
    """A running job, which takes checkpoints."""
    job = api.cluster.dispatcher.submit(submission(config=checkpointed))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    return str(job)


@pytest.fixture
def idle(api: Api, submission: Make) -> str:
    """A running job in which nothing happens."""
    job = api.cluster.dispatcher.submit(submission())
    eventually(lambda: api.cluster.dispatcher.job(job).all_tasks_run, "it runs")
    return str(job)


def test_the_pictures_are_what_the_paths_answer(api: Api, idle: str) -> None:
    with Events(api.server.port, f"?job={idle}&checkpoints={idle}&job={idle.upper()}") as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.answer.headers["cache-control"] == "no-store, no-transform"
        hello = stream.next()
        cluster = api.cluster.dispatcher.cluster
        assert (hello["event"], hello["cluster"]) == ("hello", cluster)
        assert hello["version"] == api.get("/unistream/overview")["version"]
        stream.beat(late_since_ms=None)
        whole = stream.pictures.whole
        paths = {"overview": "overview", f"job/{idle}": f"jobs/{idle}"}
        paths[f"checkpoints/{idle}"] = f"jobs/{idle}/checkpoints"
        assert whole.keys() == paths.keys()
        for topic, path in paths.items():
            assert steady(whole[topic]) == steady(api.get(f"/v1/unistream/{path}"))


def test_changes_come_as_they_are_and_an_end_of_a_job_is_one(api: Api, job: str) -> None:
    with Events(api.server.port, f"?job={job}&checkpoints={job}") as stream:
        stream.until("change", topic=f"job/{job}")
        stream.until("change", topic=f"checkpoints/{job}")
        api.http.patch(f"/jobs/{job}").raise_for_status()
        while stream.pictures.whole[f"job/{job}"]["state"] != "CANCELED":
            assert stream.next() is not None
        path = f"/unistream/jobs/{job}"
        assert steady(stream.pictures.whole[f"job/{job}"]) == steady(api.get(path))
        checkpoints = api.get(f"{path}/checkpoints")
        while stream.pictures.whole[f"checkpoints/{job}"] != checkpoints:
            assert stream.next() is not None


def test_a_job_that_nobody_knows_ends_no_stream(api: Api, idle: str) -> None:
    with Events(api.server.port, f"?job={UNKNOWN}&job={idle}") as stream:
        refused = stream.until("refused")
        answer = api.http.get(f"/unistream/jobs/{UNKNOWN}")
        assert (refused["status"], refused["errors"]) == (answer.status_code, answer.json()["errors"])
        stream.beat()
        assert stream.pictures.whole.keys() == {"overview", f"job/{idle}"}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        pytest.param("job=..", "not a job id", id="no id"),
        pytest.param("&".join(f"job={n:032x}" for n in range(41)), "limit 40", id="too many"),
    ],
)
def test_what_can_never_be_followed_is_refused(api: Api, query: str, sentence: str) -> None:
    answer = api.http.get(f"/unistream/events?{query}")
    assert answer.status_code == 400
    assert sentence in answer.json()["errors"][0]


@pytest.mark.parametrize("by", ["header", "query"])
def test_a_client_that_comes_back_goes_on_from_its_last_id(api: Api, idle: str, by: str) -> None:
    path = f"?job={idle}"
    with Events(api.server.port, path) as stream:
        stream.beat()
        pictures, last = stream.pictures, str(stream.last_id)
    api.http.patch(f"/jobs/{idle}").raise_for_status()
    more = f"{path}&lastEventId={last}" if by == "query" else path
    with Events(api.server.port, more, **({"Last-Event-ID": last} if by == "header" else {})) as again:
        again.pictures = pictures
        seen = [again.next()["event"]]
        while pictures.whole[f"job/{idle}"]["state"] != "CANCELED":
            seen.append(again.next()["event"])
        assert set(seen) <= {"hello", "change", "beat"}, "it had the whole pictures"


def test_an_id_of_another_leader_or_of_other_topics_leads_to_whole_pictures(
    api: Api, make_cluster: Make, idle: str
) -> None:
    with Events(api.server.port) as stream:
        stream.until("overview")
        stream.beat()
        last = str(stream.last_id)
    with closing(Api(make_cluster(workers=ScriptedWorkers(ends=False)))) as other:
        for port, query in ((other.server.port, ""), (api.server.port, f"&job={idle}")):
            with Events(port, f"?lastEventId={last}{query}") as again:
                assert again.until("overview")["version"] == again.pictures.versions["overview"]


def test_one_look_serves_all(api: Api, idle: str) -> None:
    with ExitStack() as owned:
        path = f"?job={idle}"
        streams = [owned.enter_context(Events(api.server.port, path)) for _ in range(4)]
        versions = [stream.until("job")["version"] for stream in streams]
        assert len(set(versions)) == 1


def test_a_client_that_does_not_read_gets_a_whole_picture_next(
    api: Api, submission: Make, checkpointed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is full, and the log goes on without it. Others have every change."""
    monkeypatch.setattr(event_log, "CHANGES_KEPT_MAX", 3)
    large = {"pipeline.name": "x" * 1_000_000}
    job = str(api.cluster.dispatcher.submit(submission(config=checkpointed, given=large)))
    topic, patient = f"job/{job}", ConnectionLimits(unread_s=WAIT_S)
    app = api.server._server.config.app
    listener = Listener("127.0.0.1", 0)
    with closing(RestServer(app, listener, limits=patient)) as server:
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        with (
            Events(server.port, f"?job={job}", **api.as_owner) as slow,
            Events(server.port, f"?job={job}", **api.as_owner) as quick,
        ):
            quick.until("job")
            for _ in range(5):
                quick.until("change", topic=topic)
            api.http.patch(f"/jobs/{job}").raise_for_status()
            seen = []
            for client in (quick, slow):
                seen.append([])
                while client.pictures.whole.get(topic, {}).get("state") != "CANCELED":
                    seen[-1].append(client.next()["event"])
            assert "job" not in seen[0]
            assert seen[1].count("job") >= 2, "the first picture, and the one after the gap"


def test_streams_are_bounded_and_make_room_when_their_clients_go(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STREAMS_MAX", 2)
    with Events(api.server.port) as first, Events(api.server.port) as second:
        first.until("overview")
        second.until("overview")
        refused = api.http.get("/unistream/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "limit" in refused.json()["errors"][0]
        dropped = socket.socket(fileno=second.answer.fp.raw._sock.detach())  # type: ignore[union-attr]
        dropped.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        dropped.close()  # at once, as of a browser that was killed

        def is_open() -> bool:
            with api.http.stream("GET", "/unistream/events") as answer:
                return answer.status_code == 200

        eventually(is_open, "there is room for another one")


@pytest.fixture
def served(make_cluster: Make) -> Iterator[Api]:
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield api
    api.close()


def test_the_end_of_the_cluster_ends_streams_at_once(served: Api) -> None:
    with Events(served.server.port) as stream:
        stream.until("overview")
        served.server.close()
        stream.until("end")
        assert stream.next() is None
