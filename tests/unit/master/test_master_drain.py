"""A worker is drained over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.model import messages as msg


@pytest.fixture
def running(make_cluster: Callable[..., Any], submission: Callable[..., Any]) -> Iterator[tuple[Api, str]]:
    """A cluster whose job runs, and one of its workers."""
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    job = api.cluster.dispatcher.submit(submission())
    eventually(lambda: api.cluster.dispatcher.job(job).state == "RUNNING", "it runs")
    yield api, api.cluster.workers.registered[0]
    api.close()


def workers(api: Api) -> list[str]:
    return [one["worker"]["id"] for one in api.get("/unistream/workers")["workers"]]


def test_a_worker_is_drained(running: tuple[Api, str]) -> None:
    api, worker = running
    path = f"/unistream/workers/{worker}/drain"
    assert api.http.get(path).status_code == 404, "nobody drains it yet"
    begun = api.http.post(path, json={})
    assert begun.status_code == 202
    assert begun.json()["phase"] == "DRAINING"
    assert len(begun.json()["jobs"]) == 1
    assert api.http.post(path, json={"wait": True}).status_code in (202, 404), "it may have ended"
    eventually(lambda: api.http.get(path).json()["phase"] == "DRAINED", "its tasks move")
    assert worker not in workers(api)
    assert api.cluster.workers.await_message(msg.DrainTaskManager).task_manager == worker


def test_a_worker_that_leaves_says_so_with_its_heartbeat(running: tuple[Api, str]) -> None:
    api, worker = running
    beat = msg.Heartbeat(task_manager=worker, leaves_in_ms=300_000)  # type: ignore[arg-type]
    assert isinstance(api.cluster.workers.call_master(beat), msg.Ack)
    eventually(lambda: worker not in workers(api), "its tasks move")


@pytest.mark.parametrize(
    ("worker", "body", "status", "says"),
    [
        pytest.param("tm-unknown", {}, 404, "there is no worker tm-unknown", id="no such worker"),
        pytest.param(None, {"wait": "yes"}, 400, "Expected `bool`", id="not a truth value"),
        pytest.param(None, {"weit": True}, 400, "unknown field `weit`", id="another field"),
        pytest.param("no%20id", {}, 400, "", id="not an id"),
    ],
)
def test_what_is_refused(
    running: tuple[Api, str], worker: str | None, body: dict[str, Any], status: int, says: str
) -> None:
    api, known = running
    answer = api.http.post(f"/unistream/workers/{worker or known}/drain", json=body)
    assert answer.status_code == status, answer.text
    assert says in answer.text
    assert not any(one["worker"]["draining"] for one in api.get("/unistream/workers")["workers"])
