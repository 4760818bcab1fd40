"""A row has the same event time behind a source and in the middle of a stream."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from unistream.base.errors import UserCodeError
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common import AssignTimestampsAndWatermarks
from unistream.testing.harness import OperatorHarness
from unistream.worker.task.source_operator import event_times

STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
DAY = 86_400_000


def from_source(records: pa.RecordBatch) -> list[int]:
    found: list[int] = event_times(records, "at", "s").to_pylist()
    return found


def assigned(records: pa.RecordBatch) -> list[int]:
    with OperatorHarness(AssignTimestampsAndWatermarks(STRATEGY)) as harness:
        harness.process(records)
        return [int(time) for time in harness.timestamps()]


@pytest.mark.parametrize("times_of", [from_source, assigned])
@pytest.mark.parametrize(
    ("kind", "numbers", "times"),
    [
        pytest.param(pa.timestamp("ns"), [-1, 0, 999_999, 1_000_000], [-1, 0, 0, 1], id="ns"),
        pytest.param(pa.timestamp("ns", "Asia/Tokyo"), [-1, -1_000_001], [-1, -2], id="ns in a zone"),
        pytest.param(pa.timestamp("us"), [-1, -1000, -1001, 1], [-1, -1, -2, 0], id="us"),
        pytest.param(pa.timestamp("us", "UTC"), [-1], [-1], id="us in UTC"),
        pytest.param(pa.timestamp("ms"), [-1, 0, 2**63 - 1], [-1, 0, 2**63 - 1], id="ms"),
        pytest.param(pa.timestamp("s", "+02:00"), [-1, 1], [-1_000, 1_000], id="s in a zone"),
        pytest.param(pa.date32(), [-1, 1], [-DAY, DAY], id="days"),
        pytest.param(pa.date64(), [-DAY, DAY], [-DAY, DAY], id="days in ms"),
        pytest.param(pa.int64(), [-1, 5], [-1, 5], id="numbers"),
    ],
)
def test_times_are_rounded_down(
    times_of: object, kind: pa.DataType, numbers: list[int], times: list[int]
) -> None:
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    column = pa.array([7, *numbers], storage).view(kind)
    assert callable(times_of)
    assert times_of(pa.record_batch({"at": column}).slice(1)) == times


@pytest.mark.parametrize("times_of", [from_source, assigned])
def test_a_time_out_of_range_or_none_is_refused(times_of: object) -> None:
    assert callable(times_of)
    with pytest.raises(
        UserCodeError, match=r"timestamp column 'at'.* out of the range of int64 milliseconds"
    ):
        times_of(pa.record_batch({"at": pa.array([2**62], pa.int64()).view(pa.timestamp("s"))}))
    with pytest.raises(UserCodeError, match="timestamp column 'at' is null"):
        times_of(pa.record_batch({"at": pa.array([datetime.date(2024, 1, 1), None])}))
