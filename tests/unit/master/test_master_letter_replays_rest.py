"""Replays of dead letters over HTTP: one job each, whatever is asked twice, and by whom."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from tests.eventually import eventually
from tests.unit.dead_letters.test_clustered import letter, pipeline
from tests.unit.master.conftest import graph, request
from tests.unit.master.served_cluster import Api
from unistream.base.ids import JobId, OperatorUid, job_of_request
from unistream.dead_letters.ledger import Ledger
from unistream.model.letter_replays import replay_request
from unistream.port.dead_letters import LETTER_SCHEMA


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of two letters."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    (tmp_path / "dead").mkdir()
    letters = pa.Table.from_pylist([letter(1), letter(2)], LETTER_SCHEMA)
    pq.write_table(letters, tmp_path / "dead" / "part-0.parquet")
    return f"file://{tmp_path / 'dead'}"


def submitted(api: Api, table: str, made_of: bytes) -> JobId:
    writes = {OperatorUid("fares-dead-letters"): (table,), OperatorUid("topic"): ("kafka://b:1/dead",)}
    return JobId(
        api.cluster.dispatcher.submit(request(structs.replace(graph(), writes=writes), pipeline=made_of))
    )


@pytest.fixture
def job(api: Api, table: str, tmp_path: Path) -> JobId:
    return submitted(api, table, pipeline(tmp_path).packed_pipeline("fares"))


def ask(api: Api, job: str, table: str, **more: Any) -> tuple[int, Any]:
    answer = api.http.post(f"/unistream/jobs/{job}/dead-letters/replays", json={"table": table, **more})
    return answer.status_code, answer.json()


def outcome(api: Api, job: str, trigger: str) -> tuple[int, Any]:
    """As soon as there is a job of it, or an error."""
    found: list[tuple[int, Any]] = []

    def is_there() -> bool:
        answer = api.http.get(f"/unistream/jobs/{job}/dead-letters/replays/{trigger}")
        found.append((answer.status_code, answer.json()))
        return answer.status_code != 200 or answer.json()["operation"] is not None

    eventually(is_there, f"replay {trigger} has begun")
    return found[-1]


def test_one_replay_is_one_job_for_every_leader_and_every_page(api: Api, job: JobId, table: str) -> None:
    trigger, other = uuid.uuid4().hex, uuid.uuid4().hex
    assert ask(api, job, table, triggerId=trigger) == (202, {"request-id": trigger})
    assert ask(api, job, table, triggerId=trigger) == (202, {"request-id": trigger})
    status, found = outcome(api, job, trigger)
    shown = found["operation"]
    of_replay = job_of_request(replay_request(trigger, api.cluster.dispatcher.cluster, 0))
    assert (status, shown["job"], shown["goes_on"]) == (200, of_replay, False), found
    assert (found["status"]["id"], shown["failed_again"]) == ("IN_PROGRESS", None)
    assert api.cluster.dispatcher.job(of_replay).name == "replay of fares"
    assert api.cluster.dispatcher.has_pipeline(of_replay), "what fails again can be replayed from there"

    assert ask(api, job, table, triggerId=other)[0] == 202
    status, said = outcome(api, job, other)
    assert (status, f"are being replayed by job {of_replay}" in said["errors"][0]) == (500, True), said
    later = Api(api.cluster)  # it has not seen any of this
    try:
        assert ask(later, job, table, triggerId=trigger) == (202, {"request-id": trigger})
        _, again = outcome(later, job, trigger)
        assert (again["operation"]["job"], again["operation"]["unread"]) == (of_replay, None)
        assert outcome(later, job, other)[0] == 404
    finally:
        later.close()
    assert [order.id for order in Ledger(table.removeprefix("file://")).unfinished()] == [trigger]


def test_nothing_to_replay_is_over_at_once(api: Api, job: JobId, table: str) -> None:
    _, started = ask(api, job, table, error="KeyError")
    status, found = outcome(api, job, started["request-id"])
    shown = found["operation"]
    assert (status, found["status"]["id"], shown["job"], shown["letters"]) == (200, "COMPLETED", None, 0)


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({"table": "file:///etc"}, (404, "no sink of job")),
        ({"table": "kafka://b:1/dead"}, (400, "only its sink can read")),
        ({"error": "x" * 301}, (400, "at most 300 characters")),
        ({"triggerId": "x"}, (400, "is not a trigger id")),
        ({"letters": ["a"] * 10_001}, (400, "at most 10,000 letters")),
        ({"corrections": [{"letter": "a", "fare": 1}]}, (400, "the body does not fit")),
        ({"pipeline": "m:f"}, (400, "the body does not fit")),
    ],
    ids=["not its table", "of a topic", "a long word", "no trigger", "too many", "odd correction", "odd key"],
)
def test_what_is_wrong_is_refused_before_any_process_starts(
    body: dict[str, Any], refusal: tuple[int, str], api: Api, job: JobId, table: str
) -> None:
    status, said = ask(api, job, **{"table": table, **body})
    assert (status, refusal[1] in said["errors"][0]) == (refusal[0], True), said


def test_a_job_of_an_older_client_has_the_command(api: Api, table: str) -> None:
    job = submitted(api, table, b"")
    status, said = ask(api, job, table)
    assert (status, "`unistream dead-letters replay` replays letters" in said["errors"][0]) == (400, True)
    page = api.get(f"/unistream/jobs/{job}/dead-letters", params={"table": table})
    assert page["no_replay"] == said["errors"][0]


def test_a_pipeline_that_cannot_be_opened_harms_nobody(api: Api, table: str) -> None:
    job = submitted(api, table, b"no pickle")
    _, started = ask(api, job, table)
    status, said = outcome(api, job, started["request-id"])
    assert (status, "the pipeline's code cannot be opened" in said["errors"][0]) == (500, True), said
    assert Ledger(table.removeprefix("file://")).unfinished() == []


@pytest.fixture
def closed(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    api = Api(make_cluster(config={"web.dead-letters.enable": "false"}))
    yield api
    api.close()


def test_replays_can_be_turned_off(closed: Api, table: str) -> None:
    job = submitted(closed, table, b"never opened")
    status, said = ask(closed, job, table)
    assert (status, "web.dead-letters.enable" in said["errors"][0]) == (400, True)
