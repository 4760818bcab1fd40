"""Rows of dead letters over HTTP: of tables that the job writes, in a process that harms nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from msgspec import structs

from tests.unit.master.conftest import graph, request
from tests.unit.master.served_cluster import Api
from unistream.base.bounded_process import BoundedProcess
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, OperatorUid
from unistream.dead_letters.ledger import Ledger
from unistream.dead_letters.reading_process import answered
from unistream.model.letter_pages import LetterLimits, LettersPage, LettersQuestion
from unistream.port.dead_letters import LETTER_SCHEMA
from unistream.rest.dead_letters import ANSWER_SLACK_BYTES, AT_ONCE_MAX, MODULE, PLACES, DeadLettersApi

FIRST = datetime(2026, 11, 1, 12, 0, 0, 7_000, UTC)


def letter(number: int, **more: Any) -> dict[str, Any]:
    return {
        "letter": f"{number:032x}",
        "row": f'{{"n":{number},"text":"<script>alert(1)</script>"}}',
        "row_ipc": b"",
        "error_type": "ValueError",
        "error": "no fare",
        "error_at": "job.py:7",
        "operator_uid": "fares",
        "operator": "parse",
        "attempt": 1,
        "time": FIRST.replace(second=number),
    } | more


@pytest.fixture
def letters(tmp_path: Path) -> str:
    """A table of three letters, one of another operator; the first was replayed."""
    uri = str(tmp_path / "dead letters")
    rows = [letter(1), letter(2), letter(3, operator="count", operator_uid="counts", error_type="KeyError")]
    write_deltalake(uri, pa.Table.from_pylist(rows, LETTER_SCHEMA))
    done = Path(Ledger(uri).replayed_folder)
    done.mkdir(parents=True)
    pq.write_table(pa.table({"letter": [f"{1:032x}"], "replay": ["r"]}), done / "part-0.parquet")
    return uri


@pytest.fixture
def job(api: Api, letters: str) -> JobId:
    writes = {
        OperatorUid("dead"): (f"file://{letters}",),
        OperatorUid("topic"): ("kafka://broker:9092/dead",),
        OperatorUid("gone"): (f"file://{letters}-gone",),
    }
    return api.cluster.dispatcher.submit(request(structs.replace(graph(), writes=writes)))


def asked(api: Api, job: str, **query: str) -> tuple[int, Any]:
    answer = api.http.get(f"/unistream/jobs/{job}/dead-letters", params=query)
    return answer.status_code, answer.json()


def test_letters_are_counted_and_shown_newest_first(api: Api, job: JobId, letters: str) -> None:
    status, found = asked(api, job, table=f"file://{letters}")
    assert status == 200, found
    groups = [
        (one["operator_uid"], one["error_type"], one["letters"], one["replayed"]) for one in found["groups"]
    ]
    assert groups == [("counts", "KeyError", 1, 0), ("fares", "ValueError", 2, 1)]
    assert [int(one["letter"], 16) for one in found["letters"]] == [3, 2, 1]
    assert [one["replayed"] for one in found["letters"]] == [False, False, True]
    assert (found["more"], found["are_records"]) == (0, False)
    last = found["letters"][1]
    assert last["row"] == '{"n":2,"text":"<script>alert(1)</script>"}'
    assert (last["error"], last["error_at"], last["is_cut"]) == ("no fare", "job.py:7", False)
    assert last["time_ms"] == round(FIRST.replace(second=2).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"operator": "fares"}, [2, 1]),
        ({"operator": "parse", "error": "ValueError"}, [2, 1]),
        ({"error": "KeyError"}, [3]),
        ({"operator": "fares", "error": "KeyError"}, []),
    ],
)
def test_some_are_chosen_and_all_are_counted(
    query: dict[str, str], wanted: list[int], api: Api, job: JobId, letters: str
) -> None:
    _, found = asked(api, job, table=f"file://{letters}", **query)
    assert [int(one["letter"], 16) for one in found["letters"]] == wanted
    assert sum(one["letters"] for one in found["groups"]) == 3


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ("", (404, "no sink of job")),
        ("file:///etc", (404, "no sink of job")),
        ("file://{letters}/../x", (404, "no sink of job")),
        ("{letters}", (404, "no sink of job")),
        ("kafka://broker:9092/dead", (400, "only its sink can read")),
        ("file://{letters}-gone", (400, "there is no table or folder at")),
    ],
)
def test_no_table_is_read_that_no_sink_names(
    table: str, refusal: tuple[int, str], api: Api, job: JobId, letters: str
) -> None:
    status, said = asked(api, job, table=table.format(letters=letters))
    assert (status, refusal[1] in said["errors"][0]) == (refusal[0], True), said


def test_a_job_that_is_not_there_has_no_letters(api: Api) -> None:
    assert asked(api, "f" * 32, table="x")[0] == 404
    assert asked(api, "../x", table="x")[0] == 404


def test_odd_words_are_refused(api: Api, job: JobId, letters: str) -> None:
    for query in ({"operator": "x" * 301}, {"error": "a\x00b"}):
        status, said = asked(api, job, table=f"file://{letters}", **query)
        assert (status, "at most 300 characters" in said["errors"][0]) == (400, True), said


def test_many_at_once_are_refused(api: Api, job: JobId, letters: str) -> None:
    with ExitStack() as busy:
        for _ in range(AT_ONCE_MAX):
            busy.enter_context(PLACES)
        assert asked(api, job, table=f"file://{letters}")[0] == 503
    assert asked(api, job, table=f"file://{letters}")[0] == 200


@pytest.fixture
def closed(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    api = Api(make_cluster(config={"web.dead-letters.enable": "false"}))
    yield api
    api.close()


def test_rows_can_be_turned_off(closed: Api) -> None:
    job = closed.cluster.dispatcher.submit(request())
    status, said = asked(closed, job, table="file:///x")
    assert (status, "web.dead-letters.enable" in said["errors"][0]) == (400, True)


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "shown", "more"),
    [
        ({"letters": 1}, 1, 2),
        ({"text_characters": 9}, 3, 0),
        ({"answer_bytes": 120}, 2, 1),
        ({"answer_bytes": 1}, 0, 3),
    ],
)
def test_what_is_too_much_is_left_out_and_said(
    limits: dict[str, int], shown: int, more: int, letters: str
) -> None:
    found = page_at(letters, LetterLimits(**limits))
    assert (len(found.letters), found.more) == (shown, more)
    assert all(one.is_cut is (found.limits.text_characters < 20) for one in found.letters)
    assert sum(one.letters for one in found.groups) == 3


def page_at(uri: str, limits: LetterLimits) -> LettersPage:
    question = LettersQuestion(table=uri, operator="", error_type="", limits=limits)
    return answered(question)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (LetterLimits(memory_bytes=1), "of memory"),  # where it gives out is the machine's choice
        (LetterLimits(seconds=0), "takes more than 0 s"),
        (LetterLimits(answer_bytes=-(2**20) + 8), "ended without an answer"),
    ],
    ids=["memory", "time", "answer"],
)
def test_a_table_that_takes_too_much_is_given_up(limits: LetterLimits, why: str, letters: str) -> None:
    api = DeadLettersApi(dispatcher=None, limits=limits)  # type: ignore[arg-type]  # it asks for nothing here
    question = LettersQuestion(table=letters, operator="", error_type="", limits=limits)
    most = limits.answer_bytes * 2 + ANSWER_SLACK_BYTES
    process = BoundedProcess(MODULE, seconds=limits.seconds, answer_bytes=most)
    with pytest.raises(ConfigError, match=why):
        api._understood(process.ask(lambda: msgspec.json.encode(question)))
    assert not process.is_running
