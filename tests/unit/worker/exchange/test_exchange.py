"""Partitions, channels and gates: how rows and events get from one task to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.worker.worker_partitions import batch_of, descriptor_of, values_of
from unistream.base.errors import PartitionLost, Transient
from unistream.base.ids import AttemptId, CheckpointId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.base.limits import BATCH_ROWS_MAX, LOCAL_QUEUE_BATCHES, MIB
from unistream.core.task import BarrierAligner
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import (
    AlignmentType,
    Batch,
    CheckpointBarrier,
    Element,
    EndOfBucket,
    EndOfData,
    EndOfPartition,
    Watermark,
    WatermarkStatus,
)
from unistream.model.graph import Ship
from unistream.model.key_groups import key_groups, subtask_of_key_group
from unistream.port.transport import InputSink
from unistream.testing.harness.operators import ManualClock
from unistream.worker.exchange import (
    Gate,
    InputGates,
    LocalInputChannel,
    NetworkMemory,
    PartitionRegistry,
    RemoteInputChannel,
    ResultPartition,
    Shares,
)
from unistream.worker.exchange.channels import Subpartition
from unistream.worker.exchange.shipping import BATCH_BYTES_MAX, COALESCE_ROWS, split_oversized

ATTEMPT = AttemptId(JobId("0" * 32), VertexId("v"), 0, 0)


class _Room:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def _partition(ship: Ship, consumers: int = 3, **options: Any) -> tuple[ResultPartition, ManualClock]:
    clock = ManualClock()
    descriptor = descriptor_of(ship, consumers, committables=options.get("committables", False))
    room = options.get("on_room", _Room())
    memory = options.get("memory", _memory()).partition("out", consumers)
    partition = ResultPartition(
        descriptor, 0, clock=clock, buffer_timeout_ms=100, on_room=room, memory=memory
    )
    return partition, clock


def _memory(total: int = 64 * MIB, **shares: int) -> NetworkMemory:
    default = {"segment": MIB, "exclusive": 2 * MIB, "floating": 8 * MIB, "per_channel_max": 10 * MIB}
    return NetworkMemory(total, Shares(**{**default, **shares}))


def _read(partition: ResultPartition, index: int) -> list[Element]:
    subpartition = partition.subpartition(index)
    assert subpartition is not None
    elements = []
    while (element := subpartition.poll()) is not None:
        elements.append(element)
    return elements


# --- ship strategies ------------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [1, 2, 3, 7, 128])
def test_a_hash_edge_sends_each_row_to_the_owner_of_its_key_group_in_order(consumers: int) -> None:
    partition, _ = _partition(Ship.HASH, consumers)
    batches = [batch_of(5_000, start) for start in (0, 5_000, 10_000)]
    for batch in batches:
        partition.emit(batch)
    partition.broadcast(Watermark(1))
    total = 0
    for index in range(consumers):
        elements = _read(partition, index)
        assert elements[-1] == Watermark(1)
        rows = [e for e in elements if isinstance(e, Batch)]
        for batch in rows:
            groups = key_groups(batch.records, ["k"], 128)
            assert {subtask_of_key_group(128, consumers, int(g)) for g in groups} == {index}
            assert batch.timestamps == batch.records.column("v")
        values = values_of(elements)
        assert values == sorted(values)
        total += len(values)
    assert total == partition.rows_out == 15_000


@pytest.mark.parametrize("consumers", [1, 2, 128])
def test_equal_numbers_go_to_one_owner_and_arrive_in_one_form(consumers: int) -> None:
    """-0.0 is 0.0, and there is one NaN: nothing behind a hash edge has to know better."""
    partition, _ = _partition(Ship.HASH, consumers)
    nan, other_nan = np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64).view(np.float64)
    keys, values = np.array([0.0, -0.0, nan, other_nan, 1.5]), np.arange(5)
    partition.emit(Batch(pa.record_batch({"k": keys, "v": values}), pa.array(values)))
    partition.broadcast(Watermark(1))
    owners: dict[bytes, set[int]] = {}
    rows: dict[bytes, list[int]] = {}
    for index in range(consumers):
        for batch in (e for e in _read(partition, index) if isinstance(e, Batch)):
            for key, value in zip(batch.records["k"].to_numpy(), batch.records["v"].to_pylist(), strict=True):
                owners.setdefault(key.tobytes(), set()).add(index)
                rows.setdefault(key.tobytes(), []).append(value)
    assert all(len(found) == 1 for found in owners.values())
    assert sorted(rows.values()) == [[0, 1], [2, 3], [4]]


def test_small_slices_are_gathered_until_they_are_worth_a_batch() -> None:
    partition, _ = _partition(Ship.HASH, 2)
    for start in range(0, 4 * COALESCE_ROWS, 1_000):
        partition.emit(batch_of(1_000, start))
    sizes = [e.num_rows for e in _read(partition, 0) if isinstance(e, Batch)]
    assert sizes
    assert min(sizes) >= COALESCE_ROWS


def test_gathered_rows_leave_at_the_buffer_timeout() -> None:
    partition, clock = _partition(Ship.HASH, 2)
    clock.now_ms = 50
    partition.emit(batch_of(100))
    assert partition.flush_at_ms == 150
    clock.now_ms = 90
    partition.emit(batch_of(100))
    assert partition.flush_at_ms == 150
    assert _read(partition, 0) == []
    partition.flush()
    assert partition.flush_at_ms is None
    assert len(values_of(_read(partition, 0))) + len(values_of(_read(partition, 1))) == 200


def test_a_schema_that_changes_on_the_way_keeps_its_batches_apart() -> None:
    partition, _ = _partition(Ship.HASH, 2)
    partition.emit(batch_of(100))
    wider = batch_of(100)
    records = wider.records.append_column("more", pa.nulls(100))
    partition.emit(Batch(records, wider.timestamps))
    partition.flush()
    schemas = {tuple(e.records.schema.names) for e in _read(partition, 0) if isinstance(e, Batch)}
    assert schemas == {("k", "v"), ("k", "v", "more")}


def test_round_robin_serves_everybody_and_splits_what_is_large() -> None:
    partition, _ = _partition(Ship.REBALANCE, 3)
    for start in range(6):
        partition.emit(batch_of(10, start * 10))
    assert [len(values_of(_read(partition, i))) for i in range(3)] == [20, 20, 20]
    partition.emit(batch_of(3 * COALESCE_ROWS))
    assert [len(values_of(_read(partition, i))) for i in range(3)] == [COALESCE_ROWS] * 3


@pytest.mark.parametrize(
    ("ship", "rows"), [(Ship.BROADCAST, [10, 10, 10]), (Ship.GLOBAL, [10, 0, 0])], ids=["broadcast", "global"]
)
def test_broadcast_and_global(ship: Ship, rows: list[int]) -> None:
    partition, _ = _partition(ship)
    partition.emit(batch_of(10))
    partition.broadcast(EndOfData())
    read = [_read(partition, i) for i in range(3)]
    assert [len(values_of(elements)) for elements in read] == rows
    assert all(elements[-1] == EndOfData() for elements in read)


@pytest.mark.parametrize(("committables", "first"), [(False, "barrier"), (True, "rows")])
def test_no_barrier_overtakes_what_a_sink_has_prepared(committables: bool, first: str) -> None:
    partition, _ = _partition(Ship.GLOBAL, 1, committables=committables)
    partition.emit(batch_of(3))
    overtaken = partition.send_barrier(
        CheckpointBarrier(CheckpointId(1), 0, alignment=AlignmentType.UNALIGNED)
    )
    assert bool(overtaken) is not committables
    elements = _read(partition, 0)
    assert isinstance(elements[0], Batch if first == "rows" else CheckpointBarrier)


def test_batches_above_the_limits_are_split() -> None:
    assert split_oversized(batch_of(0)) == ()
    assert [b.num_rows for b in split_oversized(batch_of(2 * BATCH_ROWS_MAX + 1))] == [43_691, 43_691, 43_691]
    heavy = Batch(pa.record_batch({"s": ["x" * (BATCH_BYTES_MAX // 8)] * 20}))
    pieces = split_oversized(heavy)
    assert sum(b.num_rows for b in pieces) == 20
    assert all(b.nbytes <= BATCH_BYTES_MAX for b in pieces)
    one = Batch(pa.record_batch({"s": ["x" * (BATCH_BYTES_MAX + 1)]}))
    assert [b.num_rows for b in split_oversized(one)] == [1]


# --- backpressure ---------------------------------------------------------------------------------


def test_a_partition_has_room_until_one_consumer_is_far_behind() -> None:
    room = _Room()
    partition, _ = _partition(Ship.BROADCAST, 2, on_room=room)
    for _ in range(LOCAL_QUEUE_BATCHES):
        assert partition.has_room
        partition.emit(batch_of(1))
    assert not partition.has_room
    partition.broadcast(Watermark(1))  # events need no room
    _read(partition, 0)
    assert not partition.has_room
    slow = partition.subpartition(1)
    assert slow is not None
    calls = room.calls
    slow.poll()
    assert partition.has_room
    assert room.calls == calls + 1


def test_a_consumer_that_is_gone_holds_nobody_back() -> None:
    partition, _ = _partition(Ship.BROADCAST, 2)
    gone = partition.subpartition(1)
    assert gone is not None
    gone.release(Transient("gone"))
    for _ in range(LOCAL_QUEUE_BATCHES - 1):
        partition.emit(batch_of(1))
    assert partition.has_room
    assert gone.poll() is None


def test_the_listener_hears_of_the_first_element_only() -> None:
    subpartition = Subpartition(_memory().partition("out", 1), lambda: None, lambda: None)
    heard = _Room()
    subpartition.add(Watermark(1))
    subpartition.attach(heard)
    assert heard.calls == 1
    subpartition.add(Watermark(2))
    assert heard.calls == 1
    assert [subpartition.poll(), subpartition.poll(), subpartition.poll()] == [
        Watermark(1),
        Watermark(2),
        None,
    ]
    subpartition.add(Watermark(3))
    assert heard.calls == 2


# --- channels -------------------------------------------------------------------------------------


def _channel_descriptor(subpartition: int = 0) -> ChannelDescriptor:
    return ChannelDescriptor(
        producer=ATTEMPT,
        edge=EdgeId("e"),
        subpartition=subpartition,
        task_manager=TaskManagerId("tm"),
        address="",
    )


def test_a_local_channel_waits_for_its_producer_and_reads_by_reference() -> None:
    registry = PartitionRegistry()
    channel = LocalInputChannel(_channel_descriptor(1), registry)
    heard = _Room()
    channel.open(heard)
    assert channel.poll() is None
    with pytest.raises(PartitionLost, match="did not appear"):
        channel.require_attached()
    partition, _ = _partition(Ship.BROADCAST)
    registry.register(ATTEMPT, partition)
    assert heard.calls == 1
    assert channel.poll() is None
    channel.require_attached()
    batch = batch_of(5)
    partition.emit(batch)
    assert heard.calls == 2
    assert channel.poll() is batch


def test_a_partition_leaves_the_registry_when_everybody_has_read_it() -> None:
    registry = PartitionRegistry()
    partition, _ = _partition(Ship.BROADCAST, 2)
    registry.register(ATTEMPT, partition)
    partition.broadcast(EndOfPartition())
    for index in range(2):
        assert registry.open_subpartition(_channel_descriptor(index), lambda: None) is not None
        assert _read(partition, index) == [EndOfPartition()]
    assert registry.open_subpartition(_channel_descriptor(), lambda: None) is None


def test_a_released_attempt_has_no_partitions() -> None:
    registry = PartitionRegistry()
    partition, _ = _partition(Ship.BROADCAST, 1)
    registry.register(ATTEMPT, partition)
    registry.release(ATTEMPT)
    registry.release(ATTEMPT)
    assert registry.open_subpartition(_channel_descriptor(), lambda: None) is None


class _Wire:
    """A data client and its one stream, by hand."""

    def __init__(self) -> None:
        self.granted = 0
        self.closed = False

    def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> _Wire:
        self.granted = credits
        return self

    def grant(self, credits: int) -> None:
        self.granted += credits

    def close(self) -> None:
        self.closed = True


def test_a_remote_channel_gives_the_credit_of_each_batch_back_when_it_is_taken() -> None:
    wire, memory = _Wire(), _memory()
    channel = RemoteInputChannel(_channel_descriptor(), wire, memory.gate("in", 1), 0)
    channel.open(lambda: None)
    assert wire.granted == memory.used == 2 * MIB
    for element, size in ((batch_of(1), 5_000), (Watermark(1), 0), (batch_of(1), 6_000)):
        channel.on_element(element, size)
    assert channel.queued == 3
    assert isinstance(channel.poll(), Batch)
    assert wire.granted == 2 * MIB + 5_000
    assert channel.poll() == Watermark(1)
    assert wire.granted == 2 * MIB + 5_000
    channel.close()
    assert wire.closed
    assert memory.used == 0


def test_a_producer_that_needs_more_credit_gets_it_from_the_floating_share() -> None:
    wire, memory = _Wire(), _memory()
    channel = RemoteInputChannel(_channel_descriptor(), wire, memory.gate("in", 1), 0)
    channel.open(lambda: None)
    channel.on_need(4 * MIB)
    assert wire.granted == memory.used == 4 * MIB


def test_grants_from_before_the_stream_is_there_are_not_lost() -> None:
    class Eager(_Wire):
        """Delivers while it connects."""

        def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> _Wire:
            super().connect(channel, sink, credits)
            sink.on_need(3 * MIB)
            return self

    wire = Eager()
    channel = RemoteInputChannel(_channel_descriptor(), wire, _memory().gate("in", 1), 0)
    channel.open(lambda: None)
    assert wire.granted == 3 * MIB


def test_a_stream_that_breaks_fails_its_consumer_unless_it_was_complete() -> None:
    channel = RemoteInputChannel(_channel_descriptor(), _Wire(), _memory().gate("in", 1), 0)
    channel.open(lambda: None)
    channel.on_error(ConnectionError("reset"))
    with pytest.raises(Transient, match=r"v#0.*reset"):
        channel.poll()
    complete = RemoteInputChannel(_channel_descriptor(), _Wire(), _memory().gate("in", 1), 0)
    complete.open(lambda: None)
    complete.on_element(EndOfPartition(), 0)
    complete.on_error(ConnectionError("reset"))
    assert complete.poll() == EndOfPartition()


# --- gates ----------------------------------------------------------------------------------------


class _Queue:
    """An input channel that the test fills."""

    def __init__(self) -> None:
        self.elements: list[Element] = []

    def open(self, notify: Any) -> None:
        self.notify = notify

    def put(self, *elements: Element) -> None:
        self.elements += elements
        self.notify()

    has_urgent = False
    descriptor = _channel_descriptor()

    def poll(self) -> Element | None:
        return self.elements.pop(0) if self.elements else None

    def poll_urgent(self) -> None:
        return None

    def overtaken(self) -> tuple[Element, ...]:
        return ()

    def prioritize(self, checkpoint_id: CheckpointId) -> None:
        raise AssertionError("nothing is announced here")

    def close(self) -> None:
        self.elements.clear()


def _gates(*sizes: int) -> tuple[InputGates, list[_Queue]]:
    queues = [_Queue() for _ in range(sum(sizes))]
    rest = list(queues)
    gates = [Gate(i, tuple(rest.pop(0) for _ in range(size))) for i, size in enumerate(sizes)]
    inputs = InputGates(gates, lambda: None, clock=ManualClock(), new_handler=BarrierAligner)
    inputs.open()
    return inputs, queues


def _barrier(number: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(number), 0)


def test_closing_a_gate_breaks_its_streams_off_before_its_channels_are_closed() -> None:
    class Remote(_Wire):
        def connect(self, channel: ChannelDescriptor, sink: InputSink, credits: int) -> _Wire:
            streams.append(_Wire())
            return streams[-1]

        def close(self) -> None:
            super().close()
            assert not any(stream.closed for stream in streams)

    streams: list[_Wire] = []
    remote, memory = Remote(), _memory()
    share = memory.gate("in", 2)
    channels = tuple(RemoteInputChannel(_channel_descriptor(n), remote, share, n) for n in range(2))
    gate = Gate(0, channels, share, remote)
    inputs = InputGates([gate], lambda: None, clock=ManualClock(), new_handler=BarrierAligner)
    inputs.open()
    inputs.close()
    assert remote.closed
    assert [stream.closed for stream in streams] == [True, True]
    assert memory.used == 0


def test_channels_are_read_in_turn() -> None:
    inputs, (a, b) = _gates(2)
    a.put(Watermark(1), Watermark(2))
    b.put(Watermark(10), Watermark(20))
    order = [inputs.poll() for _ in range(5)]
    assert order == [
        (0, Watermark(1)),
        (1, Watermark(10)),
        (0, Watermark(2)),
        (1, Watermark(20)),
        None,
    ]


def test_a_blocked_channel_is_not_read_until_its_alignment_ends() -> None:
    inputs, (a, b) = _gates(1, 1)
    a.put(_barrier(1), Watermark(5))
    polled = inputs.poll()
    assert polled == (0, _barrier(1))
    assert inputs.on_barrier(0, _barrier(1)) == []
    assert inputs.poll() is None
    b.put(_barrier(1))
    assert inputs.poll() == (1, _barrier(1))
    assert len(inputs.on_barrier(1, _barrier(1))) == 1
    assert inputs.poll() == (0, Watermark(5))


def test_a_channel_at_the_end_of_a_bucket_waits_for_the_others_of_its_input() -> None:
    inputs, (a, b, other) = _gates(2, 1)
    a.put(EndOfBucket(0, 2), Watermark(5))
    assert inputs.poll() == (0, EndOfBucket(0, 2))
    assert inputs.on_end_of_bucket(0, EndOfBucket(0, 2)) is None
    assert inputs.poll() is None, "the row behind it waits"
    other.put(Watermark(7))
    assert inputs.poll() == (2, Watermark(7)), "another input does not"
    b.put(Watermark(1), EndOfBucket(0, 2))
    assert [inputs.poll(), inputs.poll()] == [(1, Watermark(1)), (1, EndOfBucket(0, 2))]
    assert inputs.on_end_of_bucket(1, EndOfBucket(0, 2)) == EndOfBucket(0, 2)
    assert inputs.poll() == (0, Watermark(5))


def test_a_channel_without_buckets_releases_the_others_where_its_rows_end() -> None:
    inputs, (a, b) = _gates(2)
    a.put(EndOfBucket(0, 2), EndOfBucket(1, 2), EndOfData(), EndOfPartition())
    assert inputs.poll() == (0, EndOfBucket(0, 2))
    assert inputs.on_end_of_bucket(0, EndOfBucket(0, 2)) is None
    b.put(Watermark(3), EndOfData())
    assert [inputs.poll(), inputs.poll(), inputs.poll()] == [(1, Watermark(3)), (1, EndOfData()), None]
    assert inputs.on_end_of_rows(1) == EndOfBucket(0, 2)
    assert inputs.poll() == (0, EndOfBucket(1, 2))
    assert inputs.on_end_of_bucket(0, EndOfBucket(1, 2)) == EndOfBucket(1, 2)
    assert [inputs.poll(), inputs.poll()] == [(0, EndOfData()), (0, EndOfPartition())]


def test_giving_up_a_checkpoint_unblocks_its_channels() -> None:
    inputs, (a, _) = _gates(2)
    a.put(_barrier(1), Watermark(5))
    inputs.poll()
    inputs.on_barrier(0, _barrier(1))
    assert inputs.poll() is None
    assert inputs.give_up(CheckpointId(1))
    assert inputs.poll() == (0, Watermark(5))


def test_watermarks_are_the_least_of_channels_and_of_inputs() -> None:
    inputs, _ = _gates(2, 1)
    assert inputs.on_watermark(0, Watermark(5)) == []
    assert inputs.on_watermark(2, Watermark(4)) == []
    assert inputs.on_watermark(1, Watermark(7)) == [Watermark(4)]
    assert inputs.on_watermark(2, WatermarkStatus(idle=True)) == [Watermark(5)]


def test_an_input_ends_with_its_last_channel_and_one_suspended_channel_suspends_it() -> None:
    inputs, _ = _gates(2, 1)
    assert not inputs.on_end_of_data(0, EndOfData(drain=True))
    assert inputs.on_end_of_data(2, EndOfData(drain=True))
    assert inputs.is_drained(1)
    assert not inputs.data_ended
    assert inputs.on_end_of_data(1, EndOfData(drain=False))
    assert not inputs.is_drained(0)
    assert inputs.data_ended
    assert not inputs.all_drained
