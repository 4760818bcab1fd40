"""What the event stream sends to a client, by what it has."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.master.event_reader import Pictures, changed
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, ClusterId, JobId, LineageId, VertexId
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo, SnapshotStatus
from unistream.model.job_info import JobInfo, JobSummary, SubtaskInfo
from unistream.model.messages import TaskMetrics
from unistream.model.snapshot_kind import SnapshotKind
from unistream.rest import event_log
from unistream.rest.event_log import PictureRefusal, TopicLog, compared, difference
from unistream.rest.figures import JobInList, Overview

JOB = "a" * 32
STREAM = "0123456789abcdef"
GONE = PictureRefusal(404, ("there is no such job",))


def overview(now_ms: int = 1, workers: int = 1, **restarts: int) -> Overview:
    """Jobs by id, with their restarts."""
    jobs = [
        JobInList(
            summary=JobSummary(job=JobId(name), name=name, state="RUNNING", submitted_ms=1, restarts=number),
            figures=None,
        )
        for name, number in restarts.items()
    ]
    cluster = ClusterId("c")
    return Overview(
        now_ms=now_ms,
        cluster=cluster,
        version="1",
        workers=workers,
        slots=2,
        free_slots=1,
        jobs=jobs,
        notes=[],
    )


def info(*rows: int, name: str = "n") -> JobInfo:
    subtasks = tuple(
        SubtaskInfo(
            vertex=VertexId("v"),
            vertex_name="v",
            index=index,
            attempt=0,
            state="RUNNING",
            metrics=TaskMetrics(records_in=number),
        )
        for index, number in enumerate(rows)
    )
    return JobInfo(
        job=JobId(JOB),
        name=name,
        lineage=LineageId("l"),
        state="RUNNING",
        target="mini",
        submitted_ms=1,
        subtasks=subtasks,
    )


def snapshots(*durations: int) -> CheckpointsInfo:
    """The newest has the highest id."""
    latest = tuple(
        CheckpointFigures(
            checkpoint_id=CheckpointId(len(durations) - at),
            kind=SnapshotKind.CHECKPOINT,
            status=SnapshotStatus.COMPLETED,
            timestamp_ms=1,
            duration_ms=duration_ms,
        )
        for at, duration_ms in enumerate(durations)
    )
    return CheckpointsInfo(completed=len(latest), latest=latest)


@pytest.mark.parametrize(
    ("before", "after", "fields", "rows", "order"),
    [
        pytest.param(overview(a=0), overview(a=1, b=0), {}, ["a", "b"], ["a", "b"], id="a job is new"),
        pytest.param(overview(a=0, b=0), overview(a=0, b=1), {}, ["b"], None, id="one job has changed"),
        pytest.param(overview(a=0, b=0), overview(b=0), {}, [], ["b"], id="a job is gone"),
        pytest.param(overview(a=0, b=0), overview(b=0, a=0), {}, [], ["b", "a"], id="another order"),
        pytest.param(
            overview(1, 1, a=0), overview(9, 2, a=0), {"now_ms": 9, "workers": 2}, [], None, id="a field"
        ),
        pytest.param(info(1, 2), info(1, 3), {}, ["v 1"], None, id="one subtask has changed"),
        pytest.param(info(1, 2), info(1), {}, [], ["v 0"], id="fewer subtasks"),
        pytest.param(info(1), info(1, name="m"), {"name": "m"}, [], None, id="a field of the job"),
        pytest.param(snapshots(5), snapshots(7, 5), {"completed": 2}, ["2"], ["2", "1"], id="a new snapshot"),
    ],
)
def test_a_change_has_what_is_new(
    before: Any, after: Any, fields: dict[str, Any], rows: list[str], order: list[str] | None
) -> None:
    found = difference(before, after)
    assert found is not None
    keys = [event_log._ROWS[type(after)].key(row) for row in found.rows]
    assert (found.fields, keys, found.order) == (fields, rows, order)


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        pytest.param(None, overview(), True, id="the first picture"),
        pytest.param(overview(1), overview(2), False, id="only time has passed"),
        pytest.param(GONE, GONE, False, id="still gone"),
        pytest.param(GONE, info(1), True, id="it is here again"),
        pytest.param(info(1), GONE, True, id="it is gone"),
        pytest.param(None, GONE, True, id="it was never here"),
    ],
)
def test_what_is_worth_an_event(before: Any, after: Any, is_new: bool) -> None:
    assert compared(before, after).is_new is is_new


def plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=2, max_size=6))
def test_changes_lead_to_the_picture(steps: list[list[int]]) -> None:
    """Whatever is new, has changed, is gone or has moved."""
    names = "cabd"
    pictures = [overview(a=9)]
    for at, step in enumerate(steps):
        jobs = {names[(at + number) % 4]: value for number, value in enumerate(step)}
        pictures.append(overview(at, len(step), **jobs))
    shown = plain(pictures[0])
    for before, after in itertools.pairwise(pictures):
        found = difference(before, after)
        if found is not None:
            shown = changed("overview", shown, plain(found))
        assert {**shown, "now_ms": after.now_ms} == plain(after)


def filled(*pictures: Any) -> TopicLog:
    """Versions 10, 20, …"""
    kept = TopicLog(f"job/{JOB}")
    for number, picture in enumerate(pictures, 1):
        kept.add(compared(kept.picture, picture), 10 * number, number)
    return kept


@pytest.mark.parametrize(
    ("pictures", "has", "gets"),
    [
        pytest.param([], None, [], id="nothing is known yet"),
        pytest.param([info(1)], None, [("job", 10)], id="who has nothing gets the whole"),
        pytest.param([info(1)], 10, [], id="who has it gets nothing"),
        pytest.param([info(1)], 15, [], id="who has it with something newer of another topic"),
        pytest.param([info(1)], 9, [("job", 10)], id="who has only older things"),
        pytest.param([info(1), info(2), info(3)], 10, [("change", 20), ("change", 30)], id="all changes"),
        pytest.param([info(1), info(2), info(3)], 20, [("change", 30)], id="the last change"),
        pytest.param([info(1), info(2), info(3)], 25, [("change", 30)], id="between two versions"),
        pytest.param([info(1), info(2), info(3)], 5, [("job", 30)], id="from before the first picture"),
        pytest.param([info(n) for n in range(30)], 10, [("job", 300)], id="too far behind"),
        pytest.param([info(1), GONE], 10, [("refused", 20)], id="it is gone"),
        pytest.param([info(1), GONE, info(1)], 10, [("job", 30)], id="it is here again"),
        pytest.param([GONE], None, [("refused", 10)], id="it was never here"),
    ],
)
def test_a_client_gets_what_it_has_not(pictures: list[Any], has: int | None, gets: list[Any]) -> None:
    found = [json.loads(event) for event in filled(*pictures).since(has)]
    assert [(event["event"], event["version"]) for event in found] == gets


def test_who_follows_and_who_comes_late_have_the_same() -> None:
    steps = [info(1, 1), info(1, 2), info(2, 2, 2), info(2), GONE, info(5)]
    kept, follows, has = TopicLog(f"job/{JOB}"), Pictures(), None
    for version, step in enumerate(steps, 1):
        kept.add(compared(kept.picture, step), version, version)
        late = Pictures()
        for client, events in ((follows, kept.since(has)), (late, kept.since(None))):
            for event in events:
                client.take(json.loads(event))
        has = version
        assert follows.whole == late.whole == ({} if step is GONE else {kept.topic: plain(step)})


def test_a_log_is_bounded_in_bytes() -> None:
    long = [replace(info(1), name=character * (event_log.CHANGES_BYTES_MAX // 3)) for character in "abcdef"]
    kept = filled(*long)
    assert [json.loads(event)["event"] for event in kept.since(50)] == ["change"]
    assert [json.loads(event)["event"] for event in kept.since(20)] == ["job"]


TOPICS = ("overview", f"job/{JOB}")


@pytest.mark.parametrize(
    ("place", "version"),
    [
        pytest.param(event_log.place_of(STREAM, 7, TOPICS), 7, id="of this stream"),
        pytest.param(
            event_log.place_of(STREAM, 7, TOPICS[::-1]), 7, id="the order of topics does not matter"
        ),
        pytest.param(event_log.place_of("f" * 16, 7, TOPICS), None, id="of another leader"),
        pytest.param(event_log.place_of(STREAM, 7, TOPICS[:1]), None, id="of other topics"),
        pytest.param(None, None, id="none"),
        pytest.param("", None, id="an empty one"),
        pytest.param("12", None, id="of another server"),
        pytest.param(f"{STREAM}-{'9' * 400}-{STREAM}", None, id="a number that is too large"),
        pytest.param(f"{STREAM}-٣-{STREAM}", None, id="digits of another script"),
    ],
)
def test_a_place_counts_in_its_stream(place: str | None, version: int | None) -> None:
    assert event_log.version_at(place, STREAM, TOPICS) == version


def test_topics_of_a_request() -> None:
    upper, other = JOB.upper(), "b" * 32
    assert event_log.topics_of([upper, JOB], [other]) == ("overview", f"job/{JOB}", f"checkpoints/{other}")
    many = [f"{number:032x}" for number in range(event_log.TOPICS_MAX)]
    assert len(event_log.topics_of(many, [])) == event_log.TOPICS_MAX + 1
    with pytest.raises(ConfigError, match="limit 40"):
        event_log.topics_of(many, [JOB])
    with pytest.raises(ConfigError, match="not a job id"):
        event_log.topics_of(["../../etc"], [])


@pytest.mark.parametrize(
    ("cpu_s", "sent_bytes", "interval_s"),
    [
        pytest.param(0.001, 20_000, 1.0, id="small"),
        pytest.param(0.2, 20_000, 4.0, id="hard to look at"),
        pytest.param(0.001, 5 * 1024 * 1024, 5.0, id="much to send"),
    ],
)
def test_a_large_topic_is_sent_less_often(cpu_s: float, sent_bytes: int, interval_s: float) -> None:
    assert event_log.interval_s(cpu_s, sent_bytes) == pytest.approx(interval_s)


@pytest.mark.parametrize(
    ("age_ms", "interval_s", "is_late"), [(5_000, 1.0, False), (5_001, 1.0, True), (11_000, 4.0, False)]
)
def test_a_topic_that_hangs_is_late(age_ms: int, interval_s: float, is_late: bool) -> None:
    assert event_log.late_since(1_000, 1_000 + age_ms, interval_s) == (1_000 if is_late else None)


def test_frames() -> None:
    assert event_log.framed([b"1", b"2"], "x-1") == b"data: 1\n\nid: x-1\ndata: 2\n\n"
    assert event_log.framed([b"1"]) == b"data: 1\n\n"
