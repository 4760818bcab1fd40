"""Blocking partitions: written to files, read when they are whole, as often as anybody wants."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.eventually import WAIT_S
from tests.unit.worker.worker_partitions import (
    ATTEMPT,
    EDGE,
    batch_of,
    channel_to,
    create,
    files_in,
    read,
    seal,
    values_of,
)
from unistream.base.errors import ConfigError, PartitionLost, Transient
from unistream.base.ids import CheckpointId, EdgeId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import (
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    Watermark,
    WatermarkStatus,
)
from unistream.model.graph import Ship
from unistream.model.key_groups import key_groups, subtask_of_key_group
from unistream.model.partition_type import PartitionType
from unistream.worker.exchange import SPILL_FOLDER_PREFIX, BlockingPartitions, PartitionRegistry, spill_roots
from unistream.worker.exchange.blocking_partition import PARTIAL, SPILL_BYTES

# --- what is in the files -------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [1, 2, 7, 128])
def test_a_hash_edge_sends_each_row_to_the_owner_of_its_key_group_in_order(
    consumers: int, store: BlockingPartitions
) -> None:
    partition = create(store, Ship.HASH, consumers)
    for start in range(0, 60_000, 5_000):
        partition.emit(batch_of(5_000, start))
    seal(partition)
    seen: list[int] = []
    for index in range(consumers):
        elements = read(store, index)
        assert elements[-2:] == [EndOfData(), EndOfPartition()]
        for batch in elements[:-2]:
            assert isinstance(batch, Batch)
            groups = key_groups(batch.records, ["k"], 128)
            assert {subtask_of_key_group(128, consumers, int(g)) for g in groups} == {index}
            assert batch.timestamps == batch.records.column("v")
        values = values_of(elements)
        assert values == sorted(values)
        seen += values
    assert sorted(seen) == list(range(60_000))
    assert partition.rows_out == 60_000


def test_a_broadcast_edge_is_written_once_and_read_by_all(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store, Ship.BROADCAST, 5)
    partition.emit(batch_of(1000))
    seal(partition)
    assert len(files_in(tmp_path)) == 1
    assert [values_of(read(store, index)) for index in range(5)] == [list(range(1000))] * 5


def test_a_global_edge_reaches_subtask_0_only(store: BlockingPartitions) -> None:
    partition = create(store, Ship.GLOBAL, 3)
    partition.emit(batch_of(1000))
    seal(partition)
    assert [len(values_of(read(store, index))) for index in range(3)] == [1000, 0, 0]
    assert read(store, 2) == [EndOfData(), EndOfPartition()]


@pytest.mark.parametrize("ship", [Ship.REBALANCE, Ship.RESCALE])
def test_round_robin_gives_everybody_a_share_and_every_row_once(
    ship: Ship, store: BlockingPartitions
) -> None:
    partition = create(store, ship, 3)
    for start in range(0, 300_000, 1_000):
        partition.emit(batch_of(1_000, start))
    seal(partition)
    shares = [values_of(read(store, index)) for index in range(3)]
    assert min(len(share) for share in shares) > 50_000
    assert sorted(v for share in shares for v in share) == list(range(300_000))
    assert all(share == sorted(share) for share in shares)


def test_small_batches_are_merged_and_large_ones_divided(store: BlockingPartitions) -> None:
    partition = create(store)
    for start in range(0, 10_000, 10):
        partition.emit(batch_of(10, start))
    partition.emit(batch_of(500_000, 10_000))
    seal(partition)
    sizes = [e.num_rows for e in read(store) if isinstance(e, Batch)]
    assert len(sizes) < 12
    assert max(sizes) <= 65_536


def test_batches_that_cannot_be_joined_stay_as_they_are(store: BlockingPartitions) -> None:
    def nested(words: list[str]) -> Batch:
        column = pa.array([words]).cast(pa.list_(pa.dictionary(pa.int8(), pa.string())))
        return Batch(pa.record_batch({"w": column}))

    partition = create(store)
    partition.emit(nested(["a"]))
    partition.emit(nested(["b", "c"]))
    partition.emit(batch_of(1))
    partition.emit(Batch(batch_of(1).records))
    seal(partition)
    rows = [e for e in read(store) if isinstance(e, Batch)]
    assert [r for e in rows for r in e.records.to_pylist()] == [
        {"w": ["a"]},
        {"w": ["b", "c"]},
        {"k": 0, "v": 0},
        {"k": 0, "v": 0},
    ]
    assert [e.timestamps is None for e in rows[-2:]] == [False, True]


def test_events_keep_their_place_and_barriers_never_enter(store: BlockingPartitions) -> None:
    partition = create(store, Ship.REBALANCE, 2)
    partition.broadcast(WatermarkStatus(idle=True))
    partition.emit(batch_of(10))
    partition.broadcast(CheckpointBarrier(CheckpointId(1), 0))
    partition.broadcast(Watermark(5))
    partition.broadcast(CancelCheckpointMarker(CheckpointId(2)))
    partition.emit(batch_of(10, 10))
    partition.broadcast(Watermark(MAX_WATERMARK))
    partition.broadcast(EndOfData(drain=False))
    partition.broadcast(EndOfPartition())
    late = ["Watermark", "EndOfData", "EndOfPartition"]
    kinds = [[type(e).__name__ for e in read(store, index)] for index in range(2)]
    # the rows before the first watermark went to one consumer, those behind it to the next
    assert sorted(kinds) == [
        ["WatermarkStatus", "Batch", "Watermark", *late],
        ["WatermarkStatus", "Watermark", "Batch", *late],
    ]
    assert read(store)[-2] == EndOfData(drain=False)


def test_what_waits_in_memory_is_bounded(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store, Ship.HASH, 4)
    batch = batch_of(50_000)
    written = 0
    while written < 4 * SPILL_BYTES:
        partition.emit(batch)
        written += batch.nbytes
        assert partition._pending_bytes <= SPILL_BYTES
    assert sum(p.stat().st_size for p in files_in(tmp_path)) > 2 * SPILL_BYTES
    for number in range(SPILL_BYTES):
        partition.broadcast(Watermark(number))
        if not partition._pending:
            break
    assert not partition._pending, "events are counted too"
    partition.abandon()


# --- life -----------------------------------------------------------------------------------------


def test_it_exists_when_it_is_whole(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store)
    assert partition.has_room
    assert partition.flush_at_ms is None
    partition.emit(batch_of(5_000_000))
    partition.flush()
    partition.broadcast(EndOfData())
    assert store.open_subpartition(channel_to(), lambda: None) is None
    assert all(PARTIAL in str(path) for path in files_in(tmp_path))
    partition.broadcast(EndOfPartition())
    assert store.held == ((ATTEMPT, EDGE),)
    assert not any(PARTIAL in str(path) for path in files_in(tmp_path))
    assert len(values_of(read(store))) == 5_000_000


def test_it_is_read_as_often_and_by_as_many_as_want_to(store: BlockingPartitions) -> None:
    partition = create(store, Ship.FORWARD)
    partition.emit(batch_of(100_000))
    seal(partition)
    calls: list[int] = []
    views = [store.open_subpartition(channel_to(), lambda: calls.append(1)) for _ in range(3)]
    assert len(calls) == 3, "there is something to poll"
    found: list[list[Element]] = [[], [], []]
    for _ in range(8):
        for view, elements in zip(views, found, strict=True):
            assert view is not None
            if (element := view.poll()) is not None:
                elements.append(element)
    assert [values_of(elements) for elements in found] == [list(range(100_000))] * 3
    assert values_of(read(store)) == list(range(100_000))


def test_a_reader_that_leaves_early_hurts_nobody(store: BlockingPartitions) -> None:
    partition = create(store)
    partition.emit(batch_of(100_000))
    seal(partition)
    view = store.open_subpartition(channel_to(), lambda: None)
    assert view is not None
    view.poll()
    view.release(Transient("gone"))
    assert view.poll() is None
    assert len(values_of(read(store))) == 100_000


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(channel_to(1), id="a subpartition that does not exist"),
        pytest.param(channel_to(-1), id="a negative one"),
        pytest.param(channel_to(edge=EdgeId("f")), id="another edge"),
        pytest.param(channel_to(attempt=msgspec.structs.replace(ATTEMPT, attempt=3)), id="an older attempt"),
    ],
)
def test_what_is_not_there_is_not_found(channel: ChannelDescriptor, store: BlockingPartitions) -> None:
    seal(create(store))
    assert store.open_subpartition(channel, lambda: None) is None


def test_abandoning_leaves_nothing(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store)
    partition.emit(batch_of(5_000_000))
    assert files_in(tmp_path)
    partition.abandon()
    partition.abandon()
    assert files_in(tmp_path) == []


def test_abandoning_deletes_what_was_sealed_too(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = create(store)
    seal(partition)
    partition.abandon()
    assert files_in(tmp_path) == []


def test_released_partitions_are_deleted_and_unknown_ones_are_fine(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    seal(create(store))
    view = store.open_subpartition(channel_to(), lambda: None)
    assert view is not None
    (sealed,) = store.detach([(ATTEMPT, EDGE), (ATTEMPT, EdgeId("unknown"))])
    assert store.open_subpartition(channel_to(), lambda: None) is None
    sealed.delete()
    sealed.delete()
    assert files_in(tmp_path) == []
    assert store.detach([(ATTEMPT, EDGE)]) == []
    with pytest.raises(PartitionLost, match="No such file"):
        view.poll()


def test_partitions_of_one_attempt_are_found_together(store: BlockingPartitions) -> None:
    for edge in (EDGE, EdgeId("f")):
        seal(create(store, edge=edge))
    other = msgspec.structs.replace(ATTEMPT, attempt=5)
    seal(create(store, attempt=other))
    assert len(store.detach_attempt(ATTEMPT)) == 2
    assert store.held == ((other, EDGE),)


def test_what_outlives_its_job_stays(store: BlockingPartitions) -> None:
    seal(create(store, edge=EdgeId("f"), type=PartitionType.BLOCKING_PERSISTENT))
    seal(create(store))
    assert store.jobs == (ATTEMPT.job,)
    assert [sealed.edge for sealed in store.detach_job(ATTEMPT.job)] == [EDGE]
    assert store.jobs == ()


def test_nothing_is_left_when_the_worker_ends(tmp_path: Path) -> None:
    store = BlockingPartitions([tmp_path])
    seal(create(store))
    unfinished = create(store)
    unfinished.emit(batch_of(5_000_000))
    store.close()
    store.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Transient):
        seal(unfinished)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="shutting down"):
        create(store)


def test_a_killed_worker_leaves_nothing_that_the_next_one_keeps(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from tests.unit.worker.worker_partitions import batch_of, create, seal
        from unistream.worker.exchange.blocking_store import BlockingPartitions
        store = BlockingPartitions([Path({str(tmp_path)!r})])
        seal(create(store))
        create(store).emit(batch_of(5_000_000))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        timeout=WAIT_S,
        check=False,
    )
    assert killed.returncode == -9
    living = BlockingPartitions([tmp_path])
    seal(create(living))
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith(SPILL_FOLDER_PREFIX), "only that of the living one is left"
    BlockingPartitions([tmp_path]).remove_leftovers()
    assert values_of(read(living)) == [], "which a third one does not touch"
    living.close()
    assert list(tmp_path.iterdir()) == []


def test_partitions_are_spread_over_the_folders(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        root.mkdir()
    store = BlockingPartitions(roots)
    for number in range(4):
        seal(create(store, edge=EdgeId(str(number))))
    assert [len(files_in(root)) for root in roots] == [2, 2]
    store.close()
    assert [list(root.iterdir()) for root in roots] == [[], []]


def test_a_folder_that_cannot_be_used_is_named_with_its_option(tmp_path: Path) -> None:
    store = BlockingPartitions([tmp_path / "missing"])
    store.remove_leftovers()
    with pytest.raises(ConfigError, match=r"io\.tmp\.dirs: .*missing: No such file or directory"):
        create(store)


@pytest.mark.parametrize(
    ("text", "roots"),
    [
        (None, ["/default"]),
        ("", ["/default"]),
        (" , ", ["/default"]),
        ("/a", ["/a"]),
        ("/a,/b", ["/a", "/b"]),
        ("/a:/b , /c", ["/a", "/b", "/c"]),
    ],
)
def test_io_tmp_dirs(text: str | None, roots: list[str]) -> None:
    assert spill_roots(text, "/default") == [Path(root) for root in roots]


# --- the registry ---------------------------------------------------------------------------------


def test_the_registry_finds_sealed_partitions_and_wakes_who_waits(store: BlockingPartitions) -> None:
    registry = PartitionRegistry(store)
    calls: list[str] = []
    registry.when_registered(channel_to(), lambda: calls.append("early"))
    partition = create(store)
    assert calls == []
    seal(partition)
    assert calls == ["early"]
    registry.when_registered(channel_to(), lambda: calls.append("late"))
    assert calls == ["early", "late"]
    view = registry.open_subpartition(channel_to(), lambda: calls.append("open"))
    assert view is not None
    assert view.poll() == EndOfData()
    registry.release(ATTEMPT)
    assert registry.open_subpartition(channel_to(), lambda: None) is None
