"""A subtask does not run ahead of the one who takes its output, and ends with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.support.harness.stages import bounded_job
from unistream.base.ids import EdgeId
from unistream.base.limits import BATCH_ROWS_MAX
from unistream.worker.bounded import BoundedRun, Piece, handover, pieces
from unistream.worker.bounded.handover import Handover
from unistream.worker.exchange import decode_batch

ROWS = 5 * BATCH_ROWS_MAX
SEEN: list[str] = []
"""What the function was called with, in this process."""


class Noted(us.KeyedProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        SEEN.append("row")
        out.emit(row)

    def close(self) -> None:
        SEEN.append("closed")


@pytest.fixture
def second_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Iterator[tuple[int, Piece]]]:
    """What the keyed function makes of rows that are all there; a piece for each batch."""
    monkeypatch.setattr(pieces, "GATHERED_BYTES", 1)
    monkeypatch.setattr(handover, "WAITING_BYTES", 1)
    SEEN.clear()
    env = us.Environment({"parallelism.default": "1"})
    source = us.StaticSource(pa.table({"k": [n % 1_000 for n in range(ROWS)]}))
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").key_by("k")
    stream.process(Noted(), returns=pa.schema({"k": pa.int64()})).rebalance().sink_to(us.BlackholeSink())
    run = BoundedRun(bounded_job(*env.job_graph("ahead"), 64 << 20))
    first = run.place(0, 0, attempt=0, folder=tmp_path)
    made = [piece for _, piece in first.run([])]
    second = run.place(1, 0, attempt=0, folder=tmp_path).run(made)
    yield second
    assert [thread for thread in threading.enumerate() if thread.name == "bounded-subtask"] == []


def seen_at_last() -> int:
    """How many rows the function has seen when it waits."""
    while True:
        before = len(SEEN)
        time.sleep(0.3)
        if len(SEEN) == before:
            return before


def test_a_subtask_waits_until_its_output_is_taken(second_stage: Iterator[tuple[int, Piece]]) -> None:
    _, first = next(second_stage)
    assert 0 < seen_at_last() < ROWS
    rest = [piece for _, piece in second_stage]
    assert sum(decode_batch(piece.content).num_rows for piece in [first, *rest]) == ROWS
    assert SEEN[-1] == "closed"
    assert SEEN.count("row") == ROWS


def test_one_whose_reader_gives_up_is_closed(second_stage: Iterator[tuple[int, Piece]]) -> None:
    next(second_stage)
    second_stage.close()  # type: ignore[attr-defined]  # a generator
    assert SEEN[-1] == "closed"
    assert SEEN.count("row") < ROWS


def piece(size: int) -> Piece:
    return Piece(EdgeId("e"), 0, 0, 0, bytes(size))


def test_there_is_room_again_when_enough_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "WAITING_BYTES", 10)
    woken: list[int] = []
    between = Handover(lambda: woken.append(1))
    for size in (4, 4, 4):
        assert between.has_room
        between.put(piece(size))
    assert not between.has_room
    taken = between.take()
    next(taken)
    assert between.has_room
    assert woken == [1]
    next(taken)
    assert woken == [1]


def test_an_error_comes_behind_the_last_piece() -> None:
    between = Handover(lambda: None)
    found: list[object] = []

    def take() -> None:
        try:
            found.extend(between.take())
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    error = OSError("torn")
    between.put(piece(1))
    eventually(lambda: found == [piece(1)], "it waits for the next")
    between.end(error)
    thread.join(WAIT_S)
    assert found == [piece(1), error]
