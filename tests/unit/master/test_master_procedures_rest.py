"""Backfills and upgrades over REST: their commands report, without waiting for an answer."""

from __future__ import annotations

import threading

import httpx
import msgspec
import pytest
from msgspec import structs

from tests.eventually import eventually
from tests.metadata_rows import change
from tests.unit.master.served_cluster import Api
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import JobId
from unistream.client.remote.procedures import ProcedureReporter
from unistream.client.remote.rest_client import RestClient
from unistream.metadata import tables as t
from unistream.model.procedures import TEXT_CHARS_MAX, ProcedureKind, ProcedureReport, ProcedureState

PATH = "/v1/unistream/procedures"
JOB = JobId("a" * 32)
REPORT = ProcedureReport(
    id="upgrade 1",
    kind=ProcedureKind.UPGRADE,
    job_name="orders",
    job=JOB,
    steps=("stop", "start"),
    done=0,
    state=ProcedureState.RUNS,
    goes_on="unistream upgrade orders",
)
LONG_S = 3_600.0
JSON = {"content-type": "application/json"}


def reporter(api: Api, report: ProcedureReport = REPORT, every_s: float = LONG_S) -> ProcedureReporter:
    url = str(api.http.base_url)
    return ProcedureReporter(lambda: RestClient(url), report, refusals=(ConfigError,), every_s=every_s)


def newest(api: Api) -> tuple[object, ...] | None:
    found = api.get(PATH)["procedures"]
    if not found:
        return None
    report = found[0]["report"]
    return report["state"], report["done"], report["text"], report["goes_on"]


def test_each_step_is_seen_and_the_end_is_the_last(api: Api) -> None:
    with reporter(api) as reports:
        eventually(lambda: newest(api) == ("RUNS", 0, "", REPORT.goes_on), "its begin is seen")
        reports.done(1, "stopped")
        eventually(lambda: newest(api) == ("RUNS", 1, "stopped", REPORT.goes_on), "a step is seen")
        reports.ended(ProcedureState.DONE, "job b runs it")
    assert newest(api) == ("DONE", 2, "job b runs it", "")
    shown = api.get(f"{PATH}?job={JOB}")
    assert shown["procedures"][0]["begun_ms"] <= shown["procedures"][0]["reported_ms"] <= shown["now_ms"]
    assert api.get(f"{PATH}?job={'b' * 32}")["procedures"] == []


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ConfigError("it does not fit"), ("GIVEN_UP", 1, "it does not fit", "")),
        (Unreachable("nobody answers"), ("INTERRUPTED", 1, "nobody answers", REPORT.goes_on)),
        (KeyboardInterrupt(), ("INTERRUPTED", 1, "KeyboardInterrupt", REPORT.goes_on)),
    ],
    ids=["refused", "the same goes on", "Ctrl-C"],
)
def test_an_error_is_its_end_or_an_interruption(
    api: Api, error: BaseException, seen: tuple[object, ...]
) -> None:
    def fails() -> None:
        with reporter(api) as reports:
            reports.done(1)
            raise error

    with pytest.raises(type(error)):
        fails()
    assert newest(api) == seen


def test_it_is_told_again_that_the_process_lives(api: Api) -> None:
    with reporter(api, every_s=0.01):
        eventually(lambda: newest(api) is not None, "its begin is seen")
        before = api.get(PATH)["procedures"][0]["reported_ms"]
        eventually(lambda: api.get(PATH)["procedures"][0]["reported_ms"] > before, "a later report")


def test_a_cluster_that_does_not_answer_is_in_nobodys_way(api: Api) -> None:
    tried = threading.Event()

    def connect() -> RestClient:
        if not tried.is_set():
            tried.set()
            raise Unreachable("it is away")
        return RestClient(str(api.http.base_url))

    with ProcedureReporter(connect, REPORT, every_s=LONG_S) as reports:
        eventually(tried.is_set, "the first report was tried")
        reports.done(1, "stopped")
    assert newest(api) == ("GIVEN_UP", 1, "it was given up", "")


def test_long_texts_are_cut_off(api: Api) -> None:
    with reporter(api) as reports:
        reports.ended(ProcedureState.GIVEN_UP, "x" * (TEXT_CHARS_MAX + 1) + "\0")
    assert newest(api) == ("GIVEN_UP", 0, "x" * TEXT_CHARS_MAX, "")


def test_what_this_version_cannot_read_is_said_and_the_others_are_listed(api: Api) -> None:
    for name in ("upgrade 1", "later"):
        body = msgspec.json.encode(structs.replace(REPORT, id=name))
        assert api.http.put(PATH, content=body, headers=JSON).status_code == 200
    change(api.cluster.url, t.procedures, "later", report=body.decode().replace("upgrade", "downgrade", 1))
    for path in (PATH, f"{PATH}?job={JOB}"):
        shown = api.get(path)
        assert [one["report"]["id"] for one in shown["procedures"]] == ["upgrade 1"]
        [note] = shown["notes"]
        assert note.startswith("1 backfill or upgrade is not listed: 'later' was reported by another version")
    assert api.get(f"{PATH}?job={'b' * 32}")["notes"] == []


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"{", "truncated"), (b"{}", "missing required field"), (b'{"id":"","x":1}', "unknown field")],
)
def test_a_bad_report_is_named(api: Api, body: bytes, why: str) -> None:
    answer: httpx.Response = api.http.put(PATH, content=body, headers=JSON)
    assert (answer.status_code, newest(api)) == (400, None)
    assert why in answer.text
