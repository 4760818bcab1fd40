"""Committables of a BATCH job: reported by the task that makes them, read from a deployment."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from tests.unit.worker.worker_partitions import EDGE, batch_of, channel_to, descriptor_of, values_of
from unistream.base.errors import ConfigError, ProtocolError
from unistream.base.limits import MAX_WATERMARK, REPORTED_BYTES_MAX
from unistream.model.elements import Batch, Element, EndOfData, EndOfPartition, Watermark
from unistream.model.graph import Ship
from unistream.model.partition_type import PartitionType
from unistream.worker.exchange import EndedPartitions, ReportedOutput, encode_reported, reported_by


def output(ship: Ship = Ship.FORWARD, consumers: int = 1) -> ReportedOutput:
    return ReportedOutput(descriptor_of(ship, consumers, type=PartitionType.BLOCKING_REPORTED), 0)


def finish(made: ReportedOutput) -> tuple[bytes, ...]:
    """What is reported of it."""
    made.broadcast(EndOfData())
    made.broadcast(EndOfPartition())
    [reported] = reported_by([made])
    assert reported.edge == EDGE
    return reported.contents


def read(content: bytes) -> list[Element]:
    """Through the channel of a consumer."""
    notified: list[bool] = []
    channel = structs.replace(channel_to(), stored=True, content=content)
    view = EndedPartitions().open_subpartition(channel, lambda: notified.append(True))
    assert notified, "there is something to read"
    found = []
    while (element := view.poll()) is not None:
        found.append(element)
    return found


@pytest.mark.parametrize(
    ("ship", "consumers", "expected"),
    [
        pytest.param(Ship.FORWARD, 1, [list(range(50))], id="a committer for each writer"),
        pytest.param(Ship.GLOBAL, 2, [list(range(50)), []], id="all rows to the first consumer"),
        pytest.param(Ship.BROADCAST, 2, [list(range(50))] * 2, id="the same rows to each consumer"),
    ],
)
def test_what_is_reported_is_what_consumers_read(
    ship: Ship, consumers: int, expected: list[list[int]]
) -> None:
    made = output(ship, consumers)
    for start in range(0, 50, 10):
        made.emit(batch_of(10, start))
    contents = finish(made)
    elements = [read(content) for content in contents]
    assert [values_of(found) for found in elements] == expected
    end = [Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition()]
    assert all(found[-3:] == end for found in elements)
    assert made.rows_out == 50


def test_a_writer_without_rows_reports_that_it_has_none() -> None:
    assert values_of(read(finish(output())[0])) == []


def test_outputs_that_are_too_large_together_are_refused() -> None:
    noise = np.random.default_rng(7).bytes(REPORTED_BYTES_MAX // 2 + 1)
    both = [output(), output()]
    for made in both:
        made.emit(Batch(pa.record_batch({"v": pa.array([noise], pa.binary())})))
        assert len(finish(made)) == 1
    with pytest.raises(ConfigError, match="one task has"):
        reported_by(both)


def test_an_output_that_cannot_be_compressed_below_the_limit_is_refused() -> None:
    made = output()
    noise = np.random.default_rng(7).bytes(REPORTED_BYTES_MAX + 1)
    made.emit(Batch(pa.record_batch({"v": pa.array([noise], pa.binary())})))
    with pytest.raises(ConfigError, match=r"one task has \d+ B of committables of its sinks"):
        finish(made)


def test_damaged_committables_are_not_committed() -> None:
    content = encode_reported([batch_of(10)])
    with pytest.raises(ProtocolError, match="reported committables cannot be read"):
        read(content[:-20])
