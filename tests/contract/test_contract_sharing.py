"""Channels that share a stream are independent of each other; on a unix socket and on TCP."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tests.contract.transport_wire import (
    COST,
    WAIT_S,
    Partition,
    Partitions,
    Sink,
    Wire,
    channel,
    rows,
    values,
)
from unistream.base.errors import PartitionLost, ProtocolError, Unreachable
from unistream.base.ids import (
    CheckpointId,
    EdgeId,
    PartitionId,
    SubtaskId,
    VertexId,
)
from unistream.base.limits import MIB
from unistream.model import elements as el
from unistream.net.client import FlightDataClient, FlightGate
from unistream.net.in_channel import InChannel
from unistream.net.server import FlightServer


@dataclass
class Shared:
    """Channels of one gate from one process; `inputs` and `sinks` by subpartition."""

    server: FlightServer
    client: FlightDataClient
    partitions: Partitions
    gate: FlightGate = field(init=False)
    inputs: dict[int, InChannel] = field(default_factory=dict)
    sinks: dict[int, Sink] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate = self.client.gate()

    def open(self, *numbers: int, credit: int = MIB, sink: Sink | None = None) -> None:
        for n in numbers:
            self.sinks[n] = sink or Sink()
            self.inputs[n] = self.gate.connect(channel(self.server.address, n), self.sinks[n], credit)

    def released(self, number: int) -> BaseException | None:
        return self.partitions.by_subpartition[number].released.get(timeout=WAIT_S)

    def flows(self, number: int) -> None:
        """Asserts that `number` does, whatever the others do."""
        for n in range(20):
            self.partitions.by_subpartition[number].add(rows(n), el.Watermark(n))
            assert values(self.sinks[number].take(2)) == [[n], el.Watermark(n)]
            self.inputs[number].grant(COST)


def shared(wire: Wire, *partitions: Partition, timeout_ms: int = 10_000) -> Shared:
    source = Partitions(dict(enumerate(partitions)))
    return Shared(wire.serve(source), wire.data(timeout_ms), source)


def threads_of(edge: str) -> list[threading.Thread]:
    """That live; one more of them is a stream more."""
    return [t for t in threading.enumerate() if t.name in (f"flight-in-{edge}", f"flight-out-{edge}")]


def test_the_channels_of_a_gate_from_one_process_share_a_stream_and_its_threads(wire: Wire) -> None:
    both = shared(wire, *(Partition([el.Watermark(n)]) for n in range(64)))
    both.open(*range(64))
    assert [both.sinks[n].take(1) for n in range(64)] == [[el.Watermark(n)] for n in range(64)]
    assert both.client.streams == 1
    assert sorted(t.name for t in threads_of("edge")) == ["flight-in-edge", "flight-out-edge"]


def test_gates_edges_and_processes_share_nothing(wire: Wire) -> None:
    client = wire.data()
    servers = [wire.serve(Partitions({0: Partition([el.Watermark(1)])})) for _ in range(2)]
    one, other = channel(servers[0].address), channel(servers[1].address)
    gate = client.gate()
    sinks = [Sink() for _ in range(4)]
    gate.connect(one, sinks[0], COST)
    gate.connect(other, sinks[1], COST)
    gate.connect(msgspec.structs.replace(one, edge=EdgeId("other")), sinks[2], COST)
    client.gate().connect(one, sinks[3], COST)
    assert client.streams == 4


def test_a_channel_without_credit_holds_back_no_other(wire: Wire) -> None:
    both = shared(wire, Partition([rows(1), rows(2), el.EndOfPartition()]), Partition())
    both.open(0, credit=COST)
    both.open(1)
    assert values(both.sinks[0].take(1)) == [[1]]
    assert both.sinks[0].needs.get(timeout=WAIT_S) == COST
    both.flows(1)
    assert both.sinks[0].arrived.empty()
    both.inputs[0].grant(COST)
    assert values(both.sinks[0].take(2)) == [[2], el.EndOfPartition()]
    both.flows(1)


def test_a_barrier_overtakes_on_its_own_channel_only(wire: Wire) -> None:
    barrier = el.CheckpointBarrier(CheckpointId(7), 123, alignment=el.AlignmentType.UNALIGNED)
    both = shared(wire, Partition([rows(1), rows(2)]), Partition([rows(1), rows(2)]))
    both.open(0, 1, credit=COST)
    for n in (0, 1):
        assert values(both.sinks[n].take(1)) == [[1]]
        assert both.sinks[n].needs.get(timeout=WAIT_S) == COST
    both.partitions.by_subpartition[0].overtake(barrier)
    assert both.sinks[0].take(1) == [barrier]
    both.inputs[1].grant(COST)
    assert values(both.sinks[1].take(1)) == [[2]]
    both.inputs[0].grant(COST)
    assert values(both.sinks[0].take(1)) == [[2]]


def test_what_overtakes_waits_for_the_rest_of_a_batch_that_was_begun(wire: Wire) -> None:
    """Those rows are nobody's any more: no snapshot, the producer's or the consumer's, would hold them."""
    barrier = el.CheckpointBarrier(CheckpointId(7), 123, alignment=el.AlignmentType.UNALIGNED)
    column = pa.array(range(4 * MIB), pa.int64())  # 32 MiB: two messages
    both = shared(wire, Partition([el.Batch(pa.record_batch({"value": column}))]), Partition())
    both.open(0, credit=20 * MIB)
    both.open(1)
    need = both.sinks[0].needs.get(timeout=WAIT_S)
    both.partitions.by_subpartition[0].overtake(barrier)
    both.flows(1)
    both.inputs[0].grant(need)
    first, second, last = both.sinks[0].take(3)
    assert isinstance(first, el.Batch)
    assert isinstance(second, el.Batch)
    assert first.num_rows + second.num_rows == len(column)
    assert last == barrier


def test_a_channel_that_never_runs_dry_leaves_the_others_their_turn(wire: Wire) -> None:
    class Endless(Partition):
        def poll(self) -> el.Element:
            return el.Watermark(1)

        def peek(self) -> el.Element:
            return el.Watermark(1)

    class Deaf(Sink):
        def on_element(self, element: el.Element, size: int) -> None:
            assert element == el.Watermark(1)

    both = shared(wire, Endless(), Partition())
    both.open(0, sink=Deaf())
    both.open(1)
    both.flows(1)


def test_each_channel_keeps_its_order(wire: Wire) -> None:
    sent = [[e for n in range(50) for e in (rows(100 * c + n), el.Watermark(n))] for c in range(6)]
    both = shared(wire, *(Partition([*elements, el.EndOfPartition()]) for elements in sent))
    both.open(*range(6))
    for n, elements in enumerate(sent):
        assert values(both.sinks[n].take(101)) == values([*elements, el.EndOfPartition()])


def test_a_channel_that_is_closed_early_does_not_hurt_the_others(wire: Wire) -> None:
    both = shared(wire, Partition([rows(1), rows(2)]), Partition())
    both.open(0, 1, credit=COST)
    both.sinks[0].take(1)
    both.inputs[0].close()
    both.inputs[0].close()
    assert isinstance(both.released(0), Unreachable)
    both.inputs[0].grant(COST)  # too late, and harmless
    both.flows(1)
    assert both.sinks[0].arrived.empty()
    assert both.sinks[0].errors.empty()
    both.partitions.by_subpartition[1].add(el.EndOfPartition())
    assert both.released(1) is None


def test_a_channel_that_appears_later_is_found_while_the_others_flow(wire: Wire) -> None:
    both = shared(wire, Partition())
    both.open(0, 1)
    both.flows(0)
    while both.partitions.asked.get(timeout=WAIT_S).subpartition != 1:
        pass
    both.partitions.by_subpartition[1] = Partition([el.Watermark(1)])
    assert both.sinks[1].take(1) == [el.Watermark(1)]
    both.flows(0)
    assert both.client.streams == 1


def test_a_channel_that_joins_later_shares_the_stream(wire: Wire) -> None:
    both = shared(wire, Partition(), Partition())
    both.open(0)
    both.flows(0)
    both.open(1)
    both.flows(1)
    assert both.client.streams == 1


def test_a_channel_that_never_appears_is_lost_alone(wire: Wire) -> None:
    both = shared(wire, Partition(), timeout_ms=250)
    both.open(0, 3)
    error = both.sinks[3].error()
    assert isinstance(error, PartitionLost)
    assert "subpartition 3 of edge edge" in str(error)
    assert "250 ms" in str(error)
    both.flows(0)


def test_a_channel_that_fails_fails_alone(wire: Wire) -> None:
    lost = PartitionId(SubtaskId(VertexId("v"), 7), EdgeId("e"))
    both = shared(wire, Partition([el.Watermark(1)]), Partition())
    both.open(0, 1)
    both.sinks[0].take(1)
    both.partitions.by_subpartition[0].fail(PartitionLost("the file is damaged", lost))
    error = both.sinks[0].error()
    assert isinstance(error, PartitionLost)
    assert error.partition == lost
    assert isinstance(both.released(0), PartitionLost)
    both.flows(1)


def test_a_sink_that_fails_fails_alone(wire: Wire) -> None:
    class Broken(Sink):
        def on_element(self, element: el.Element, size: int) -> None:
            raise ValueError("no room")

    both = shared(wire, Partition([el.Watermark(1)]), Partition())
    both.open(0, sink=Broken())
    both.open(1)
    assert isinstance(both.sinks[0].error(), ValueError)
    assert isinstance(both.released(0), Unreachable)
    both.flows(1)


def test_channels_of_one_stream_have_one_schema(wire: Wire) -> None:
    both = shared(wire, Partition(), Partition())
    both.open(0, 1)
    both.flows(0)
    both.partitions.by_subpartition[1].add(el.Batch(pa.record_batch({"name": pa.array(["x"])})))
    error = both.sinks[1].error()
    assert isinstance(error, ProtocolError)
    assert "subpartition 0 of edge edge" in str(error)
    assert "value: int64" in str(error)
    assert "subpartition 1 of edge edge" in str(error)
    assert "name: string" in str(error)
    both.flows(0)


def test_each_channel_has_its_own_dictionary(wire: Wire) -> None:
    both = shared(wire, Partition(), Partition())
    both.open(0, 1)
    for turn in range(3):
        for n in (0, 1):
            words = pa.array([f"{n}-{turn}-{k}" for k in range(3)]).dictionary_encode()
            both.partitions.by_subpartition[n].add(el.Batch(pa.record_batch({"word": words})))
            batch = both.sinks[n].take(1)[0]
            assert isinstance(batch, el.Batch)
            assert batch.records["word"].to_pylist() == words.to_pylist()


def test_the_stream_ends_with_its_last_channel_and_a_later_one_gets_another(wire: Wire) -> None:
    both = shared(wire, *(Partition([rows(n), el.EndOfPartition()]) for n in range(3)), Partition())
    both.open(0, 1, 2)
    for n in range(3):
        assert values(both.sinks[n].take(2)) == [[n], el.EndOfPartition()]
        assert both.released(n) is None
    for joined in both.inputs.values():  # one that ended before the next came had a stream of its own
        joined.end(WAIT_S)
    assert both.client.streams == 0
    assert "flight-in-edge" not in [thread.name for thread in threads_of("edge")]
    for thread in threads_of("edge"):  # the producer's: the call ends before its thread does
        thread.join(WAIT_S)
    assert threads_of("edge") == []
    both.open(3)
    both.flows(3)
    assert both.client.streams == 1
    assert all(sink.errors.empty() for sink in both.sinks.values())


def test_a_producer_that_is_gone_breaks_all_its_channels(wire: Wire) -> None:
    both = shared(wire, Partition([el.Watermark(1)]), Partition([rows(1), rows(2)]), timeout_ms=250)
    both.open(0, 1, credit=COST)
    for n in (0, 1):
        both.sinks[n].take(1)
    both.open(2)  # not there: it is asked for until its time is over
    both.server.close()
    for n in (0, 1):
        assert isinstance(both.sinks[n].error(), Unreachable)
        assert isinstance(both.released(n), Unreachable)
    assert isinstance(both.sinks[2].error(), PartitionLost)


def test_a_consumer_that_is_gone_releases_all_its_partitions(wire: Wire) -> None:
    both = shared(wire, Partition([rows(1), rows(2)]), Partition([el.Watermark(1)]), Partition())
    both.open(0, 1, 2, credit=COST)
    both.sinks[0].take(1)
    both.flows(2)
    both.client.close()
    for n in range(3):
        assert isinstance(both.released(n), Unreachable)
    assert all(sink.errors.empty() for sink in both.sinks.values())


def test_what_is_closed_has_no_threads_left(wire: Wire) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("flight-")}

    before = threads()
    both = shared(wire, Partition([rows(1), el.EndOfPartition()]), Partition([rows(1)]))
    both.open(0, 1, 2)  # one comes to its end, one flows, one is not there: there is a time to keep
    both.sinks[0].take(2)
    both.sinks[1].take(1)
    names = {thread.name for thread in threads() - before}
    assert names == {"flight-in-edge", "flight-out-edge", "flight-alarms"}
    both.client.close()
    assert {thread.name for thread in threads() - before} <= {"flight-out-edge"}
    both.server.close()
    assert threads() - before == set()
