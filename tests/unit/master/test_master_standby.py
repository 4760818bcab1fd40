"""A master that stands by, over HTTP: it answers what the leader answers, and says so if there is none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.asking import as_owner
from tests.eventually import WAIT_S, eventually
from tests.unit.master.event_reader import Events
from tests.unit.master.served_cluster import Api
from unistream.base.config import Configuration
from unistream.base.errors import Unreachable
from unistream.rest import events
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer
from unistream.rest.standby import MasterFront

OWN = {"X-Unistream-Page": "1"}


class Standby:
    """One of several masters. `url`: where it takes the leader to be; None: nobody leads."""

    def __init__(self, url: str | None, pages: Path, **config: str) -> None:
        self.leader = url
        self.front = MasterFront(self._look_up, Configuration(config), version="9.9", pages=pages)
        self.server = RestServer(self.front, Listener("127.0.0.1", 0))
        self.http = httpx.Client(
            base_url=self.server.url,
            headers={} if url is None else as_owner(url),
            trust_env=False,
            verify=False,
            timeout=WAIT_S,
        )

    def _look_up(self) -> str:
        if self.leader is None:
            raise Unreachable("nobody leads the cluster at zk now")
        return self.leader

    def close(self) -> None:
        self.http.close()
        self.server.close()


@pytest.fixture
def stands_by(tmp_path: Path) -> Iterator[Callable[..., Standby]]:
    made: list[Standby] = []
    (tmp_path / "index.html").write_text("<h1>VERSION-OF-THIS-SERVER</h1>")

    def make(url: str | None, **config: str) -> Standby:
        made.append(Standby(url, tmp_path, **config))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_it_answers_what_the_leader_answers(
    api: Api, submission: Callable[..., Any], stands_by: Callable[..., Standby]
) -> None:
    standby = stands_by(api.server.url)
    body = msgspec.msgpack.encode(submission())
    kind = {"content-type": "application/msgpack"}
    job = standby.http.post("/v1/unistream/jobs", content=body, headers=kind).json()["jobid"]
    eventually(lambda: api.cluster.dispatcher.job(job).all_tasks_run, "it runs")
    for path in (f"/jobs/{job}/plan", "/jobs", "/openapi.json", f"/jobs/{'0' * 32}", "/nothing?a=%20b"):
        own, passed = api.http.get(path), standby.http.get(path)
        assert (passed.status_code, passed.text) == (own.status_code, own.text)
        assert passed.headers["content-type"] == own.headers["content-type"]
    assert "date" in standby.http.get("/jobs").headers
    assert standby.http.head("/jobs").status_code == api.http.head("/jobs").status_code


ASKS = [
    ("a page of the standby", "own", OWN, 200),
    ("a form of it", "own", {}, 403),
    ("a page of another port", "http://127.0.0.1:1", OWN, 403),
    ("a page of the leader, which asks the leader", "leader", OWN, 403),
    ("a sandboxed frame", "null", OWN, 403),
    ("no browser", None, {}, 200),
]


def test_pages_of_the_standby_alone_change_something_there(
    api: Api, stands_by: Callable[..., Standby]
) -> None:
    standby = stands_by(api.server.url)
    named = {"own": standby.server.url, "leader": api.server.url}
    for who, origin, headers, status in ASKS:
        sent = headers if origin is None else {**headers, "Origin": named.get(origin, origin)}
        answer = standby.http.put("/unistream/cluster/refusal", json={"forMs": 0}, headers=sent)
        assert (who, answer.status_code) == (who, status)


def test_where_the_leader_lets_no_page_change_anything_that_of_a_standby_does_not(
    make_cluster: Callable[..., Any], stands_by: Callable[..., Standby]
) -> None:
    api = Api(make_cluster(config={"web.cancel.enable": "false"}))
    standby = stands_by(api.server.url)
    try:
        page = {**OWN, "Origin": standby.server.url}
        path, body = "/unistream/cluster/refusal", {"forMs": 0}
        assert standby.http.put(path, json=body, headers=page).status_code == 403
        assert standby.http.put(path, json=body).status_code == 200
    finally:
        api.close()


def test_names_of_others_are_refused_there(stands_by: Callable[..., Standby]) -> None:
    standby = stands_by(None)
    for host, path in itertools.product(("stranger.example", "localhost:1@127.0.0.1"), ("/jobs", "/ui/")):
        assert standby.http.get(path, headers={"Host": host}).status_code == 403


def test_its_pages_are_its_own(stands_by: Callable[..., Standby]) -> None:
    standby = stands_by(None)
    page = standby.http.get("/ui/jobs/1?vertex=a")
    assert (page.status_code, page.text) == (200, "<h1>9.9</h1>")
    assert "connect-src 'self'" in page.headers["content-security-policy"]


def own_address(standby: Standby) -> str:
    return standby.server.url


def nobody(_: Standby) -> None:
    return None


def nothing_there(_: Standby) -> str:
    return "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("leader", "sentence"),
    [
        (nobody, "this master stands by: nobody leads the cluster at zk now"),
        (nothing_there, "this master stands by: the leader at http://127.0.0.1:1 does not answer: "),
        (own_address, "this master stands by: nobody leads now"),
    ],
)
def test_without_a_leader_it_says_so(
    stands_by: Callable[..., Standby], leader: Callable[[Standby], str | None], sentence: str
) -> None:
    standby = stands_by(None)
    standby.leader = leader(standby)
    for method in ("GET", "POST"):
        answer = standby.http.request(method, "/jobs/overview")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["errors"][0].startswith(sentence)
        assert answer.headers["x-unistream-standby"] == "1"


def test_a_stream_goes_on_through_it_and_ends_with_the_leader(
    api: Api, submission: Callable[..., Any], stands_by: Callable[..., Standby]
) -> None:
    standby = stands_by(api.server.url)
    job = api.cluster.dispatcher.submit(submission())
    with Events(standby.server.port, f"?job={job}", **api.as_owner) as stream:
        assert stream.next()["event"] == "hello"
        stream.until("job")
        api.cluster.dispatcher.cancel(job)
        stream.until("change", topic=f"job/{job}")
        api.server.close()
        stream.until("end")
        assert stream.next() is None


def test_who_has_gone_is_served_no_more_at_the_leader(
    api: Api, stands_by: Callable[..., Standby], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STREAMS_MAX", 1)
    standby = stands_by(api.server.url)
    with Events(standby.server.port, **api.as_owner) as stream:
        assert stream.next()["event"] == "hello"
        assert standby.http.get("/unistream/events").status_code == 503

    def is_free() -> bool:
        with api.http.stream("GET", "/unistream/events") as answer:
            return answer.status_code == 200

    eventually(is_free, "the stream is closed there")


def test_it_leads_and_stands_by_again_at_one_address(
    api: Api, make_cluster: Callable[..., Any], stands_by: Callable[..., Standby]
) -> None:
    standby, other = stands_by(api.server.url), Api(make_cluster())
    try:
        first, second = (one.get("/unistream/overview")["cluster"] for one in (api, other))
        assert standby.http.get("/unistream/overview").json()["cluster"] == first
        standby.front.lead(other.app)
        with Events(standby.server.port, **other.as_owner) as stream:
            assert stream.next()["cluster"] == second
            standby.front.stand_by()
            stream.until("end")
        with Events(standby.server.port, **api.as_owner) as stream:
            assert stream.next()["cluster"] == first
    finally:
        other.close()
