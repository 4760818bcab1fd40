"""What leaves the bounded part of a stream: one file in the checkpoint storage for each producer and edge."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.unit.worker.worker_partitions import batch_of, channel_to, descriptor_of, flip_bit, values_of
from unistream.base.errors import PartitionLost, Transient
from unistream.base.ids import VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Element, EndOfData, EndOfPartition, Watermark
from unistream.model.graph import Ship
from unistream.model.key_groups import key_groups, subtask_of_key_group
from unistream.model.stored_rows import StoredRows
from unistream.storage.state_files import FsStateReader, FsStateWriter
from unistream.worker.exchange import StoredFile, StoredOutput
from unistream.worker.exchange.blocking_partition import SPILL_BYTES

LAST = [Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition()]
BATCH = 50_000


def output(folder: Path, ship: Ship, consumers: int) -> StoredOutput:
    writer = FsStateWriter(str(folder))
    return StoredOutput(descriptor_of(ship, consumers), VertexId("v"), 1, folder=str(folder), writer=writer)


def stored(folder: Path, ship: Ship, consumers: int, batches: int = 20) -> StoredRows:
    """Values from 0 on; more than are gathered at a time."""
    out = output(folder, ship, consumers)
    for number in range(batches):
        out.emit(batch_of(BATCH, number * BATCH))
    out.broadcast(EndOfData())
    assert out.stored is None
    out.broadcast(EndOfPartition())
    assert out.stored is not None
    assert out.rows_out == batches * BATCH
    return out.stored


def read(rows: StoredRows, subpartition: int = 0) -> list[Element]:
    view = StoredFile(rows, FsStateReader).open_subpartition(channel_to(subpartition), lambda: None)
    return list(iter(view.poll, None))


@pytest.mark.parametrize("consumers", [1, 3])
@pytest.mark.parametrize("ship", [Ship.HASH, Ship.REBALANCE, Ship.BROADCAST, Ship.FORWARD])
def test_every_consumer_reads_its_rows_in_order_and_the_end(
    ship: Ship, consumers: int, tmp_path: Path
) -> None:
    rows = stored(tmp_path, ship, consumers)
    assert 20 * BATCH * 24 > 2 * SPILL_BYTES, "it has several segments for each"
    assert [path.name for path in tmp_path.iterdir()] == [rows.file.path]
    found: list[int] = []
    for index in range(consumers):
        elements = read(rows, index)
        assert elements[-3:] == LAST
        values = values_of(elements)
        assert values == sorted(values)
        assert read(rows, index)[-3:] == LAST, "it can be read again"
        if ship is Ship.HASH:
            for batch in elements[:-3]:
                groups = key_groups(batch.records, ("k",), 128)  # type: ignore[union-attr]
                assert {subtask_of_key_group(128, consumers, int(group)) for group in groups} == {index}
        found += values
    copies = consumers if ship is Ship.BROADCAST else 1
    assert sorted(found) == sorted(copies * list(range(20 * BATCH)))


def test_a_part_at_a_time_is_in_memory(tmp_path: Path) -> None:
    rows = stored(tmp_path, Ship.HASH, 3)
    asked: list[int] = []

    class Reader(FsStateReader):
        def read_range(self, ref, start, stop):  # type: ignore[no-untyped-def]
            asked.append(stop - start)
            return super().read_range(ref, start, stop)

    view = StoredFile(rows, Reader).open_subpartition(channel_to(0), lambda: None)
    assert asked == [], "nothing before it is read"
    view.poll()
    assert sum(asked) < rows.file.size / 4
    assert len(list(iter(view.poll, None))) > 3
    assert max(asked) < SPILL_BYTES


def test_an_empty_one_has_its_end(tmp_path: Path) -> None:
    assert read(stored(tmp_path, Ship.HASH, 2, batches=0), 1) == LAST


def test_any_changed_bit_loses_it(tmp_path: Path) -> None:
    rows = stored(tmp_path, Ship.HASH, 2, batches=1)
    path = tmp_path / rows.file.path
    for at in range(0, rows.file.size, rows.file.size // 31):
        flip_bit(path, at)
        with pytest.raises(PartitionLost, match=r"the file .* cannot be read") as caught:
            [read(rows, index) for index in range(2)]
        assert caught.value.partition == rows.partition
        flip_bit(path, at)
    assert len(values_of(read(rows, 0) + read(rows, 1))) == BATCH


def test_one_that_is_missing_or_cut_is_lost(tmp_path: Path) -> None:
    rows = stored(tmp_path, Ship.HASH, 2, batches=1)
    path = tmp_path / rows.file.path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PartitionLost, match="cannot be read: it is missing, or shorter than it was"):
        read(rows)
    path.unlink()
    with pytest.raises(PartitionLost, match="cannot be read: it is missing, or shorter than it was"):
        read(rows)


def test_of_one_that_is_given_up_nothing_stays(tmp_path: Path) -> None:
    out = output(tmp_path, Ship.HASH, 2)
    for number in range(40):
        out.emit(batch_of(BATCH, number * BATCH))
    out.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_late_writer_fails_when_its_folder_is_gone(tmp_path: Path) -> None:
    out = output(tmp_path / "gone", Ship.HASH, 2)
    out.emit(batch_of(10))
    with pytest.raises(Transient, match=r"cannot be stored in .*gone.*; make execution.checkpointing.dir a"):
        out.broadcast(EndOfPartition())


def test_it_is_closed_before_its_end(tmp_path: Path) -> None:
    rows = stored(tmp_path, Ship.HASH, 2)
    view = StoredFile(rows, partial(FsStateReader)).open_subpartition(channel_to(), lambda: None)
    assert view.peek() is not None
    view.release(None)
    view.poll()
    assert view.poll() is None
