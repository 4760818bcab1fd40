"""What functions log in workers of their own is shown where their job is looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.ids import JobId
from unistream.cli.main import main
from unistream.client.remote.rest_client import RestClient
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

ROWS = 40


def noisy(env: us.Environment) -> None:
    """Says something of each tenth row, on every subtask, and of its end."""

    def said(row: dict[str, Any]) -> dict[str, Any]:
        import logging

        if row["id"] % 10 == 0:
            logging.getLogger("orders").warning("row %s", row["id"])
        logging.getLogger("orders").debug("too detailed")
        return row

    rows = env.from_collection([{"id": number} for number in range(ROWS)]).uid("rows")
    rows.map(said, returns=rows.schema).uid("said").sink_to(us.BlackholeSink()).uid("sink")


@pytest.fixture
def job(session: RestClient) -> JobId:
    env = us.Environment({**STREAMING, "parallelism.default": "2"})
    noisy(env)
    graph, code = env.job_graph("orders")
    with session.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})) as client:
        assert client.wait(WAIT_S).is_success
        return client.job_id


@pytest.fixture
def shown(job: JobId, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def shown(*words: str) -> str:
        capsys.readouterr()
        assert main(["logs", *words]) == 0
        return capsys.readouterr().out

    return shown


def test_lines_of_all_subtasks_are_shown_once_to_people_and_to_programs(
    job: JobId, session: RestClient, shown: Callable[..., str]
) -> None:
    lines = session.client(job).log()
    assert sorted(line.message for line in lines) == [f"row {number}" for number in range(0, ROWS, 10)]
    assert {(line.level, line.logger) for line in lines} == {("WARNING", "orders")}
    assert all("said" in line.task for line in lines)
    assert list(session.client(job).log(lines[-1].seq)) == []
    text = shown(str(job)).splitlines()
    assert len(text) == len(lines)
    assert all("WARNING" in line and "orders: row " in line for line in text)
    values = [json.loads(line) for line in shown("orders", "--json", "--follow").splitlines()]
    assert [value["seq"] for value in values] == [line.seq for line in lines]


def test_a_job_that_nobody_knows_has_no_log(session: RestClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "f" * 32]) == 2
    assert "there is no job" in capsys.readouterr().err
