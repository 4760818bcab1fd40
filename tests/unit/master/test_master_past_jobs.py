"""The history over HTTP: found by name, state, time and table, read page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.database_file import give_back, take_away
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.ids import ClusterId, JobId, LeaderEpoch, LineageId
from unistream.metadata.store import SqlMetadataStore
from unistream.port.metadata import ClusterRecord, JobRecord

GONE, ALIVE = ClusterId("b" * 32), ClusterId("c" * 32)
PATH = "/unistream/history"


def job_id(number: int) -> JobId:
    return JobId(f"{number:032x}")


def record(number: int, **changes: Any) -> JobRecord:
    """Submitted at ten times its number, ended five later."""
    given: dict[str, Any] = {
        "job": job_id(number),
        "name": f"job {number}",
        "lineage": LineageId("l"),
        "state": "FINISHED",
        "target": "local",
        "submitted_ms": 10 * number,
        "ended_ms": 10 * number + 5,
        "changed_ms": 10 * number + 5,
        "cluster": GONE,
    }
    return JobRecord(**{**given, **changes})


def writes(*uris: str, name: str = "n") -> str:
    graph = {"name": name, "vertices": [], "edges": [], "writes": {"out": uris}}
    return msgspec.json.encode(graph).decode()


ROWS = (
    record(1, name="Flights", graph_json=writes("file:///lake/flights")),
    record(
        2, name="orders <b>", state="FAILED", graph_json=writes("kafka://k/orders", "file:///Lake/orders")
    ),
    record(3, state="CANCELED", graph_json=writes(name="file:///lake/flights")),
    record(4, state="RUNNING", ended_ms=None, graph_json="no JSON"),
    record(5, state="RUNNING", ended_ms=None, cluster=ALIVE),
    record(6, submitted_ms=30, ended_ms=70, name="100%_of"),
)


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    """Six jobs of other clusters; one of those clusters runs."""
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    store = api.cluster.store()
    for row in ROWS:
        store.act_for(row.cluster)
        store.add_job(row, LeaderEpoch(1))
    now_ms = api.cluster.clock.wall_ms()
    store.record_cluster(
        ClusterRecord(
            cluster=ALIVE, target="", goes_on="", process="p", mark="", started_ms=1, heartbeat_ms=now_ms
        )
    )
    store.close()
    yield api
    api.close()


def found(api: Api, **params: Any) -> list[int]:
    return [int(job["job"], 16) for job in api.get(PATH, params=params)["jobs"]]


FOUND: tuple[tuple[str, dict[str, Any], list[int]], ...] = (
    ("newest first, and nothing that runs elsewhere", {}, [4, 6, 3, 2, 1]),
    ("by name, whatever its case", {"name": "fLIGHTS"}, [1]),
    ("by any text", {"name": "<b>"}, [2]),
    ("no letter has a meaning of its own", {"name": "0%_"}, [6]),
    ("by id", {"name": "00000000000000000000000000000002"}, [2]),
    ("by states", {"state": "failed,CANCELED"}, [3, 2]),
    ("a job without an end whose cluster has ended", {"state": "SUSPENDED"}, [4]),
    ("by table, whatever its case, and by no other text", {"table": "lake/"}, [2, 1]),
    ("all of it", {"table": "orders", "name": "flights"}, []),
    ("it was there between two others", {"since": 26, "until": 29}, []),
    ("it was there at that time", {"since": 25, "until": 30}, [6, 3, 2]),
    ("before a time", {"until": 20}, [2, 1]),
)


def test_what_is_found(api: Api) -> None:
    assert {why: found(api, **params) for why, params, _ in FOUND} == {
        why: wanted for why, _, wanted in FOUND
    }


def test_pages_have_every_job_once(api: Api) -> None:
    pages, cursor = [], ""
    while cursor is not None:
        page = api.get(PATH, params={"limit": 2, "cursor": cursor})
        pages.append([int(job["job"], 16) for job in page["jobs"]])
        cursor = page["next"]
    assert pages == [[4, 6], [3, 2], [1]]


def test_a_page_of_hits_that_are_none_leads_on(make_cluster: Callable[..., Any]) -> None:
    """Its text is in the graphs of many jobs, and in the table of the oldest one only."""
    api = Api(make_cluster())
    store = SqlMetadataStore(api.cluster.url)
    for number in range(1, 14):
        text = writes("file:///t") if number == 1 else writes(name="file:///t")
        store.act_for(GONE)
        store.add_job(record(number, graph_json=text), LeaderEpoch(1))
    store.close()
    try:
        first = api.get(PATH, params={"table": "///t", "limit": 2})
        assert (first["jobs"], first["next"]) == ([], f"40-{job_id(4)}")
        (last,) = api.get(PATH, params={"table": "///t", "limit": 2, "cursor": first["next"]})["jobs"]
        assert last["writes"] == {"out": ["file:///t"]}
    finally:
        api.close()


def test_a_job_of_this_cluster_is_there_when_it_has_ended(api: Api, submission: Callable[..., Any]) -> None:
    dispatcher = api.cluster.dispatcher
    job = dispatcher.submit(submission())
    eventually(lambda: dispatcher.job(job).state == "RUNNING", "it runs")
    assert found(api, name="numbers") == []
    dispatcher.cancel(job)
    assert dispatcher.wait(job, WAIT_S)
    eventually(lambda: found(api, name="numbers", state="CANCELED") == [int(job, 16)], "it is in the history")


REFUSED: tuple[dict[str, str], ...] = (
    {"state": "RUNNING"},
    {"limit": "0"},
    {"limit": "201"},
    {"since": "-1"},
    {"cursor": "1"},
    {"cursor": "1-" + "g" * 32},
    {"name": "a\x00"},
    {"table": "x" * 301},
)


def test_what_is_refused(api: Api) -> None:
    assert [params for params in REFUSED if api.http.get(PATH, params=params).status_code != 400] == []


def test_while_the_database_is_away_it_says_so(api: Api) -> None:
    file = api.cluster.root / "metadata.db"
    moved = take_away(file)
    try:
        assert api.http.get(PATH).status_code == 503
    finally:
        give_back(file, moved)
