"""What every transport must do; held to it here: Arrow Flight on a unix socket and on TCP."""

from __future__ import annotations

import queue
import threading

import pyarrow as pa
import pytest

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
    JobId,
    PartitionId,
    SubtaskId,
    TaskManagerId,
    VertexId,
)
from unistream.base.limits import KIB, MIB
from unistream.model import elements as el
from unistream.model.codec import decode_for_job_manager, encode
from unistream.model.messages import Ack, Artifact, FetchArtifact, Heartbeat, Refused

HEARTBEAT = Heartbeat(task_manager=TaskManagerId("tm-1"))


# --- data -----------------------------------------------------------------------------------------


def test_elements_arrive_in_order_and_events_need_no_batch_before_them(wire: Wire) -> None:
    barrier = el.CheckpointBarrier(CheckpointId(7), 123, el.SnapshotKind.SAVEPOINT)
    sent: list[el.Element] = [
        el.Watermark(-5),
        barrier,
        rows(1, 2),
        el.WatermarkStatus(idle=True),
        rows(3),
        el.CancelCheckpointMarker(CheckpointId(8)),
        el.EndOfData(drain=False),
        el.EndOfPartition(),
    ]
    partition = Partition(sent)
    _, sink = wire.stream(partition)
    assert values(sink.take(len(sent))) == values(sent)
    assert partition.released.get(timeout=WAIT_S) is None
    assert sink.errors.empty()


def test_a_stream_without_any_batch_ends_well(wire: Wire) -> None:
    partition = Partition([el.EndOfData(), el.EndOfPartition()])
    _, sink = wire.stream(partition)
    assert sink.take(2) == [el.EndOfData(), el.EndOfPartition()]
    assert partition.released.get(timeout=WAIT_S) is None


def test_a_consumer_that_closes_at_end_of_partition_has_read_everything(wire: Wire) -> None:
    class ClosesAtTheEnd(Sink):
        def on_element(self, element: el.Element, size: int) -> None:
            stream.close()

    partition = Partition()
    stream, sink = wire.stream(partition, sink=ClosesAtTheEnd())
    partition.add(el.EndOfPartition())
    assert partition.released.get(timeout=WAIT_S) is None
    assert sink.errors.empty()


def test_event_times_travel_beside_the_rows(wire: Wire) -> None:
    _, sink = wire.stream(Partition([rows(5, 6, timestamps=True), el.EndOfPartition()]))
    batch = sink.take(1)[0]
    assert isinstance(batch, el.Batch)
    assert batch.records.schema.names == ["value"]
    assert batch.timestamps is not None
    assert batch.timestamps.to_pylist() == [5, 6]


def test_a_batch_needs_credit_for_all_of_its_bytes_and_events_cost_none(wire: Wire) -> None:
    partition = Partition([rows(1), el.Watermark(1), rows(2), el.Watermark(2), rows(3), el.Watermark(3)])
    stream, sink = wire.stream(partition, credit=3 * COST - 1)
    assert values(sink.take(4)) == [[1], el.Watermark(1), [2], el.Watermark(2)]
    assert sink.needs.get(timeout=WAIT_S) == COST
    with pytest.raises(queue.Empty):
        sink.arrived.get(timeout=0.3)  # there is credit for all of the third batch but one byte
    stream.grant(1)
    assert values(sink.take(2)) == [[3], el.Watermark(3)]
    assert sink.costs == [COST, 0, COST, 0, COST, 0]


def test_a_barrier_overtakes_rows_that_wait_for_credit(wire: Wire) -> None:
    """Also while the stream's own thread waits inside gRPC for that credit."""
    barrier = el.CheckpointBarrier(CheckpointId(7), 123, alignment=el.AlignmentType.UNALIGNED)
    partition = Partition([rows(1), rows(2), rows(3), el.EndOfPartition()])
    stream, sink = wire.stream(partition, credit=COST)
    assert values(sink.take(1)) == [[1]]
    assert sink.needs.get(timeout=WAIT_S) == COST
    partition.overtake(barrier)
    assert sink.take(1) == [barrier]
    assert len(partition.elements) == 3, "nothing was taken without credit"
    stream.grant(COST)
    assert values(sink.take(1)) == [[2]]
    assert sink.needs.get(timeout=WAIT_S) == COST
    partition.overtake(barrier)
    partition.overtake(barrier)
    assert sink.take(2) == [barrier, barrier]
    stream.grant(COST)
    assert values(sink.take(2)) == [[3], el.EndOfPartition()]


def test_grants_are_collected_but_never_starve_the_producer(wire: Wire) -> None:
    count = 200
    partition = Partition([rows(n) for n in range(count)])
    stream, sink = wire.stream(partition, credit=5 * COST)
    for n in range(count):
        assert values(sink.take(1)) == [[n]]
        stream.grant(COST)


def test_a_need_that_is_met_by_what_is_held_back_is_not_passed_on(wire: Wire) -> None:
    small, large = rows(1), rows(*range(500))
    partition = Partition([small])
    stream, sink = wire.stream(partition, credit=4 * KIB + 8 * 500)
    sink.take(1)
    stream.grant(COST)  # less than half: it is held back
    partition.add(large)
    assert values(sink.take(1)) == [list(range(500))]
    assert sink.needs.empty()


def test_one_batch_of_any_size_passes_when_it_is_granted(wire: Wire) -> None:
    partition = Partition([rows(*range(100_000)), el.EndOfPartition()])
    stream, sink = wire.stream(partition, credit=1)
    stream.grant(sink.needs.get(timeout=WAIT_S) - 1)
    batch, end = sink.take(2)
    assert isinstance(batch, el.Batch)
    assert batch.num_rows == 100_000
    assert end == el.EndOfPartition()


def test_what_is_added_later_is_sent_at_once(wire: Wire) -> None:
    partition = Partition()
    stream, sink = wire.stream(partition)
    for n in range(20):
        partition.add(rows(n), el.Watermark(n))
        assert values(sink.take(2)) == [[n], el.Watermark(n)]
        stream.grant(COST)


def test_a_large_batch_arrives_whole_in_parts_that_each_cost_their_bytes(wire: Wire) -> None:
    count = 5 * MIB  # 40 MiB
    column = pa.array(range(count), pa.int64())
    batch = el.Batch(pa.record_batch({"value": column}), column)
    _, sink = wire.stream(Partition([batch, el.EndOfPartition()]), credit=100 * MIB)
    parts: list[el.Batch] = []
    while isinstance(element := sink.take(1)[0], el.Batch):
        parts.append(element)
    assert len(parts) > 1
    assert max(part.nbytes for part in parts) <= 16 * MIB
    assert pa.Table.from_batches([part.records for part in parts])["value"].combine_chunks() == column


def test_a_later_batch_with_another_schema_names_both(wire: Wire) -> None:
    other = el.Batch(pa.record_batch({"name": pa.array(["x"])}))
    partition = Partition([rows(1), other])
    _, sink = wire.stream(partition)
    error = sink.error()
    assert isinstance(error, ProtocolError)
    assert "value: int64" in str(error)
    assert "name: string" in str(error)
    assert "Traceback" not in str(error)
    assert isinstance(partition.released.get(timeout=WAIT_S), ProtocolError)


def test_a_partition_that_appears_later_is_found(wire: Wire) -> None:
    partitions = Partitions()
    sink = Sink()
    wire.data().gate().connect(channel(wire.serve(partitions).address), sink, COST)
    partitions.asked.get(timeout=WAIT_S)
    partitions.by_subpartition[0] = Partition([el.Watermark(1)])
    assert sink.take(1) == [el.Watermark(1)]


def test_a_partition_that_never_appears_is_lost_after_the_timeout(wire: Wire) -> None:
    sink = Sink()
    wire.data(timeout_ms=250).gate().connect(channel(wire.serve(Partitions()).address, 3), sink, COST)
    error = sink.error()
    assert isinstance(error, PartitionLost)
    assert str(error.partition) == f"{'1' * 32}#0>edge"
    assert "subpartition 3 of edge edge" in str(error)
    assert "250 ms" in str(error)


def test_a_partition_that_cannot_be_read_is_lost_for_its_consumer(wire: Wire) -> None:
    """Not asked for again: the name of the partition crosses the wire."""
    lost = PartitionId(SubtaskId(VertexId("v"), 7), EdgeId("e"))
    partition = Partition([el.Watermark(1)])
    sink = Sink()
    wire.data().gate().connect(channel(wire.serve(Partitions({0: partition})).address), sink, COST)
    assert sink.take(1) == [el.Watermark(1)]
    partition.fail(PartitionLost("the file is damaged", lost))
    error = sink.error()
    assert isinstance(error, PartitionLost)
    assert error.partition == lost
    assert "the file is damaged" in str(error)


def test_a_producer_that_is_gone_has_lost_its_partitions_after_the_timeout(wire: Wire) -> None:
    server = wire.serve(Partitions())
    server.close()
    sink = Sink()
    wire.data(timeout_ms=250).gate().connect(channel(server.address), sink, COST)
    assert isinstance(sink.error(), PartitionLost)


def test_closing_the_server_breaks_a_stream_that_waits(wire: Wire) -> None:
    partition = Partition([el.Watermark(1)])
    server = wire.serve(Partitions({0: partition}))
    sink = Sink()
    wire.data().gate().connect(channel(server.address), sink, COST)
    sink.take(1)
    server.close()
    assert isinstance(sink.error(), Unreachable)
    assert isinstance(partition.released.get(timeout=WAIT_S), Unreachable)


def test_closing_the_server_does_not_wait_for_a_consumer_that_grants_nothing(wire: Wire) -> None:
    partition = Partition([rows(1), rows(2)])
    server = wire.serve(Partitions({0: partition}))
    sink = Sink()
    wire.data().gate().connect(channel(server.address), sink, COST)
    sink.take(1)
    server.close()
    assert isinstance(partition.released.get(timeout=WAIT_S), Unreachable)
    assert isinstance(sink.error(), Unreachable)


def test_a_partition_that_fails_breaks_its_stream_with_the_reason(wire: Wire) -> None:
    partition = Partition([el.Watermark(1)])
    _, sink = wire.stream(partition)
    sink.take(1)
    partition.fail(Unreachable("the task was cancelled"))
    error = sink.error()
    assert isinstance(error, Unreachable)
    assert "the task was cancelled" in str(error)
    assert str(partition.released.get(timeout=WAIT_S)) == "the task was cancelled"


@pytest.mark.parametrize("credit", [COST, 8 * COST], ids=["without credits", "with credits"])
def test_a_consumer_that_closes_releases_the_partition(wire: Wire, credit: int) -> None:
    partition = Partition([rows(1), rows(2)] if credit == COST else [rows(1)])
    stream, sink = wire.stream(partition, credit)
    sink.take(1)
    stream.close()
    assert isinstance(partition.released.get(timeout=WAIT_S), Unreachable)
    stream.end(WAIT_S)
    assert sink.errors.empty()


def test_a_sink_that_fails_ends_its_stream_with_its_own_error(wire: Wire) -> None:
    class Broken(Sink):
        def on_element(self, element: el.Element, size: int) -> None:
            raise ValueError("no room")

    partition = Partition([el.Watermark(1)])
    _, sink = wire.stream(partition, sink=Broken())
    assert isinstance(sink.error(), ValueError)
    assert isinstance(partition.released.get(timeout=WAIT_S), Unreachable)


def test_many_streams_of_one_pair_are_independent(wire: Wire) -> None:
    count = 24
    partitions = Partitions({n: Partition([rows(n), el.EndOfPartition()]) for n in range(count)})
    server, client = wire.serve(partitions), wire.data()
    sinks = [Sink() for _ in range(count)]
    for n, sink in enumerate(sinks):
        client.gate("").connect(channel(server.address, n), sink, COST)
    assert [values(sink.take(2)) for sink in sinks] == [[[n], el.EndOfPartition()] for n in range(count)]


def test_a_closed_client_opens_nothing(wire: Wire) -> None:
    client = wire.data()
    client.close()
    with pytest.raises(Unreachable, match="closed"):
        client.gate("").connect(channel("grpc+tcp://127.0.0.1:1"), Sink(), COST)


# --- control --------------------------------------------------------------------------------------


def test_a_request_gets_its_answer(wire: Wire) -> None:
    seen: list[object] = []

    def handle(body: bytes, caller: str = "", /) -> bytes:
        seen.append(decode_for_job_manager(body))
        return encode(Refused(reason="not known"))

    answer = wire.control(wire.serve(control=handle).address).call(HEARTBEAT)
    assert answer == Refused(reason="not known")
    assert seen == [HEARTBEAT]


def test_an_artifact_may_be_larger_than_a_frame(wire: Wire) -> None:
    content = b"x" * (40 * MIB)
    server = wire.serve(control=lambda _, _caller="": encode(Artifact(content=content)))
    answer = wire.control(server.address).call(FetchArtifact(job=JobId("0" * 32), sha256="0" * 64))
    assert isinstance(answer, Artifact)
    assert len(answer.content) == len(content)


def test_a_peer_that_is_gone_is_unreachable(wire: Wire) -> None:
    server = wire.serve()
    client = wire.control(server.address)
    assert client.call(HEARTBEAT) == Ack()
    server.close()
    with pytest.raises(Unreachable, match="Heartbeat to grpc"):
        client.call(HEARTBEAT)


def test_a_peer_that_does_not_answer_in_time_is_unreachable(wire: Wire) -> None:
    answered = threading.Event()

    def handle(_: bytes, caller: str = "", /) -> bytes:
        answered.wait(WAIT_S)
        return encode(Ack())

    client = wire.control(wire.serve(control=handle).address, timeout_s=0.2)
    try:
        with pytest.raises(Unreachable):
            client.call(HEARTBEAT)
    finally:
        answered.set()


def test_an_answer_that_is_none_is_a_protocol_error(wire: Wire) -> None:
    client = wire.control(wire.serve(control=lambda _, _caller="": b"\xc1garbage").address)
    with pytest.raises(ProtocolError, match="malformed"):
        client.call(HEARTBEAT)


def test_a_handler_that_fails_is_a_protocol_error_with_its_reason(wire: Wire) -> None:
    def handle(_: bytes, caller: str = "", /) -> bytes:
        raise KeyError("no such task")

    client = wire.control(wire.serve(control=handle).address)
    with pytest.raises(ProtocolError, match="no such task"):
        client.call(HEARTBEAT)


def test_requests_from_several_threads_do_not_mix(wire: Wire) -> None:
    server = wire.serve(control=lambda body, _caller="": encode(Artifact(content=body)))
    client = wire.control(server.address)
    results: queue.Queue[bool] = queue.Queue()

    def ask(name: str) -> None:
        message = Heartbeat(task_manager=TaskManagerId(name))
        for _ in range(20):
            results.put(client.call(message) == Artifact(content=encode(message)))

    threads = [threading.Thread(target=ask, args=(f"tm-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [results.get_nowait() for _ in range(80)] == [True] * 80
