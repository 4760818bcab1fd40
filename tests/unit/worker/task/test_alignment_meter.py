"""How long barriers were on their way, of each checkpoint by itself."""

from __future__ import annotations

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch, CheckpointBarrier
from unistream.testing.harness.operators import ManualClock
from unistream.worker.exchange import AlignmentFigures
from unistream.worker.exchange.aligned import MEASURED_MAX, AlignmentMeter

ROWS = Batch(pa.record_batch({"n": pa.array([1, 2], pa.int64())}))


class Meter:
    """A meter whose clock is set by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.meter = AlignmentMeter(self.clock)

    def barrier(self, checkpoint: int, at_ms: int, sent_ms: int = 0) -> None:
        self.clock.now_ms = at_ms
        self.meter.on_barrier(CheckpointBarrier(CheckpointId(checkpoint), sent_ms))

    def rows(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.meter.on_element(ROWS)

    def stop(self, checkpoint: int, at_ms: int) -> AlignmentFigures:
        self.clock.now_ms = at_ms
        return self.meter.stop(CheckpointId(checkpoint))


def test_from_the_first_barrier_to_the_last() -> None:
    meter = Meter()
    meter.rows(5)
    meter.barrier(1, 100, sent_ms=70)
    meter.rows(2)
    meter.barrier(1, 130, sent_ms=70)
    assert meter.stop(1, 130) == AlignmentFigures(30, 30, 2 * ROWS.nbytes)


def test_checkpoints_that_are_under_way_together_do_not_share_their_figures() -> None:
    """At least once: nothing waits, so the barriers of the next come before the last of this one."""
    meter = Meter()
    meter.barrier(1, 100, sent_ms=90)
    meter.rows()
    meter.barrier(2, 300, sent_ms=250)
    meter.rows(3)
    assert meter.stop(1, 1000) == AlignmentFigures(900, 10, 4 * ROWS.nbytes)
    meter.rows()
    assert meter.stop(2, 1500) == AlignmentFigures(1200, 50, 4 * ROWS.nbytes)


def test_one_that_was_given_up_leaves_nothing_behind() -> None:
    meter = Meter()
    meter.barrier(1, 100)
    meter.barrier(2, 200)
    assert meter.stop(2, 250).alignment_ms == 50
    meter.barrier(1, 260)
    assert meter.stop(1, 300) == AlignmentFigures()
    for checkpoint in range(3, 3 + 2 * MEASURED_MAX):
        meter.barrier(checkpoint, 400)
    newest = 2 + 2 * MEASURED_MAX
    assert meter.stop(newest - MEASURED_MAX, 500) == AlignmentFigures(), "the oldest are forgotten"
    assert meter.stop(newest, 500).alignment_ms == 100
