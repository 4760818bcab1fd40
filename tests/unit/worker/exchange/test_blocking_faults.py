"""Blocking partitions whose disk is full or whose files are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.worker.worker_partitions import (
    ATTEMPT,
    batch_of,
    create,
    files_in,
    fill_disk,
    flip_bit,
    read,
    seal,
    values_of,
)
from unistream.base.errors import PartitionLost, Transient
from unistream.base.ids import AttemptId
from unistream.model.graph import Ship
from unistream.worker.exchange import BlockingPartitions


def test_a_full_disk_is_said_in_one_sentence_and_nothing_is_left(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    partition = create(store)
    fill_disk(partition)
    with pytest.raises(Transient) as raised:
        partition.emit(batch_of(5_000_000))
    assert str(raised.value).startswith("the blocking partition of edge e cannot be written to ")
    assert "No space left on device; make room there" in str(raised.value)
    assert files_in(tmp_path) == []
    assert store.held == ()


def test_a_disk_that_is_full_at_the_very_end_seals_nothing(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store, Ship.HASH, 3)
    fill_disk(partition, 2)
    partition.emit(batch_of(100))
    with pytest.raises(Transient, match="No space left"):
        seal(partition)
    assert files_in(tmp_path) == []
    assert store.held == ()


def test_a_flipped_bit_loses_the_partition_with_the_name_of_its_file(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    partition = create(store, Ship.HASH, 2)
    partition.emit(batch_of(100_000))
    seal(partition)
    damaged = next(path for path in files_in(tmp_path) if path.name == "1")
    flip_bit(damaged, damaged.stat().st_size // 2)
    assert len(values_of(read(store, 0))) > 0, "the other file is whole"
    with pytest.raises(PartitionLost, match="does not match its checksum") as raised:
        read(store, 1)
    assert str(damaged) in str(raised.value)
    assert str(raised.value.partition) == "v#1>e"


def test_a_flipped_bit_is_found_wherever_it_is(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store)
    partition.emit(batch_of(3))
    seal(partition)
    (path,) = files_in(tmp_path)
    for at in range(path.stat().st_size):
        flip_bit(path, at)
        with pytest.raises(PartitionLost, match="does not match its checksum"):
            read(store)
        flip_bit(path, at)
    assert values_of(read(store)), "whole again"


def test_a_folder_that_a_cleaner_has_removed_is_made_anew_for_what_follows(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    later = AttemptId(ATTEMPT.job, ATTEMPT.vertex, ATTEMPT.index, ATTEMPT.attempt + 1)
    first, second = create(store), create(store, attempt=later)
    for partition in (first, second):
        partition.emit(batch_of(100))
    seal(first)
    (path,) = files_in(tmp_path)
    shutil.rmtree(path.parent.parent)
    with pytest.raises(PartitionLost, match="No such file"):
        read(store)
    with pytest.raises(Transient, match="cannot be written"):
        seal(second)
    third = create(store, attempt=later)
    third.emit(batch_of(100))
    seal(third)
    assert len(values_of(read(store, attempt=later))) == 100


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda path: path.unlink(), "No such file", id="deleted"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-40]), "it ends at byte", id="cut off"),
        pytest.param(lambda path: path.write_bytes(b""), "it ends at byte 0", id="emptied"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "Is a directory", id="not a file"),
    ],
)
def test_a_file_that_is_not_as_it_was_loses_the_partition(
    damage: Callable[[Path], object], reason: str, store: BlockingPartitions, tmp_path: Path
) -> None:
    partition = create(store)
    partition.emit(batch_of(100))
    seal(partition)
    damage(files_in(tmp_path)[0])
    with pytest.raises(PartitionLost, match=reason):
        read(store)
