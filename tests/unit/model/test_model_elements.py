"""Batches: rows and their event times stay together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.model.elements import Batch, CheckpointBarrier
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

RECORDS = pa.record_batch({"k": ["a", "b", "c", "d"], "v": [1, 2, 3, 4]})
TIMES = pa.array([10, 20, 30, 40], pa.int64())


@pytest.fixture(params=[TIMES, None], ids=["with times", "without times"])
def batch(request: pytest.FixtureRequest) -> Batch:
    return Batch(RECORDS, request.param)


def rows(batch: Batch) -> list[tuple[object, object]]:
    times = batch.timestamps.to_pylist() if batch.timestamps is not None else [None] * batch.num_rows
    return list(zip(batch.records.column("v").to_pylist(), times, strict=True))


def expected(batch: Batch, *values: int) -> list[tuple[object, object]]:
    return [(v, v * 10 if batch.timestamps is not None else None) for v in values]


def test_take_keeps_the_given_order_and_may_repeat(batch: Batch) -> None:
    assert rows(batch.take(pa.array([3, 0, 0]))) == expected(batch, 4, 1, 1)


def test_filter_drops_false_and_null(batch: Batch) -> None:
    assert rows(batch.filter(pa.array([True, False, None, True]))) == expected(batch, 1, 4)


@pytest.mark.parametrize(("offset", "length", "values"), [(0, 4, (1, 2, 3, 4)), (1, 2, (2, 3)), (4, 0, ())])
def test_slice(batch: Batch, offset: int, length: int, values: tuple[int, ...]) -> None:
    assert rows(batch.slice(offset, length)) == expected(batch, *values)


def test_a_slice_shares_memory_and_counts_its_share() -> None:
    whole = Batch(
        pa.record_batch({"v": pa.array(range(1000), pa.int64())}), pa.array(range(1000), pa.int64())
    )
    part = whole.slice(500, 100)
    address = whole.records.column(0).buffers()[1].address
    assert part.records.column(0).buffers()[1].address == address
    assert (whole.nbytes, part.nbytes) == (16_000, 1_600)


def test_a_batch_cannot_be_changed(batch: Batch) -> None:
    with pytest.raises(AttributeError):
        batch.records = RECORDS  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "is_savepoint", "is_synchronous"),
    [
        (SnapshotKind.CHECKPOINT, False, False),
        (SnapshotKind.SAVEPOINT, True, False),
        (SnapshotKind.SUSPEND, True, True),
        (SnapshotKind.TERMINATE, True, True),
    ],
)
def test_kinds_of_snapshots(kind: SnapshotKind, is_savepoint: bool, is_synchronous: bool) -> None:
    assert (kind.is_savepoint, kind.is_synchronous) == (is_savepoint, is_synchronous)
    assert CheckpointBarrier(1, 2, kind).kind is kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("canonical", SavepointFormat.CANONICAL),
        ("native", SavepointFormat.NATIVE),
        ("CANONICAL", SavepointFormat.CANONICAL),
        ("NATIVE", SavepointFormat.NATIVE),
    ],
)
def test_formats_of_savepoints(text: str, found: SavepointFormat) -> None:
    assert SavepointFormat.parse(text) is found


@pytest.mark.parametrize("text", ["", "nope", "native "])
def test_what_is_no_format_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match=f"is canonical or native, not '{text}'"):
        SavepointFormat.parse(text)
