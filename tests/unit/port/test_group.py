"""The log of a commit group: which record may be written behind which."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced
from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.port.group import (
    LINES_KEPT,
    GroupCommit,
    GroupOptions,
    LineRecord,
    MemberCommittable,
    TableVersion,
    check_log,
    decode_member,
    decode_record,
    next_record,
)
from unistream.port.sink import SinkContext
from unistream.testing.harness.operators import CountingMetrics

OLD = {"t": TableVersion(kind="delta", address="/t", version=4)}
NEW = {"t": TableVersion(kind="delta", address="/t", version=5)}


def record(job: str, checkpoint: int, number: int = 7, lineage: str = "L", **changes: Any) -> GroupCommit:
    found = GroupCommit(
        group="g", number=number, lineage=lineage, job=job, checkpoint=checkpoint, committed_ms=0, tables=OLD
    )
    return msgspec.structs.replace(found, **changes)


def behind(job: str, checkpoint: int, number: int, lineage: str = "L") -> GroupCommit:
    """The record of a line that appends, written behind one of `lineage`."""
    own = LineRecord(lineage=lineage, job=job, checkpoint=checkpoint, number=number)
    return record("x", 1, number + 1, lineage="M", appends=True, others=(own,))


@pytest.mark.parametrize(
    ("newest", "seen", "mine", "predecessor", "number"),
    [
        pytest.param(None, 0, record("a", 1), None, 1, id="the first one"),
        pytest.param(record("a", 3), 7, record("a", 4, tables=NEW), None, 8, id="the next checkpoint"),
        pytest.param(record("a", 3), 7, record("a", 3), None, None, id="repeated: it is there"),
        pytest.param(record("a", 3), 7, record("a", 3, tables=NEW), None, 8, id="the table has moved on"),
        pytest.param(record("a", 9), 7, record("a", 4), None, 8, id="ids are used again behind a rewind"),
        pytest.param(record("a", 3, 8), 7, record("a", 3), None, None, id="another attempt has written it"),
        pytest.param(record("a", 5, 9), 7, record("a", 3), None, None, id="another attempt is ahead"),
        pytest.param(record("a", 3, 8), 7, record("a", 4), None, 9, id="another attempt is behind"),
        pytest.param(record("a", 3), 7, record("b", 4), "a", 8, id="the successor's first one"),
        pytest.param(record("a", 3, 8), 7, record("b", 4), "a", 9, id="the predecessor wrote late"),
        pytest.param(record("x", 3, lineage="M"), 7, record("b", 4), None, 8, id="of another line, allowed"),
        pytest.param(behind("a", 3, 7), 7, record("a", 4), None, 9, id="a line that appends wrote meanwhile"),
        pytest.param(behind("a", 3, 7), 8, record("a", 4), None, 9, id="a line that appends wrote before"),
        pytest.param(behind("a", 4, 7), 8, record("a", 4), None, None, id="repeated, behind another line"),
        pytest.param(
            behind("a", 4, 8), 7, record("a", 4), None, None, id="another attempt, and another line"
        ),
        pytest.param(behind("a", 3, 8), 7, record("b", 4), "a", 10, id="the predecessor, and another line"),
        pytest.param(
            record("x", 1, 8, lineage="M", appends=True),
            7,
            record("a", 4),
            None,
            9,
            id="it wrote the first one",
        ),
        pytest.param(
            record("x", 1, 8, lineage="M"), 7, record("a", 4, appends=True), None, 9, id="this line appends"
        ),
    ],
)
def test_what_is_written_behind_what(
    newest: GroupCommit | None, seen: int, mine: GroupCommit, predecessor: str | None, number: int | None
) -> None:
    before = None if predecessor is None else JobId(predecessor)
    found = next_record(newest, seen=seen, mine=mine, predecessor=before)
    assert (None if found is None else found.number) == number
    assert found is None or msgspec.structs.replace(found, number=mine.number, others=()) == mine


@pytest.mark.parametrize(
    ("newest", "predecessor"),
    [
        pytest.param(record("b", 4, 8), None, id="a job that was given up, behind its successor"),
        pytest.param(record("c", 4, 8), "a", id="of two successors the slower one"),
        pytest.param(record("x", 1, 8, lineage="M"), None, id="another line began meanwhile"),
        pytest.param(record("a", 1, 8, lineage="M"), "a", id="the name of the predecessor in another line"),
        pytest.param(behind("c", 1, 8), "a", id="of two successors the slower one, behind another line"),
    ],
)
def test_who_has_been_taken_over_from_writes_nothing(newest: GroupCommit, predecessor: str | None) -> None:
    before = None if predecessor is None else JobId(predecessor)
    other = newest.others[0] if newest.others else newest
    with pytest.raises(Fenced, match=f"job {other.job} has taken over, with checkpoint {other.checkpoint}"):
        next_record(newest, seen=7, mine=record("me", 9), predecessor=before)


def test_a_record_knows_the_line_that_began_the_group_and_the_last_few() -> None:
    newest = record("a", 1, 1)
    for number in range(2, 4 * LINES_KEPT):
        mine = record(f"job {number}", 1, lineage=f"line {number}", appends=True)
        found = next_record(newest, seen=newest.number, mine=mine, predecessor=None)
        assert found is not None
        newest = found
    last = newest.number
    assert [one.number for one in newest.others] == [1, *range(last - LINES_KEPT + 1, last)]
    check_log(GroupOptions(name="g"), newest, context("L"))
    with pytest.raises(ConfigError, match="another line"):
        check_log(GroupOptions(name="g"), newest, context("new"))
    again = next_record(newest, seen=last, mine=record("a", 2), predecessor=None)
    assert again is not None
    assert again.others[-1].lineage == f"line {last}"


def context(lineage: str, *, finalizing: bool = False) -> SinkContext:
    job = JobId("0" * 32)
    return SinkContext(
        job=job,
        lineage=LineageId(lineage),
        sink_uid=OperatorUid("g"),
        attempt=AttemptId(job, VertexId("v"), 0, 0),
        index=0,
        parallelism=1,
        restored=CheckpointId(1),
        metrics=CountingMetrics(),
        finalizing=finalizing,
    )


def test_another_line_is_refused_unless_it_is_appended_to() -> None:
    found = record("a", 3)
    check_log(GroupOptions(name="g"), None, context("M"))
    check_log(GroupOptions(name="g"), found, context("L"))
    check_log(GroupOptions(name="g"), found, context("M", finalizing=True))
    check_log(GroupOptions(name="g", on_foreign="append"), found, context("M"))
    with pytest.raises(ConfigError, match=r"commit group 'g' has the output of another line.*job a"):
        check_log(GroupOptions(name="g"), found, context("M"))


def test_what_is_stored_is_read_or_refused_with_a_sentence() -> None:
    one = MemberCommittable(
        options=GroupOptions(name="g"), sink_uid="t", connector="delta", payload=b"\x00\xff"
    )
    assert decode_member(one.encoded()) == one
    assert decode_record(msgspec.json.encode(record("a", 3)), "x") == record("a", 3)
    with pytest.raises(CorruptSnapshot, match="a committable of a commit group is unreadable"):
        decode_member(b"\xc1")
    with pytest.raises(CorruptSnapshot, match="format 2, this version reads 1"):
        decode_member(msgspec.structs.replace(one, format=2).encoded())
    with pytest.raises(CorruptSnapshot, match="record x of a commit group is unreadable"):
        decode_record(b"{", "x")
    with pytest.raises(CorruptSnapshot, match="format 2"):
        decode_record(msgspec.json.encode(record("a", 3, format=2)), "x")
