"""Blocking partitions: written to files, read when they are whole, as often as anybody wants."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, PartitionLost, Transient
from unistream.base.ids import AttemptId, CheckpointId, EdgeId, JobId, OperatorUid, TaskManagerId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.chain import Chain, ChainNode, EdgeOutput
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
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.key_groups import key_groups, subtask_of_key_group
from unistream.model.messages import ChannelDescriptor, PartitionDescriptor, Split
from unistream.model.partition_type import PartitionType
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.base import BaseOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows
from unistream.testing.task_harness import TaskJob
from unistream.worker.blocking_partition import PARTIAL, SPILL_BYTES, BlockingPartition
from unistream.worker.blocking_store import PREFIX, BlockingPartitions, spill_roots
from unistream.worker.partition_registry import PartitionRegistry
from unistream.worker.task_state import TaskState

JOB = JobId("0" * 32)
ATTEMPT = AttemptId(JOB, VertexId("v"), 1, 4)
EDGE = EdgeId("e")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingPartitions]:
    store = BlockingPartitions([tmp_path])
    yield store
    store.close()


def _descriptor(ship: Ship, consumers: int, edge: EdgeId = EDGE) -> PartitionDescriptor:
    return PartitionDescriptor(
        edge=edge,
        ship=ship,
        consumers=tuple(range(consumers)),
        consumer_parallelism=consumers,
        consumer_max_parallelism=128,
        key_columns=("k",),
        type=PartitionType.BLOCKING,
    )


def _create(store: BlockingPartitions, ship: Ship = Ship.FORWARD, consumers: int = 1) -> BlockingPartition:
    return store.create(ATTEMPT, _descriptor(ship, consumers))


def _channel(subpartition: int = 0, attempt: AttemptId = ATTEMPT, edge: EdgeId = EDGE) -> ChannelDescriptor:
    return ChannelDescriptor(
        producer=attempt,
        edge=edge,
        subpartition=subpartition,
        task_manager=TaskManagerId("tm"),
        address="",
    )


def _batch(count: int, start: int = 0) -> Batch:
    values = np.arange(start, start + count, dtype=np.int64)
    return Batch(pa.record_batch({"k": values % 97, "v": values}), pa.array(values))


def _end(partition: BlockingPartition) -> None:
    partition.broadcast(EndOfData())
    partition.broadcast(EndOfPartition())


def _read(store: BlockingPartitions, subpartition: int = 0) -> list[Element]:
    view = store.open_subpartition(_channel(subpartition), lambda: None)
    assert view is not None
    found = []
    while (element := view.poll()) is not None:
        found.append(element)
    return found


def _values(elements: list[Element]) -> list[int]:
    return [v for e in elements if isinstance(e, Batch) for v in e.records.column("v").to_pylist()]


def _files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and p.name != "lock"]


# --- what is in the files -------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [1, 2, 7, 128])
def test_a_hash_edge_sends_each_row_to_the_owner_of_its_key_group_in_order(
    consumers: int, store: BlockingPartitions
) -> None:
    partition = _create(store, Ship.HASH, consumers)
    for start in range(0, 60_000, 5_000):
        partition.emit(_batch(5_000, start))
    _end(partition)
    seen: list[int] = []
    for index in range(consumers):
        elements = _read(store, index)
        assert elements[-2:] == [EndOfData(), EndOfPartition()]
        for batch in elements[:-2]:
            assert isinstance(batch, Batch)
            groups = key_groups(batch.records, ["k"], 128)
            assert {subtask_of_key_group(128, consumers, int(g)) for g in groups} == {index}
            assert batch.timestamps == batch.records.column("v")
        values = _values(elements)
        assert values == sorted(values)
        seen += values
    assert sorted(seen) == list(range(60_000))
    assert partition.rows_out == 60_000


def test_a_broadcast_edge_is_written_once_and_read_by_all(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store, Ship.BROADCAST, 5)
    partition.emit(_batch(1000))
    _end(partition)
    assert len(_files(tmp_path)) == 1
    assert [_values(_read(store, index)) for index in range(5)] == [list(range(1000))] * 5


def test_a_global_edge_reaches_subtask_0_only(store: BlockingPartitions) -> None:
    partition = _create(store, Ship.GLOBAL, 3)
    partition.emit(_batch(1000))
    _end(partition)
    assert [len(_values(_read(store, index))) for index in range(3)] == [1000, 0, 0]
    assert _read(store, 2) == [EndOfData(), EndOfPartition()]


@pytest.mark.parametrize("ship", [Ship.REBALANCE, Ship.RESCALE])
def test_round_robin_gives_everybody_a_share_and_every_row_once(
    ship: Ship, store: BlockingPartitions
) -> None:
    partition = _create(store, ship, 3)
    for start in range(0, 300_000, 1_000):
        partition.emit(_batch(1_000, start))
    _end(partition)
    shares = [_values(_read(store, index)) for index in range(3)]
    assert min(len(share) for share in shares) > 50_000
    assert sorted(v for share in shares for v in share) == list(range(300_000))
    assert all(share == sorted(share) for share in shares)


def test_small_batches_are_merged_and_large_ones_divided(store: BlockingPartitions) -> None:
    partition = _create(store)
    for start in range(0, 10_000, 10):
        partition.emit(_batch(10, start))
    partition.emit(_batch(500_000, 10_000))
    _end(partition)
    sizes = [e.num_rows for e in _read(store) if isinstance(e, Batch)]
    assert len(sizes) < 12
    assert max(sizes) <= 65_536


def test_batches_that_cannot_be_joined_stay_as_they_are(store: BlockingPartitions) -> None:
    def nested(words: list[str]) -> Batch:
        column = pa.array([words]).cast(pa.list_(pa.dictionary(pa.int8(), pa.string())))
        return Batch(pa.record_batch({"w": column}))

    partition = _create(store)
    partition.emit(nested(["a"]))
    partition.emit(nested(["b", "c"]))
    partition.emit(_batch(1))
    partition.emit(Batch(_batch(1).records))
    _end(partition)
    rows = [e for e in _read(store) if isinstance(e, Batch)]
    assert [r for e in rows for r in e.records.to_pylist()] == [
        {"w": ["a"]},
        {"w": ["b", "c"]},
        {"k": 0, "v": 0},
        {"k": 0, "v": 0},
    ]
    assert [e.timestamps is None for e in rows[-2:]] == [False, True]


def test_events_keep_their_place_and_barriers_never_enter(store: BlockingPartitions) -> None:
    partition = _create(store, Ship.REBALANCE, 2)
    partition.broadcast(WatermarkStatus(idle=True))
    partition.emit(_batch(10))
    partition.broadcast(CheckpointBarrier(CheckpointId(1), 0))
    partition.broadcast(Watermark(5))
    partition.broadcast(CancelCheckpointMarker(CheckpointId(2)))
    partition.emit(_batch(10, 10))
    partition.broadcast(Watermark(MAX_WATERMARK))
    partition.broadcast(EndOfData(drain=False))
    partition.broadcast(EndOfPartition())
    late = ["Watermark", "EndOfData", "EndOfPartition"]
    kinds = [[type(e).__name__ for e in _read(store, index)] for index in range(2)]
    # the rows before the first watermark went to one consumer, those behind it to the next
    assert sorted(kinds) == [
        ["WatermarkStatus", "Batch", "Watermark", *late],
        ["WatermarkStatus", "Watermark", "Batch", *late],
    ]
    assert _read(store)[-2] == EndOfData(drain=False)


def test_what_waits_in_memory_is_bounded(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store, Ship.HASH, 4)
    batch = _batch(50_000)
    written = 0
    while written < 4 * SPILL_BYTES:
        partition.emit(batch)
        written += batch.nbytes
        assert partition._pending_bytes <= SPILL_BYTES
    assert sum(p.stat().st_size for p in _files(tmp_path)) > 2 * SPILL_BYTES
    for number in range(SPILL_BYTES):
        partition.broadcast(Watermark(number))
        if not partition._pending:
            break
    assert not partition._pending, "events are counted too"
    partition.abandon()


# --- life -----------------------------------------------------------------------------------------


def test_it_exists_when_it_is_whole(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store)
    assert partition.has_room
    assert partition.flush_at_ms is None
    partition.emit(_batch(5_000_000))
    partition.flush()
    partition.broadcast(EndOfData())
    assert store.open_subpartition(_channel(), lambda: None) is None
    assert all(PARTIAL in str(path) for path in _files(tmp_path))
    partition.broadcast(EndOfPartition())
    assert store.held == ((ATTEMPT, EDGE),)
    assert not any(PARTIAL in str(path) for path in _files(tmp_path))
    assert len(_values(_read(store))) == 5_000_000


def test_it_is_read_as_often_and_by_as_many_as_want_to(store: BlockingPartitions) -> None:
    partition = _create(store, Ship.FORWARD)
    partition.emit(_batch(100_000))
    _end(partition)
    calls: list[int] = []
    views = [store.open_subpartition(_channel(), lambda: calls.append(1)) for _ in range(3)]
    assert len(calls) == 3, "there is something to poll"
    found: list[list[Element]] = [[], [], []]
    for _ in range(8):
        for view, elements in zip(views, found, strict=True):
            assert view is not None
            if (element := view.poll()) is not None:
                elements.append(element)
    assert [_values(elements) for elements in found] == [list(range(100_000))] * 3
    assert _values(_read(store)) == list(range(100_000))


def test_a_reader_that_leaves_early_hurts_nobody(store: BlockingPartitions) -> None:
    partition = _create(store)
    partition.emit(_batch(100_000))
    _end(partition)
    view = store.open_subpartition(_channel(), lambda: None)
    assert view is not None
    view.poll()
    view.release(Transient("gone"))
    assert view.poll() is None
    assert len(_values(_read(store))) == 100_000


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(_channel(1), id="a subpartition that does not exist"),
        pytest.param(_channel(-1), id="a negative one"),
        pytest.param(_channel(edge=EdgeId("f")), id="another edge"),
        pytest.param(_channel(attempt=msgspec.structs.replace(ATTEMPT, attempt=3)), id="an older attempt"),
    ],
)
def test_what_is_not_there_is_not_found(channel: ChannelDescriptor, store: BlockingPartitions) -> None:
    _end(_create(store))
    assert store.open_subpartition(channel, lambda: None) is None


def test_abandoning_leaves_nothing(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store)
    partition.emit(_batch(5_000_000))
    assert _files(tmp_path)
    partition.abandon()
    partition.abandon()
    assert _files(tmp_path) == []


def test_abandoning_deletes_what_was_sealed_too(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store)
    _end(partition)
    partition.abandon()
    assert _files(tmp_path) == []


def test_released_partitions_are_deleted_and_unknown_ones_are_fine(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    _end(_create(store))
    view = store.open_subpartition(_channel(), lambda: None)
    assert view is not None
    (sealed,) = store.detach([(ATTEMPT, EDGE), (ATTEMPT, EdgeId("unknown"))])
    assert store.open_subpartition(_channel(), lambda: None) is None
    sealed.delete()
    sealed.delete()
    assert _files(tmp_path) == []
    assert store.detach([(ATTEMPT, EDGE)]) == []
    with pytest.raises(PartitionLost, match="No such file"):
        view.poll()


def test_partitions_of_one_attempt_are_found_together(store: BlockingPartitions) -> None:
    for edge in (EDGE, EdgeId("f")):
        _end(store.create(ATTEMPT, _descriptor(Ship.FORWARD, 1, edge)))
    other = msgspec.structs.replace(ATTEMPT, attempt=5)
    _end(store.create(other, _descriptor(Ship.FORWARD, 1)))
    assert len(store.detach_attempt(ATTEMPT)) == 2
    assert store.held == ((other, EDGE),)


def test_what_outlives_its_job_stays(store: BlockingPartitions) -> None:
    lasting = _descriptor(Ship.FORWARD, 1, EdgeId("f"))
    _end(store.create(ATTEMPT, msgspec.structs.replace(lasting, type=PartitionType.BLOCKING_PERSISTENT)))
    _end(_create(store))
    assert store.jobs == (ATTEMPT.job,)
    assert [sealed.edge for sealed in store.detach_job(ATTEMPT.job)] == [EDGE]
    assert store.jobs == ()


def test_nothing_is_left_when_the_worker_ends(tmp_path: Path) -> None:
    store = BlockingPartitions([tmp_path])
    _end(_create(store))
    unfinished = _create(store)
    unfinished.emit(_batch(5_000_000))
    store.close()
    store.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Transient):
        _end(unfinished)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="ends"):
        _create(store)


def test_a_killed_worker_leaves_nothing_that_the_next_one_keeps(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from tests_blocking import _batch, _create, _end
        from unistream.worker.blocking_store import BlockingPartitions
        store = BlockingPartitions([Path({str(tmp_path)!r})])
        _end(_create(store))
        _create(store).emit(_batch(5_000_000))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    load = f"""
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("tests_blocking", {__file__!r})
        sys.modules["tests_blocking"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(load) + textwrap.dedent(program)], timeout=60, check=False
    )
    assert killed.returncode == -9
    living = BlockingPartitions([tmp_path])
    _end(_create(living))
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith(PREFIX), "only that of the living one is left"
    BlockingPartitions([tmp_path]).remove_leftovers()
    assert _values(_read(living)) == [], "which a third one does not touch"
    living.close()
    assert list(tmp_path.iterdir()) == []


def test_partitions_are_spread_over_the_folders(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        root.mkdir()
    store = BlockingPartitions(roots)
    for number in range(4):
        _end(store.create(ATTEMPT, _descriptor(Ship.FORWARD, 1, EdgeId(str(number)))))
    assert [len(_files(root)) for root in roots] == [2, 2]
    store.close()
    assert [list(root.iterdir()) for root in roots] == [[], []]


def test_a_folder_that_cannot_be_used_is_named_with_its_option(tmp_path: Path) -> None:
    store = BlockingPartitions([tmp_path / "missing"])
    store.remove_leftovers()
    with pytest.raises(ConfigError, match=r"io\.tmp\.dirs: .*missing: No such file or directory"):
        _create(store)


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


# --- faults ---------------------------------------------------------------------------------------


def _full_disk(partition: BlockingPartition, number: int = 0) -> None:
    """Whatever is written to that file meets the kernel's own "No space left on device"."""
    partition._partial.mkdir(parents=True)
    (partition._partial / str(number)).symlink_to("/dev/full")


def test_a_full_disk_is_said_in_one_sentence_and_nothing_is_left(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    partition = _create(store)
    _full_disk(partition)
    with pytest.raises(Transient) as raised:
        partition.emit(_batch(5_000_000))
    assert str(raised.value).startswith("the blocking partition of edge e cannot be written to ")
    assert "No space left on device; make room there" in str(raised.value)
    assert _files(tmp_path) == []
    assert store.held == ()


def test_a_disk_that_is_full_at_the_very_end_seals_nothing(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store, Ship.HASH, 3)
    _full_disk(partition, 2)
    partition.emit(_batch(100))
    with pytest.raises(Transient, match="No space left"):
        _end(partition)
    assert _files(tmp_path) == []
    assert store.held == ()


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_a_flipped_bit_loses_the_partition_with_the_name_of_its_file(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    partition = _create(store, Ship.HASH, 2)
    partition.emit(_batch(100_000))
    _end(partition)
    damaged = next(path for path in _files(tmp_path) if path.name == "1")
    _flip(damaged, damaged.stat().st_size // 2)
    assert len(_values(_read(store, 0))) > 0, "the other file is whole"
    with pytest.raises(PartitionLost, match="does not match its checksum") as raised:
        _read(store, 1)
    assert str(damaged) in str(raised.value)
    assert str(raised.value.partition) == "v#1>e"


def test_a_flipped_bit_is_found_wherever_it_is(store: BlockingPartitions, tmp_path: Path) -> None:
    partition = _create(store)
    partition.emit(_batch(3))
    _end(partition)
    (path,) = _files(tmp_path)
    for at in range(path.stat().st_size):
        _flip(path, at)
        with pytest.raises(PartitionLost, match="does not match its checksum"):
            _read(store)
        _flip(path, at)
    assert _values(_read(store)), "whole again"


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
    partition = _create(store)
    partition.emit(_batch(100))
    _end(partition)
    damage(_files(tmp_path)[0])
    with pytest.raises(PartitionLost, match=reason):
        _read(store)


# --- the registry ---------------------------------------------------------------------------------


def test_the_registry_finds_sealed_partitions_and_wakes_who_waits(store: BlockingPartitions) -> None:
    registry = PartitionRegistry(store)
    calls: list[str] = []
    registry.when_registered(_channel(), lambda: calls.append("early"))
    partition = _create(store)
    assert calls == []
    _end(partition)
    assert calls == ["early"]
    registry.when_registered(_channel(), lambda: calls.append("late"))
    assert calls == ["early", "late"]
    view = registry.open_subpartition(_channel(), lambda: calls.append("open"))
    assert view is not None
    assert view.poll() == EndOfData()
    registry.release(ATTEMPT)
    assert registry.open_subpartition(_channel(), lambda: None) is None


# --- whole tasks ----------------------------------------------------------------------------------


class _Numbers:
    """Split "from-to": rows of these numbers."""

    def __init__(self) -> None:
        self.splits: list[tuple[str, int, int]] = []
        self.last = False

    def open(self, context: ReaderContext) -> None:
        pass

    def add_splits(self, splits: list[Split]) -> None:
        for split in splits:
            start, end = split.data.decode().split("-")
            self.splits.append((split.id, int(start), int(end)))

    def no_more_splits(self) -> None:
        self.last = True

    def poll(self) -> Polled:
        if self.splits:
            split, start, end = self.splits.pop()
            batch = _batch(end - start, start)
            return Rows(split, batch.records, batch.timestamps)
        return Exhausted() if self.last else Idle()

    def snapshot(self) -> list[Split]:
        return []

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


class _Source:
    name = "numbers"
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def info(self) -> SourceInfo:
        return SourceInfo(connector="numbers", options={}, bounded=True, pull=False)

    def create_reader(self) -> _Numbers:
        return _Numbers()


class _Collect(BaseOperator):
    """Remembers the values."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.values += batch.records.column("v").to_pylist()


def _job(store: BlockingPartitions, values: list[int], parallelism: int = 2) -> TaskJob:
    def vertex(name: str, inputs: int) -> JobVertex:
        return JobVertex(
            id=VertexId(name),
            name=name,
            operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
            parallelism=parallelism,
            max_parallelism=32,
            source=_Source().info() if inputs == 0 else None,
            inputs=inputs,
        )

    edge = JobEdge(
        id=EDGE,
        source=VertexId("S"),
        target=VertexId("K"),
        ship=Ship.HASH,
        key_columns=("k",),
        partition=PartitionType.BLOCKING,
    )
    graph = JobGraph(name="batch", vertices=(vertex("S", 0), vertex("K", 1)), edges=(edge,), config={})
    source = SourceOperatorSpec(source=_Source(), watermarks=WatermarkStrategy.for_monotonous_timestamps())
    outputs = (EdgeOutput(edge=EDGE),)
    produce = ChainNode(uid=OperatorUid("S"), name="S", operator=source, outputs=outputs)
    consume = ChainNode(uid=OperatorUid("K"), name="K", operator=_Collect(values))
    chains = {VertexId("S"): Chain(nodes=(produce,)), VertexId("K"): Chain(nodes=(consume,))}
    return TaskJob(graph, chains, checkpointing=False, blocking=store)


def _assign(job: TaskJob, rows: int = 10_000) -> None:
    for index in range(2):
        split = Split(id=str(index), data=f"{index * rows}-{(index + 1) * rows}".encode())
        job.assign("S", [split], index=index, no_more=True)


def test_producers_finish_without_waiting_for_anybody_who_reads(store: BlockingPartitions) -> None:
    values: list[int] = []
    job = _job(store, values)
    producers = [task.deployment.attempt.subtask for task in (job.task("S", 0), job.task("S", 1))]
    _assign(job)
    job.run(producers)
    assert {job.task("S", n).state for n in range(2)} == {TaskState.FINISHED}
    assert values == []
    assert len(store.held) == 2
    job.run()
    assert set(job.states().values()) == {TaskState.FINISHED}
    assert sorted(values) == list(range(20_000))
    assert len(store.held) == 2, "what was read stays until it is released"
    assert job.task("S").metrics().records_out == 10_000


def test_a_producer_that_meets_a_full_disk_fails_with_the_sentence(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    job = _job(store, [])
    partition = job.task("S").partitions[0]
    assert isinstance(partition, BlockingPartition)
    _full_disk(partition)
    _assign(job)
    job.run([job.task("S").deployment.attempt.subtask])
    assert job.task("S").state is TaskState.FAILED
    (failure,) = job.failures.values()
    assert "No space left on device" in failure.message
    assert failure.recoverable
    assert failure.lost_partition is None
    assert _files(tmp_path) == []


def test_a_cancelled_producer_leaves_nothing(store: BlockingPartitions, tmp_path: Path) -> None:
    job = _job(store, [])
    job.assign("S", [Split(id="0", data=b"0-5000000")])
    job.run()
    assert _files(tmp_path)
    job.cancel()
    job.run()
    assert set(job.states().values()) == {TaskState.CANCELED}
    assert _files(tmp_path) == []


def test_a_consumer_of_a_damaged_partition_says_which_one_is_lost(
    store: BlockingPartitions, tmp_path: Path
) -> None:
    job = _job(store, [])
    _assign(job)
    job.run([job.task("S", n).deployment.attempt.subtask for n in range(2)])
    for path in _files(tmp_path):
        if path.name == "1":
            _flip(path, os.path.getsize(path) // 2)
    job.run()
    assert job.task("K", 0).state is TaskState.FINISHED
    assert job.task("K", 1).state is TaskState.FAILED
    (failure,) = job.failures.values()
    assert str(failure.lost_partition) in {"S#0>e", "S#1>e"}
    assert failure.kind == "PartitionLost"


def test_a_consumer_of_a_partition_that_is_not_there_says_so_after_its_timeout(
    store: BlockingPartitions,
) -> None:
    job = _job(store, [])
    _assign(job)
    job.run([job.task("S", 0).deployment.attempt.subtask])
    job.run([job.task("K", 0).deployment.attempt.subtask])
    job.clock.now_ms += 10_000
    job.run([job.task("K", 0).deployment.attempt.subtask])
    (failure,) = job.failures.values()
    assert str(failure.lost_partition) == "S#1>e"
    assert "did not appear in time" in failure.message
