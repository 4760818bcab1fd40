"""What has arrived from another process, and barriers that overtake it."""

from __future__ import annotations

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import (
    AlignmentType,
    Batch,
    CheckpointBarrier,
    EndOfData,
    Watermark,
    WatermarkStatus,
)
from unistream.worker.exchange import Announcement
from unistream.worker.exchange.remote_queue import RemoteQueue

UNALIGNED = CheckpointBarrier(CheckpointId(1), 0, alignment=AlignmentType.UNALIGNED)
IN_TIME = CheckpointBarrier(CheckpointId(1), 0, timeout_ms=5)
ONE, TWO, THREE = (Batch(pa.record_batch({"n": [n]})) for n in (1, 2, 3))


def _queue(*elements: object) -> RemoteQueue:
    queue = RemoteQueue()
    for element in elements:
        queue.add(element, 8 if isinstance(element, Batch) else 0)  # type: ignore[arg-type]
    return queue


def test_a_barrier_that_overtakes_comes_first_and_knows_what_it_has_passed() -> None:
    end = (WatermarkStatus(idle=True), Watermark(MAX_WATERMARK), EndOfData())
    queue = _queue(ONE, Watermark(3), TWO, *end, UNALIGNED, THREE)
    assert queue.take_urgent() == UNALIGNED
    assert queue.overtaken == [ONE, Watermark(3), TWO]
    assert [queue.take()[0] for _ in range(7)] == [ONE, Watermark(3), TWO, *end, THREE]


def test_what_was_taken_before_the_barrier_is_not_passed() -> None:
    queue = _queue(ONE, TWO, UNALIGNED)
    queue.add(THREE, 8)
    assert queue.has_urgent
    assert queue.take() == (UNALIGNED, 0)
    assert queue.overtaken == [ONE, TWO]
    queue = _queue(ONE, TWO)
    assert queue.take() == (ONE, 8)
    queue.add(UNALIGNED, 0)
    assert queue.take() == (UNALIGNED, 0)
    assert queue.overtaken == [TWO]


def test_a_barrier_behind_rows_is_announced_and_may_be_told_to_overtake() -> None:
    queue = _queue(ONE, IN_TIME, TWO)
    assert queue.take_urgent() == Announcement(IN_TIME)
    assert queue.take_urgent() is None
    queue.prioritize(CheckpointId(1))
    assert queue.take_urgent() == IN_TIME.overtaking()
    assert queue.overtaken == [ONE]
    assert [queue.take()[0] for _ in range(3)] == [ONE, TWO, None]


def test_a_barrier_that_nothing_is_before_is_not_announced_and_one_that_was_read_cannot_overtake() -> None:
    queue = _queue(IN_TIME, ONE)
    assert not queue.has_urgent
    assert queue.take() == (IN_TIME, 0)
    queue.prioritize(CheckpointId(1))
    assert queue.take_urgent() is None
    assert queue.take() == (ONE, 8)
