"""Links of runs over REST: one clock stamps them, a request may be sent again, and bad requests are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.eventually import eventually
from tests.unit.master.conftest import graph, request
from tests.unit.master.database_file import take_away
from tests.unit.master.served_cluster import WAIT_S, Api
from unistream.base.config import DAGSTER_ASSETS, Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import JobId
from unistream.client.job.run_links import RemoteLinks
from unistream.client.remote.rest_client import RestClient
from unistream.master.store.run_links import StampedLinks
from unistream.metadata.store import SqlMetadataStore
from unistream.model.submission import digest_of
from unistream.port.run_links import Watcher

JOB, NEXT_JOB = JobId("a" * 32), JobId("b" * 32)
KEY = "dagster 5f0c orders & more/ü"
FIRST = Watcher(root_run="5f0c", run="5f0c", step="orders")
RETRY = Watcher(root_run="5f0c", run="77aa", step="orders")
PATH = "/v1/unistream/run-links"


class SetClock:
    """Shows what the test says."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def links(api: Api) -> Iterator[RemoteLinks]:
    with RemoteLinks(RestClient(str(api.http.base_url)), 10.0) as links:
        yield links


def test_a_run_attaches_sends_heartbeats_and_releases(links: RemoteLinks) -> None:
    assert links.find(KEY).link is None
    attached = links.attach(KEY, JOB, FIRST)
    assert attached == links.find(KEY).link
    assert (attached.job, attached.watcher, attached.heartbeat_ms) == (JOB, FIRST, attached.attached_ms)
    assert links.heartbeat(KEY, FIRST)
    seen = links.find(KEY)
    assert seen.link is not None
    assert seen.link.version > attached.version
    assert attached.heartbeat_ms <= seen.link.heartbeat_ms <= seen.now_ms
    assert links.release(KEY, FIRST)
    assert not links.release(KEY, FIRST), "it was released by the request that is sent again"
    assert not links.heartbeat(KEY, FIRST)


def test_the_assets_of_a_job_are_known_without_a_run(api: Api, links: RemoteLinks) -> None:
    keys = '[["lake", "a/b"], ["orders"]]'
    job = api.cluster.dispatcher.submit(request(graph(dagster_assets=keys)))
    other = api.cluster.dispatcher.submit(request())
    assert api.get(f"{PATH}?job={job}") == {"links": [], "assets": [["lake", "a/b"], ["orders"]]}
    assert api.get(f"{PATH}?job={other}") == {"links": [], "assets": []}
    assert api.get(f"{PATH}?job={JOB}") == {"links": [], "assets": []}, "nobody knows it"
    assert links.of_job(job) == []


def test_assets_are_no_part_of_what_runs_and_are_keys() -> None:
    named = request(graph(dagster_assets='[["a"]]'), config={"dagster.assets": '[["a"]]'})
    assert digest_of(named) == digest_of(request())
    with pytest.raises(ConfigError, match=r'is no JSON such as \[\["lake", "orders"\]\]'):
        Configuration({"dagster.assets": "lake/orders"}).find(DAGSTER_ASSETS)


def test_a_link_is_of_one_run(links: RemoteLinks) -> None:
    assert links.take_over(KEY, RETRY, silent_ms=0) is None
    first = links.attach(KEY, JOB, FIRST)
    assert links.attach(KEY, NEXT_JOB, RETRY) == first
    assert links.take_over(KEY, RETRY, silent_ms=60_000) == first, "its heartbeat is not old enough"
    taken = links.take_over(KEY, RETRY, silent_ms=0)
    assert taken is not None
    assert (taken.job, taken.watcher) == (JOB, RETRY)
    assert links.take_over(KEY, RETRY, silent_ms=0) == taken, "sent again"
    assert not links.heartbeat(KEY, FIRST)
    assert links.heartbeat(KEY, RETRY)
    other = links.attach("dagster other", JOB, FIRST)
    assert {link.key for link in links.of_job(JOB)} == {KEY, other.key}
    assert links.of_job(NEXT_JOB) == []


def test_the_clock_of_who_keeps_the_links_counts(api: Api) -> None:
    clock, store = SetClock(), SqlMetadataStore(api.cluster.url)
    links = StampedLinks(store.links, clock)
    assert links.attach(KEY, JOB, FIRST).heartbeat_ms == 1_000
    clock.now_ms = 61_000
    assert links.find(KEY).now_ms == 61_000
    still = links.take_over(KEY, RETRY, silent_ms=60_001)
    assert still is not None
    assert still.watcher == FIRST
    clock.now_ms += 1
    taken = links.take_over(KEY, RETRY, silent_ms=60_001)
    assert taken is not None
    assert (taken.watcher, taken.heartbeat_ms) == (RETRY, 61_001)
    store.close()


def watch(**changed: Any) -> dict[str, Any]:
    watcher = {"root_run": "5f0c", "run": "5f0c", "step": "orders", "attempt": 0}
    return {"key": KEY, "watcher": watcher | changed}


@pytest.mark.parametrize(
    ("what", "body", "sentence"),
    [
        pytest.param("attach", {**watch(), "job": "x"}, "'x' is not a job id", id="no job id"),
        pytest.param("attach", watch(), "required field `job`", id="no job"),
        pytest.param("heartbeat", {**watch(), "key": ""}, "the key of a link has 1 to 255", id="no key"),
        pytest.param("heartbeat", watch(run="r" * 256), "the run of a link has 1 to 255", id="a long run"),
        pytest.param("release", watch(step="a\0b"), "the step of a link has 1 to 255", id="a NUL"),
        pytest.param("release", watch(attempt=2**31), "the attempt of a link is 0 to", id="a large attempt"),
        pytest.param("heartbeat", watch(attempt="1"), "Expected `int`", id="an attempt that is a text"),
        pytest.param("heartbeat", {**watch(), "at_ms": 5}, "unknown field `at_ms`", id="a time of its own"),
        pytest.param("take-over", {**watch(), "silent_ms": -1}, "silent_ms: -1 is not 0", id="a silence"),
    ],
)
def test_a_bad_request_is_named(api: Api, what: str, body: dict[str, Any], sentence: str) -> None:
    answer = api.http.post(f"{PATH}/{what}", json=body)
    assert answer.status_code == 400, answer.text
    assert sentence in answer.json()["errors"][0]


@pytest.mark.parametrize(
    "query",
    ["", "?key=", f"?key={'k' * 256}", "?key=a%00b", f"?key=k&job={JOB}"],
    ids=lambda query: query[:20],
)
def test_a_bad_key_is_named(api: Api, query: str) -> None:
    answer = api.http.get(PATH + query)
    assert answer.status_code == 400, answer.text
    assert "key" in answer.json()["errors"][0]
    assert "'7' is not a job id" in api.http.get(f"{PATH}?job=7").json()["errors"][0]


def test_while_the_database_is_away_the_answer_is_503(api: Api, links: RemoteLinks) -> None:
    file = api.cluster.root / "metadata.db"
    links.attach(KEY, JOB, FIRST)
    take_away(file)

    def answers() -> list[httpx.Response]:
        return [api.http.post(f"{PATH}/heartbeat", json=watch()), api.http.get(f"{PATH}?key=k")]

    eventually(lambda: [one.status_code for one in answers()] == [503, 503], "it is away", WAIT_S)
    assert all("the metadata database" in one.json()["errors"][0] for one in answers()), answers()[0].text
    assert api.http.post(f"{PATH}/heartbeat", json=watch(run="")).status_code == 400
    with RemoteLinks(RestClient(str(api.http.base_url)), 0.5) as impatient, pytest.raises(Unreachable):
        impatient.heartbeat(KEY, FIRST)
