"""Stored partitions of another worker on this machine are read from its files, if they can be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.worker.worker_partitions import (
    ATTEMPT,
    batch_of,
    channel_to,
    create,
    files_in,
    flip_bit,
    read,
    seal,
    values_of,
)
from unistream.base.errors import PartitionLost
from unistream.base.ids import EdgeId, TaskManagerId
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Element
from unistream.model.graph import Ship
from unistream.worker.exchange import (
    BlockingPartition,
    BlockingPartitions,
    HostLocalPartitions,
    LocalInputChannel,
    LocalPartitions,
)
from unistream.worker.exchange.sealed_partition import INDEX

OWNER = TaskManagerId("tm")  # that of `channel_to`
ANOTHER = TaskManagerId("tm-2")
ROWS = 3_000
BUCKETED = {"buckets": 4, "spill_bytes": 8_000}


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[BlockingPartitions]:
    store = BlockingPartitions([tmp_path], OWNER)
    yield store
    store.close()


def stored(store: BlockingPartitions, consumers: int = 2, **options: object) -> BlockingPartition:
    partition = create(store, Ship.HASH, consumers, **options)
    for start in range(0, ROWS, 500):
        partition.emit(batch_of(500, start))
    seal(partition)
    return partition


def elements(partitions: LocalPartitions, channel: ChannelDescriptor) -> list[Element]:
    """As a task reads them."""
    input_ = LocalInputChannel(channel, partitions)
    input_.open(lambda: None)
    found = []
    while (element := input_.poll()) is not None:
        found.append(element)
    input_.close()
    return found


def folder_of(tmp_path: Path) -> Path:
    (private,) = tmp_path.iterdir()
    return private


@pytest.mark.parametrize("options", [{}, BUCKETED], ids=["plain", "by bucket"])
def test_another_worker_reads_what_its_owner_would(
    options: dict[str, object], owner: BlockingPartitions, tmp_path: Path
) -> None:
    stored(owner, 3, **options)
    looking = BlockingPartitions([tmp_path], ANOTHER)
    values = []
    for subpartition in range(3):
        channel = channel_to(subpartition)
        found = looking.of_others_here().find(channel)
        assert found is not None
        rows = elements(found, channel)
        assert rows == read(owner, subpartition)
        assert rows == elements(found, channel), "there may be several readers"
        values += values_of(rows)
    assert sorted(values) == list(range(ROWS))
    looking.close()
    assert owner.held, "what it has read is not its own"


def test_a_broadcast_partition_is_one_file_for_all(owner: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(owner, Ship.BROADCAST, 3)
    partition.emit(batch_of(100))
    seal(partition)
    for subpartition in range(3):
        channel = channel_to(subpartition)
        found = HostLocalPartitions([tmp_path]).find(channel)
        assert found is not None
        assert values_of(elements(found, channel)) == list(range(100))


def test_of_several_folders(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in "ab"]
    for root in roots:
        root.mkdir()
    store = BlockingPartitions(roots, OWNER)
    later = msgspec.structs.replace(ATTEMPT, attempt=ATTEMPT.attempt + 1)
    for attempt in (ATTEMPT, later):
        stored(store, attempt=attempt)
    for attempt in (ATTEMPT, later):
        found = HostLocalPartitions([tmp_path / "missing", *roots]).find(channel_to(attempt=attempt))
        assert found is not None
    store.close()


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(msgspec.structs.replace(channel_to(), task_manager=ANOTHER), id="of another worker"),
        pytest.param(channel_to(attempt=msgspec.structs.replace(ATTEMPT, attempt=3)), id="an older attempt"),
        pytest.param(channel_to(edge=EdgeId("another")), id="another edge"),
        pytest.param(channel_to(2), id="no such consumer"),
        pytest.param(channel_to(-1), id="a negative one"),
    ],
)
def test_nothing_else_is_found(channel: ChannelDescriptor, owner: BlockingPartitions, tmp_path: Path) -> None:
    stored(owner)
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is not None
    assert HostLocalPartitions([tmp_path]).find(channel) is None


def test_a_partition_is_found_when_it_is_complete(owner: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(owner, Ship.HASH, 2, spill_bytes=1)
    partition.emit(batch_of(100))
    assert files_in(tmp_path)
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is None
    seal(partition)
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is not None


def test_ids_may_be_any_text(tmp_path: Path) -> None:
    strange = TaskManagerId("../über*[" + "x" * 300)
    store = BlockingPartitions([tmp_path], strange)
    stored(store)
    channel = msgspec.structs.replace(channel_to(), task_manager=strange)
    assert HostLocalPartitions([tmp_path]).find(channel) is not None
    store.close()


# --- what may be wrong ------------------------------------------------------------------------------


def by_others(private: Path) -> None:
    private.chmod(0o770)


def by_a_link(private: Path) -> None:
    """Anybody may put one into a temporary folder."""
    private.rename(private.with_name("elsewhere"))
    private.symlink_to("elsewhere")


def by_a_file(private: Path) -> None:
    private.rename(private.with_name("elsewhere"))
    private.touch(mode=0o600)


@pytest.mark.parametrize("written", [by_others, by_a_link, by_a_file], ids=lambda f: f.__name__)
def test_a_folder_that_others_may_have_written_is_not_read(
    written: Callable[[Path], None], owner: BlockingPartitions, tmp_path: Path
) -> None:
    stored(owner)
    written(folder_of(tmp_path))
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_read(owner: BlockingPartitions, tmp_path: Path) -> None:
    stored(owner)
    os.chown(folder_of(tmp_path), 12_345, 12_345)
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is None


@pytest.mark.parametrize("at", [0, 3, 4, 50, -1])
def test_a_damaged_index_is_left_to_the_owner_who_knows_better(
    at: int, owner: BlockingPartitions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored(owner)
    (index,) = tmp_path.rglob(INDEX)
    flip_bit(index, at)
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is None
    assert "does not match its checksum" in caplog.text
    assert values_of(read(owner, 0) + read(owner, 1)), "it has the index in memory"


@pytest.mark.parametrize("size", [0, 3, 40])
def test_an_index_that_was_cut(size: int, owner: BlockingPartitions, tmp_path: Path) -> None:
    stored(owner)
    (index,) = tmp_path.rglob(INDEX)
    os.truncate(index, size)
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is None


@pytest.mark.parametrize("options", [{}, BUCKETED], ids=["plain", "by bucket"])
def test_damaged_rows_are_a_lost_partition(
    options: dict[str, object], owner: BlockingPartitions, tmp_path: Path
) -> None:
    stored(owner, 1, **options)
    found = HostLocalPartitions([tmp_path]).find(channel_to())
    assert found is not None
    (path,) = files_in(tmp_path)
    flip_bit(path, path.stat().st_size // 2)
    with pytest.raises(PartitionLost, match="does not match its checksum"):
        elements(found, channel_to())


@pytest.mark.parametrize("deletes", ["the partition is released", "its worker ends"])
def test_a_partition_that_is_deleted_while_it_is_read_is_lost(
    deletes: str, owner: BlockingPartitions, tmp_path: Path
) -> None:
    stored(owner, 1, **BUCKETED)
    found = HostLocalPartitions([tmp_path]).find(channel_to())
    assert found is not None
    view = found.open_subpartition(channel_to(), lambda: None)
    assert view.poll() is not None
    if deletes == "its worker ends":
        owner.close()
    else:
        for sealed in owner.detach(owner.held):
            sealed.delete()

    def rest() -> None:
        while view.poll() is not None:
            pass

    with pytest.raises(PartitionLost) as raised:
        rest()
    assert raised.value.partition.edge == channel_to().edge
    assert HostLocalPartitions([tmp_path]).find(channel_to()) is None
