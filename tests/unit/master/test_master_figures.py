"""The figures of the list of jobs: what is not known is null, never 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.eventually import WAIT_S, eventually
from tests.unit.master.served_cluster import Api
from unistream.base.config import WEB_DAGSTER_URL, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.cli.progress import line
from unistream.core.contract import JobView
from unistream.master.job.job_counters import summed
from unistream.master.job.live import LiveJob
from unistream.model import messages as msg
from unistream.model.job_figures import (
    SilentSource,
    VertexName,
    bytes_left,
    figures_of,
    rows_left,
    rows_read,
    vertex_figures,
)
from unistream.model.job_info import (
    LINE_CHARS_MAX,
    CheckpointInfo,
    ExceptionInfo,
    JobInfo,
    SubtaskInfo,
    VertexInfo,
)
from unistream.model.metric_names import (
    COMPILING,
    PENDING_BYTES,
    PENDING_BYTES_UNKNOWN,
    PENDING_RECORDS,
    PENDING_UNKNOWN,
    SECONDS_UNANSWERED,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.splits import Unread

IDLE = JobInfo(
    job=JobId("a" * 32), name="n", lineage=LineageId("l"), state="RUNNING", target="mini", submitted_ms=1
)


def subtask(vertex: str, source: str | None = None, **metrics: Any) -> SubtaskInfo:
    return SubtaskInfo(
        vertex=VertexId(vertex * 32),
        vertex_name=vertex,
        index=0,
        attempt=0,
        state="RUNNING",
        source=source,
        metrics=msg.TaskMetrics(**metrics),
    )


def checkpoint(number: int, state: str) -> CheckpointInfo:
    return CheckpointInfo(
        checkpoint_id=CheckpointId(number), kind=SnapshotKind.CHECKPOINT, state=state, triggered_ms=number
    )


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({}, {"rows_read": None, "rows_committed": None, "watermark_ms": None}, id="nothing yet"),
        pytest.param(
            {"subtasks": (subtask("a", "in", records_in=5), subtask("b", records_in=5, records_out=9))},
            {"rows_read": 5},
            id="rows that operators pass on are not read twice",
        ),
        pytest.param({"metrics": {"rows_committed": 0}}, {"rows_committed": 0}, id="counted, and none yet"),
        pytest.param(
            {"metrics": {f"in.{PENDING_RECORDS}": 7, f"in.{PENDING_UNKNOWN}": 1}},
            {"behind": None},
            id="a part of what is behind is not all of it",
        ),
        pytest.param({"metrics": {f"in.{PENDING_RECORDS}": 7}}, {"behind": 7}, id="behind"),
        pytest.param({"metrics": {COMPILING: 1}}, {"compiling": True, "behind": None}, id="compiling"),
        pytest.param(
            {
                "subtasks": (
                    subtask("a", busy_per_s=200, backpressured_per_s=800),
                    subtask("b", busy_per_s=1_012, backpressured_per_s=0),
                )
            },
            {"busiest": 1.0, "most_held_back": 0.8},
            id="the worst subtask counts",
        ),
        pytest.param(
            {
                "checkpoints": tuple(
                    checkpoint(n, state)
                    for n, state in (
                        (5, "failed"),
                        (4, "triggered"),
                        (3, "failed"),
                        (2, "completed"),
                        (1, "failed"),
                    )
                )
            },
            {"checkpoint": checkpoint(2, "completed"), "failed_since": 2},
            id="failed since the newest that is complete",
        ),
        pytest.param(
            {"checkpoints": (checkpoint(1, "failed"),)},
            {"checkpoint": None, "failed_since": 1},
            id="none is complete",
        ),
        pytest.param(
            {"writes": {OperatorUid("b"): ("file:///b",), OperatorUid("a"): ("file:///a", "file:///b")}},
            {"writes": ("file:///a", "file:///b")},
            id="tables, each once",
        ),
        pytest.param(
            {"reads": {OperatorUid("h"): ("file:///a", "kafka://b/t"), OperatorUid("s"): ("kafka://b/t",)}},
            {"reads": ("file:///a", "kafka://b/t"), "writes": ()},
            id="topics, each once",
        ),
        pytest.param(
            {"subtasks": (subtask("a"), subtask("b"), subtask("b"))},
            {
                "vertices": (
                    VertexName(id=VertexId("a" * 32), name="a"),
                    VertexName(id=VertexId("b" * 32), name="b"),
                )
            },
            id="vertices, each once",
        ),
        pytest.param(
            {
                "exceptions": (
                    ExceptionInfo(at_ms=2, kind="UserCodeError", message="b\nmore"),
                    ExceptionInfo(at_ms=1, kind="TaskLost", message="a"),
                )
            },
            {"failure": "UserCodeError: b"},
            id="the last failure, in one line",
        ),
        pytest.param(
            {"exceptions": (ExceptionInfo(at_ms=1, kind="E", message="m" * LINE_CHARS_MAX),)},
            {"failure": f"E: {'m' * (LINE_CHARS_MAX - 4)}…"},
            id="a line has an end",
        ),
        pytest.param(
            {
                "subtasks": (
                    subtask("a", "in", user={f"in.{SECONDS_UNANSWERED}": 30}),
                    subtask("a", "in", user={f"in.{SECONDS_UNANSWERED}": 12}),
                    subtask("a", "in", user={f"in.{SECONDS_UNANSWERED}": 0}),
                    subtask("b", "other", user={f"other.{SECONDS_UNANSWERED}": 0}),
                    subtask("c", "silent about it"),
                    subtask("d"),
                )
            },
            {"silent": (SilentSource(name="in", seconds=30, subtasks=2, of=3),)},
            id="a source that waits, by the subtask that waits longest",
        ),
        pytest.param(
            {
                "subtasks": (
                    msgspec.structs.replace(
                        subtask("a", "in", user={f"in.{SECONDS_UNANSWERED}": 30}), state="CANCELED"
                    ),
                )
            },
            {"silent": ()},
            id="what does not run waits for nothing",
        ),
    ],
)
def test_figures(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = figures_of(msgspec.structs.replace(IDLE, **changes))
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_jobs_that_have_ended_have_none(api: Api, submission: Callable[..., Any]) -> None:
    dispatcher = api.cluster.dispatcher
    runs, ended = dispatcher.submit(submission()), dispatcher.submit(submission())
    dispatcher.cancel(ended)
    assert dispatcher.wait(ended, WAIT_S)
    eventually(lambda: dispatcher.job(runs).state == "RUNNING", "it runs")
    shown = api.get("/unistream/overview")
    figures = {line["summary"]["job"]: line["figures"] for line in shown["jobs"]}
    assert figures[ended] is None
    assert figures[runs]["behind"] is None
    assert shown["workers"] == len(dispatcher.task_managers()) > 0
    assert (shown["slots"] > shown["free_slots"], shown["notes"]) == (True, [])


def test_a_job_that_runs_is_asked_once_for_its_line(
    api: Api, submission: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = api.cluster.dispatcher
    runs = dispatcher.submit(submission())
    eventually(lambda: dispatcher.job(runs).state == "RUNNING", "it runs")
    asked: list[JobId] = []
    view = LiveJob.view

    def counted(live: LiveJob) -> JobView:
        asked.append(live._setup.job)
        return view(live)

    monkeypatch.setattr(LiveJob, "view", counted)
    [line] = api.get("/unistream/overview")["jobs"]
    assert (asked, line["figures"]["vertices"] != []) == ([runs], True)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [({}, None), ({"web.dagster-url": "http://localhost:3000/"}, "http://localhost:3000")],
)
def test_the_address_of_dagster_is_that_of_the_configuration(
    config: dict[str, str], wanted: str | None, make_cluster: Callable[..., Any]
) -> None:
    api = Api(make_cluster(config=config))
    try:
        assert api.get("/unistream/overview")["dagster_url"] == wanted
    finally:
        api.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:3000",
        "javascript:alert(1)",
        "http://",
        "http://a:b@host",
        "https://host/?q=1",
        "http://h/a b",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address such as"):
        Configuration({"web.dagster-url": text}).find(WEB_DAGSTER_URL)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("https://Data.Example.com/dagster/", "https://data.example.com/dagster"),
        (" http://[::1]:3000 ", "http://[::1]:3000"),
        ("http://localhost:80/", "http://localhost"),
    ],
)
def test_an_address_is_without_a_slash_at_its_end(text: str, wanted: str) -> None:
    assert Configuration({"web.dagster-url": text}).find(WEB_DAGSTER_URL) == wanted


def running(source: str | None = None, **metrics: Any) -> SubtaskInfo:
    return subtask("a", source, **metrics)


SOURCE = VertexInfo(id=VertexId("a" * 32), name="a", bounded=True)
WRITER = VertexInfo(id=VertexId("a" * 32), name="a", gives_rows=False)
COMMITTER = VertexInfo(id=VertexId("a" * 32), name="a", takes_rows=False, gives_rows=False)
SENT = {"files.numRecordsSend": 90, "files.user.numRecordsSend": 7}


@pytest.mark.parametrize(
    ("vertex", "subtasks", "wanted"),
    [
        pytest.param(
            SOURCE,
            [running(records_in=5, records_out=4), running(records_in=1, records_out=1)],
            {"rows_in": 6, "rows_out": 5, "in_per_s": None},
            id="rows, and no rate yet",
        ),
        pytest.param(
            SOURCE,
            [running(records_in_per_s=5), running(records_in_per_s=0)],
            {"in_per_s": 5},
            id="rates add up",
        ),
        pytest.param(
            SOURCE,
            [running(records_in_per_s=5), running()],
            {"in_per_s": None},
            id="a part of the rate is not all of it",
        ),
        pytest.param(
            SOURCE,
            [replace(running(records_in_per_s=5), state="FINISHED"), running(records_in_per_s=2)],
            {"in_per_s": 2, "states": {"FINISHED": 1, "RUNNING": 1}},
            id="what has finished reads no more",
        ),
        pytest.param(
            WRITER,
            [running(records_in=100, records_out=2, user=SENT)],
            {"rows_in": 100, "rows_out": 90},
            id="committables are no rows: a sink counts what it is given",
        ),
        pytest.param(WRITER, [running(records_out=2)], {"rows_out": None}, id="a sink that does not count"),
        pytest.param(
            SOURCE, [running(records_out=2, user=SENT)], {"rows_out": 2}, id="others read rows, too"
        ),
        pytest.param(
            COMMITTER,
            [running(records_in=2, records_in_per_s=1)],
            {"rows_in": None, "rows_out": None, "in_per_s": None},
            id="a committer reads no rows",
        ),
        pytest.param(
            SOURCE,
            [
                running(busy_per_s=300, watermark=8),
                running(busy_per_s=100, backpressured_per_s=900, watermark=9),
            ],
            {"busy": 0.3, "held_back": 0.9, "watermark_ms": 8},
            id="the worst subtask counts",
        ),
        pytest.param(
            SOURCE, [running(watermark=8), running()], {"watermark_ms": None}, id="one has no watermark yet"
        ),
        pytest.param(
            SOURCE,
            [replace(running(busy_per_s=300, watermark=8), state="CANCELED")],
            {"busy": None, "held_back": None, "watermark_ms": None},
            id="nothing runs",
        ),
    ],
)
def test_the_figures_of_a_vertex(
    vertex: VertexInfo, subtasks: list[SubtaskInfo], wanted: dict[str, Any]
) -> None:
    info = replace(IDLE, vertices=(vertex,), subtasks=tuple(subtasks))
    [found] = vertex_figures(info)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("changes", "read", "left"),
    [
        pytest.param({}, None, None, id="nothing is known"),
        pytest.param({"vertices": (SOURCE,)}, 5, 7, id="bounded"),
        pytest.param({"vertices": (replace(SOURCE, bounded=False),)}, 5, None, id="it never ends"),
        pytest.param({"vertices": (SOURCE, COMMITTER)}, 5, 7, id="what has no source does not count"),
        pytest.param({"vertices": (SOURCE,), "state": "FINISHED"}, 5, None, id="it has ended"),
        pytest.param({"vertices": (SOURCE,), "incomplete": "rows"}, None, 7, id="its rows are not known"),
        pytest.param({"vertices": (SOURCE,), "metrics": {}}, 5, None, id="its source does not say it"),
        pytest.param(
            {"vertices": (SOURCE,), "subtasks": (running("in", records_in=5), running("in"))},
            None,
            7,
            id="one of its subtasks has not reported yet",
        ),
    ],
)
def test_what_was_read_and_what_is_left(changes: dict[str, Any], read: int | None, left: int | None) -> None:
    given = (
        {"subtasks": (running("in", records_in=5),), "metrics": {f"in.{PENDING_RECORDS}": 7}}
        if changes
        else {}
    )
    info = replace(IDLE, **{**given, **changes})
    assert (rows_read(info), rows_left(info)) == (read, left)
    assert bytes_left(info) is None


ROWS_KNOWN = {PENDING_UNKNOWN: 0, PENDING_RECORDS: 4}
BYTES_KNOWN = {PENDING_BYTES_UNKNOWN: 0, PENDING_BYTES: 9}
NO_ROWS = {PENDING_UNKNOWN: 1}


@pytest.mark.parametrize(
    ("unread", "user", "left"),
    [
        pytest.param(Unread(3, 30), {}, (None, None), id="its source says nothing"),
        pytest.param(Unread(3, 30), ROWS_KNOWN, (7, None), id="rows"),
        pytest.param(Unread(None, 30), ROWS_KNOWN, (None, None), id="not of all"),
        pytest.param(Unread(), {PENDING_UNKNOWN: 0, PENDING_RECORDS: 0}, (0, None), id="nothing is left"),
        pytest.param(Unread(None, 30), NO_ROWS | BYTES_KNOWN, (None, 39), id="bytes"),
        pytest.param(Unread(None, None), NO_ROWS | BYTES_KNOWN, (None, None), id="not all are found yet"),
        pytest.param(Unread(None, 30), NO_ROWS | {PENDING_BYTES_UNKNOWN: 1}, (None, None), id="a stream"),
        pytest.param(Unread(3, 30), ROWS_KNOWN | BYTES_KNOWN, (7, None), id="both: rows are shown"),
    ],
)
def test_what_no_reader_has_is_left_too(
    unread: Unread, user: dict[str, int], left: tuple[int | None, int | None]
) -> None:
    """And what is not known is no zero."""
    subtask = running("in", user={f"in.{name}": value for name, value in user.items()})
    metrics = summed((subtask,), {}, {subtask.vertex: unread})
    info = replace(IDLE, vertices=(SOURCE,), subtasks=(subtask,), metrics=metrics)
    assert (rows_left(info), bytes_left(info)) == left
    assert line(replace(info, state="RUNNING")).count("left") == (left != (None, None))
