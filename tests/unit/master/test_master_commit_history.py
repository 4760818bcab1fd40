"""Commits that are reported again count once, also under the next leader."""

from __future__ import annotations

import msgspec
import pytest

from unistream.base.ids import AttemptId, CheckpointId, JobId, VertexId
from unistream.master.job.commit_history import STORED_MAX, CommitHistory
from unistream.model.messages import CommitReported
from unistream.model.stored_job import CheckpointPointer, TotalsSoFar, decode_stored, encode_stored


def report(
    checkpoint_id: int, rows: int, *, version: int | None = None, index: int = 0, attempt: int = 0
) -> CommitReported:
    return CommitReported(
        attempt=AttemptId(job=JobId("j"), vertex=VertexId("v"), index=index, attempt=attempt),
        sink_uid="sink",
        checkpoint_id=CheckpointId(checkpoint_id),
        rows=rows,
        table_version=version,
    )


def of(*reports: CommitReported) -> CommitHistory:
    totals = CommitHistory(None, {})
    for one in reports:
        totals.commit(one)
    return totals


@pytest.mark.parametrize(
    ("again", "rows", "commits"),
    [
        pytest.param(report(2, 20), 30, 2, id="the same commit changes nothing"),
        pytest.param(report(2, 25), 35, 2, id="with more rows, those count"),
        pytest.param(report(3, 5), 35, 3, id="a new commit is added"),
    ],
)
def test_under_the_next_leader(again: CommitReported, rows: int, commits: int) -> None:
    first = of(report(1, 10), report(2, 20, version=7))
    after = CommitHistory(None, first.so_far)
    assert after.sinks == first.sinks
    after.commit(again)
    sink = after.sinks["sink"]
    assert (sink.rows, sink.commits, sink.table_version) == (rows, commits, 7)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param([(1, 1, 10)], 10, id="of the whole table"),
        pytest.param([(1, 1, 10), (2, 2, 30)], 30, id="after the newest commit"),
        pytest.param([(2, 2, 30), (1, 1, 10)], 30, id="one that is reported later is older"),
        pytest.param(
            [(1, 1, 10), (1, 1, None)], 10, id="found done by another attempt, which has not counted"
        ),
        pytest.param([(1, 1, 10), (2, 2, None)], None, id="of a newer version nobody knows"),
        pytest.param([(1, None, None)], None, id="a sink that does not count"),
    ],
)
def test_rows_of_the_table_are_those_of_its_newest_version(
    reports: list[tuple[int, int | None, int | None]], expected: int | None
) -> None:
    totals = of(
        *(
            msgspec.structs.replace(report(checkpoint, 1, version=version), table_rows=rows)
            for checkpoint, version, rows in reports
        )
    )
    assert totals.sinks["sink"].table_rows == expected
    assert CommitHistory(None, totals.so_far).sinks["sink"].table_rows == expected, "under the next leader"


@pytest.mark.parametrize(
    ("reports", "width", "rows"),
    [
        pytest.param([(0, 0, 10), (1, 0, 5)], 2, 15, id="each has a part"),
        pytest.param([(0, 0, 10), (1, 0, 5), (0, 1, 10)], 2, 15, id="one is reported again"),
        pytest.param([(1, 0, 5), (0, 1, 10)], 2, 15, id="by the attempt behind the one that died"),
        pytest.param([(0, 0, 10), (1, 0, 5), (2, 0, 1), (0, 1, 11), (1, 1, 5)], 2, 16, id="rescaled"),
        pytest.param([(0, 0, 10), (0, 1, 0)], 1, 10, id="an attempt that does not know them"),
    ],
)
def test_a_sink_with_a_committer_for_each_writer(
    reports: list[tuple[int, int, int]], width: int, rows: int
) -> None:
    totals = CommitHistory(None, {})
    for index, attempt, count in reports:
        totals.commit(report(1, count, index=index, attempt=attempt), width=max(width, index + 1))
    for index, attempt, count in reports[-1:]:
        assert totals.commit(report(1, count, index=index, attempt=attempt), width=width) == rows
    assert (totals.sinks["sink"].rows, totals.sinks["sink"].commits) == (rows, 1)


def test_what_is_stored_of_commits_is_bounded() -> None:
    first = of(*(report(number, 1) for number in range(1, 3 * STORED_MAX)))
    stored = first.so_far["sink"]
    assert [checkpoint_id for checkpoint_id, _ in stored.newest][-1] == 3 * STORED_MAX - 1
    assert len(stored.newest) == STORED_MAX
    assert stored.rows == 3 * STORED_MAX - 1
    assert CommitHistory(None, first.so_far).so_far == first.so_far, "further leaders have the same"


def test_a_pointer_without_totals_is_read() -> None:
    pointer = decode_stored(
        b'{"checkpoint_id":3,"kind":"checkpoint","directory":"file:///c","format":1}', CheckpointPointer, "p"
    )
    assert pointer.totals == TotalsSoFar()
    assert decode_stored(encode_stored(pointer), CheckpointPointer, "p") == pointer
