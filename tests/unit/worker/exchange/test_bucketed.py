"""Stored partitions whose consumers sort their rows: each reads them bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.worker.worker_partitions import (
    batch_of,
    channel_to,
    create,
    files_in,
    fill_disk,
    flip_bit,
    read,
    values_of,
)
from unistream.base.errors import PartitionLost, Transient
from unistream.base.limits import MAX_WATERMARK
from unistream.model.columns.key_buckets import buckets_of
from unistream.model.elements import (
    Batch,
    Element,
    EndOfBucket,
    EndOfData,
    EndOfPartition,
    Watermark,
    WatermarkStatus,
)
from unistream.model.graph import Ship
from unistream.model.key_groups import key_groups, key_hashes, subtask_of_key_group
from unistream.worker.exchange import BlockingPartition, BlockingPartitions

BUCKETS = 8
SPILL = 40_000
LAST = [Watermark(MAX_WATERMARK), EndOfData(), EndOfPartition()]


def bucketed(store: BlockingPartitions, consumers: int = 2, **options: object) -> BlockingPartition:
    return create(store, Ship.HASH, consumers, **{"buckets": BUCKETS, "spill_bytes": SPILL, **options})


def end(partition: BlockingPartition) -> None:
    for event in LAST:
        partition.broadcast(event)


def fill(partition: BlockingPartition, rows: int = 30_000) -> None:
    for start in range(0, rows, 1_000):
        partition.emit(batch_of(min(1_000, rows - start), start))
    end(partition)


def by_bucket(elements: list[Element]) -> list[list[Element]]:
    """What is before the end of each bucket, and what is behind the last."""
    parts: list[list[Element]] = [[]]
    for element in elements:
        if isinstance(element, EndOfBucket):
            assert element == EndOfBucket(len(parts) - 1, BUCKETS)
            parts.append([])
        else:
            parts[-1].append(element)
    return parts


@pytest.mark.parametrize("consumers", [1, 2, 7])
def test_each_row_once_in_its_bucket_and_those_of_a_key_in_order(
    consumers: int, store: BlockingPartitions
) -> None:
    partition = bucketed(store, consumers)
    fill(partition)
    seen: list[int] = []
    for index in range(consumers):
        *parts, last = by_bucket(read(store, index))
        assert (len(parts), last) == (BUCKETS, LAST)
        for number, part in enumerate(parts):
            keys: dict[int, list[int]] = {}
            for batch in part:
                assert isinstance(batch, Batch)
                assert set(buckets_of(key_hashes(batch.records, ["k"]), BUCKETS).tolist()) == {number}
                groups = key_groups(batch.records, ["k"], 128)
                assert {subtask_of_key_group(128, consumers, int(g)) for g in groups} == {index}
                assert batch.timestamps == batch.records.column("v")
                for key, value in zip(*batch.records.to_pydict().values(), strict=True):
                    keys.setdefault(key, []).append(value)
            assert all(values == sorted(values) for values in keys.values())
        seen += values_of(read(store, index))
    assert sorted(seen) == list(range(30_000))
    assert partition.rows_out == 30_000


def test_few_rows_are_not_divided_and_come_before_all_buckets(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    partition = bucketed(store, 1)
    partition.emit(batch_of(100))
    end(partition)
    first, *rest, last = by_bucket(read(store))
    assert [type(e) for e in first] == [Batch]
    assert values_of(first) == list(range(100))
    assert (rest, last) == ([[]] * (BUCKETS - 1), LAST)
    plain = create(store, Ship.HASH, 1, edge="plain")
    plain.emit(batch_of(100))
    end(plain)
    sizes = [path.stat().st_size for path in files_in(tmp_path)]
    assert max(sizes) - min(sizes) < 1_000, "a schema is written for one bucket only"


@pytest.mark.parametrize("rows", [0, 5_000])
def test_events_come_behind_all_rows(rows: int, store: BlockingPartitions) -> None:
    partition = bucketed(store, 1)
    partition.broadcast(WatermarkStatus(idle=True))
    partition.emit(batch_of(rows))
    partition.broadcast(WatermarkStatus(idle=False))
    partition.emit(batch_of(rows, rows))
    end(partition)
    *parts, last = by_bucket(read(store))
    assert last == [WatermarkStatus(idle=True), WatermarkStatus(idle=False), *LAST]
    assert sorted(values_of([e for part in parts for e in part])) == list(range(2 * rows))


def test_it_is_read_as_often_as_anybody_wants_and_by_several_at_once(store: BlockingPartitions) -> None:
    fill(bucketed(store, 2))
    expected = [values_of(read(store, index)) for index in range(2)]
    views = [store.open_subpartition(channel_to(n % 2), lambda: None) for n in range(4)]
    found: list[list[Element]] = [[] for _ in views]
    while any(not elements or elements[-1] != EndOfPartition() for elements in found):
        for view, elements in zip(views, found, strict=True):
            assert view is not None
            if (element := view.poll()) is not None:
                elements.append(element)
    assert [values_of(elements) for elements in found] == expected * 2


def test_batches_of_other_columns_and_with_dictionaries_keep_their_schema(store: BlockingPartitions) -> None:
    partition = bucketed(store, 2, spill_bytes=2_000)
    for start in range(0, 2_000, 100):
        values = np.arange(start, start + 100)
        word = pa.array([f"w{v % 5}" for v in values]).dictionary_encode()
        partition.emit(Batch(pa.record_batch({"k": values % 97, "v": values, "w": word})))
        partition.emit(batch_of(100, 2_000 + start))
    end(partition)
    for index in range(2):
        for batch in read(store, index):
            if isinstance(batch, Batch) and batch.timestamps is None:
                words = batch.records.column("w").to_pylist()
                assert words == [f"w{v % 5}" for v in batch.records.column("v").to_pylist()]
    seen = [v for index in range(2) for v in values_of(read(store, index))]
    assert sorted(seen) == list(range(4_000))


# --- damage ---------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_wherever_it_is(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = bucketed(store, 1, buckets=2, spill_bytes=100)
    for start in range(0, 40, 8):
        partition.emit(batch_of(8, start))
    end(partition)
    (path,) = files_in(tmp_path)
    for at in range(0, path.stat().st_size, 7):
        flip_bit(path, at)
        with pytest.raises(PartitionLost, match="does not match its checksum"):
            read(store)
        flip_bit(path, at)
    assert sorted(values_of(read(store))) == list(range(40)), "whole again"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda path: path.unlink(), "No such file", id="deleted"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-40]), "it ends at byte", id="cut off"),
        pytest.param(lambda path: path.write_bytes(b""), "it ends at byte 0", id="emptied"),
    ],
)
def test_a_file_that_is_not_as_it_was_loses_the_partition(
    damage: Callable[[Path], object], reason: str, store: BlockingPartitions, tmp_path: Path
) -> None:
    fill(bucketed(store, 1))
    damage(files_in(tmp_path)[0])
    with pytest.raises(PartitionLost, match=reason):
        read(store)


def test_a_frame_in_the_place_of_another_is_found(store: BlockingPartitions, tmp_path: Path) -> None:
    """Pieces of equal length: the one of the first spill is repeated where that of the second was."""
    partition = bucketed(store, 1, buckets=2, spill_bytes=1)
    for start in (0, 97 * 8, 97 * 16):
        partition.emit(batch_of(97, start))
    end(partition)
    (path,) = files_in(tmp_path)
    segments = store._sealed[(partition._attempt, partition.edge)].segments[1].tolist()
    pieces = [slice(at, at + length) for at, length in zip(segments[::2], segments[1::2], strict=True)]
    content = bytearray(path.read_bytes())
    assert len({piece.stop - piece.start for piece in pieces[1:]}) == 1
    content[pieces[2]] = content[pieces[1]]
    path.write_bytes(content)
    with pytest.raises(PartitionLost, match="there is no frame 3"):
        read(store)


@pytest.mark.parametrize("rows", [100, 100_000])
def test_a_full_disk_leaves_nothing(rows: int, store: BlockingPartitions, tmp_path: Path) -> None:
    partition = bucketed(store, 2)
    fill_disk(partition, 1)

    def write() -> None:
        partition.emit(batch_of(rows))
        end(partition)

    with pytest.raises(Transient, match="No space left on device; make room there"):
        write()
    assert files_in(tmp_path) == []
    assert store.held == ()


def test_pieces_are_in_the_order_of_buckets_within_each_spill(store: BlockingPartitions) -> None:
    """So that a spill is written from its begin to its end."""
    partition = bucketed(store, 1)
    fill(partition)
    segments = store._sealed[(partition._attempt, partition.edge)].segments
    offsets = sorted((int(at), stream) for stream, found in enumerate(segments) for at in found[::2])
    streams = [stream for _, stream in offsets]
    spills = [list(range(1, BUCKETS + 1))] * (streams.count(1) - 1)
    flat = [stream for spill in spills for stream in spill]
    assert streams[: len(flat)] == flat
    assert [stream for stream, _ in groupby(streams[-1:])] == [BUCKETS + 1], "events are the last"
