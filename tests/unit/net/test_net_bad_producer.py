"""A consumer survives whatever a producer says, and tells its task what was wrong."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.eventually import WAIT_S
from unistream.base.errors import PartitionLost, ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.base.limits import KIB
from unistream.model.codec import encode_event
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Element, EndOfPartition, Watermark
from unistream.net import frames
from unistream.net.client import FlightDataClient

CREDIT = 64 * KIB
ROWS = pa.record_batch({"value": pa.array(range(1_000), pa.int64())})
LABEL = frames.encode_label(0, ROWS.nbytes, ROWS.nbytes)
EVENT = encode_event(Watermark(1))

Line = frames.Answer | bytes | tuple[pa.RecordBatch, bytes]
"""An answer, metadata as it is, or a batch with its label."""


class Scripted(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow is not typed
    """Says its lines to each consumer, and waits until that has left."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.calls: queue.Queue[frames.Command] = queue.Queue()
        super().__init__("grpc+tcp://127.0.0.1:0")

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        self.hear(reader)
        for line in self.lines:
            if isinstance(line, tuple):
                writer.begin(line[0].schema)
                writer.write_with_metadata(*line)
            else:
                writer.write_metadata(line if isinstance(line, bytes) else frames.encode_answers([line]))
        try:
            while True:
                self.hear(reader)
        except StopIteration:
            return

    def hear(self, reader: flight.MetadataRecordBatchReader) -> None:
        for command in frames.decode_commands(reader.read_chunk().app_metadata):
            self.calls.put(command)


class Sink:
    def __init__(self) -> None:
        self.arrived: queue.Queue[Element] = queue.Queue()
        self.errors: queue.Queue[BaseException] = queue.Queue()

    def on_element(self, element: Element, size: int) -> None:
        self.arrived.put(element)

    def on_need(self, size: int) -> None:
        self.errors.put(AssertionError(f"credit of {size} B is asked for"))

    def on_error(self, error: BaseException) -> None:
        self.errors.put(error)


def channel(address: str, subpartition: int = 0) -> ChannelDescriptor:
    return ChannelDescriptor(
        producer=AttemptId(JobId("j"), VertexId("v"), 0, 1),
        edge=EdgeId("e"),
        subpartition=subpartition,
        task_manager=TaskManagerId("tm"),
        address=address,
    )


@contextmanager
def consumer(lines: list[Line], timeout_ms: int = 10_000) -> Iterator[tuple[Scripted, Callable[[int], Sink]]]:
    """The producer, and what connects to one of its subpartitions."""
    with Scripted(lines) as producer:
        client = FlightDataClient(timeout_ms)
        gate = client.gate()

        def connect(subpartition: int) -> Sink:
            sink = Sink()
            gate.connect(channel(f"grpc+tcp://127.0.0.1:{producer.port}", subpartition), sink, CREDIT)
            return sink

        try:
            yield producer, connect
        finally:
            client.close()


@pytest.mark.parametrize(
    ("lines", "error", "words"),
    [
        pytest.param([b"accepted"], ProtocolError, "sent an invalid answer", id="foreign bytes"),
        pytest.param([frames.Accepted(1)], ProtocolError, "channel 1, which was never opened", id="unknown"),
        pytest.param([frames.Sent(0, EVENT)], ProtocolError, "while it was REQUESTED", id="before accepting"),
        pytest.param([frames.Accepted(0)] * 2, ProtocolError, "while it was OPEN", id="accepts twice"),
        pytest.param([frames.Accepted(0), frames.Absent(0)], ProtocolError, "while it was OPEN", id="gone"),
        pytest.param([frames.Accepted(0), frames.Sent(0, b"x")], ProtocolError, "not a", id="no event"),
        pytest.param([frames.Accepted(0), (ROWS, b"x")], ProtocolError, "channel and cost", id="no label"),
        pytest.param([(ROWS, LABEL)], ProtocolError, "while it was REQUESTED", id="rows before accepting"),
        pytest.param(
            [frames.Accepted(0), (ROWS, frames.encode_label(0, 1, 1))],
            ProtocolError,
            "8000 B but declared 1 B",
            id="a false cost",
        ),
        pytest.param(
            [frames.Accepted(0), (ROWS, frames.encode_label(0, CREDIT + 1, 1))],
            ProtocolError,
            "more bytes than it had credit for",
            id="without credit",
        ),
        pytest.param(
            [frames.StreamEnded(frames.ExchangeFailure(frames.FailureKind.PROTOCOL, "it cannot go on"))],
            ProtocolError,
            "it cannot go on",
            id="gives up",
        ),
        pytest.param(
            [
                frames.Accepted(0),
                frames.StreamEnded(
                    frames.ExchangeFailure(frames.FailureKind.UNREACHABLE, "the server closes")
                ),
            ],
            Unreachable,
            "the server closes",
            id="closes",
        ),
        pytest.param(
            [frames.ChannelFailed(0, frames.ExchangeFailure(frames.FailureKind.PROTOCOL, "not for you"))],
            ProtocolError,
            "not for you",
            id="refuses a channel",
        ),
    ],
)
def test_a_producer_that_breaks_the_rules_is_told_of(
    lines: list[Line], error: type[UnistreamError], words: str
) -> None:
    with consumer(lines) as (_, connect):
        sink = connect(0)
        found = sink.errors.get(timeout=WAIT_S)
        assert type(found) is error
        assert words in str(found)
        assert sink.arrived.empty()


def test_a_producer_that_is_silent_has_lost_its_partition() -> None:
    with consumer([], timeout_ms=300) as (_, connect):
        found = connect(0).errors.get(timeout=WAIT_S)
        assert isinstance(found, PartitionLost)
        assert "did not answer within 300 ms" in str(found)


def test_a_producer_that_answers_for_one_channel_only_has_lost_the_other() -> None:
    with consumer([frames.Accepted(0), frames.Sent(0, EVENT)], timeout_ms=300) as (producer, connect):
        served, forgotten = connect(0), connect(1)
        assert served.arrived.get(timeout=WAIT_S) == Watermark(1)
        assert isinstance(forgotten.errors.get(timeout=WAIT_S), PartitionLost)
        while not isinstance(said := producer.calls.get(timeout=WAIT_S), frames.Close):
            pass
        assert said == frames.Close(1)
        assert served.errors.empty()


def test_what_is_absent_is_asked_for_again_in_the_same_call_with_all_its_credit() -> None:
    with consumer([frames.Absent(0)], timeout_ms=60_000) as (producer, connect):
        connect(0)
        asked = [producer.calls.get(timeout=WAIT_S) for _ in range(2)]
        assert asked == [frames.Open(0, CREDIT, channel(f"grpc+tcp://127.0.0.1:{producer.port}"))] * 2


def test_the_end_of_a_channel_is_confirmed_and_what_follows_is_passed_over() -> None:
    end = encode_event(EndOfPartition())
    lines: list[Line] = [frames.Accepted(0), frames.Sent(0, end), frames.Sent(0, EVENT), frames.Accepted(1)]
    with consumer(lines) as (producer, connect):
        ended, other = connect(0), connect(1)
        assert ended.arrived.get(timeout=WAIT_S) == EndOfPartition()
        said = [producer.calls.get(timeout=WAIT_S) for _ in range(3)]
        assert frames.Close(0) in said
        assert ended.arrived.empty()
        assert other.errors.empty()


def test_many_channels_are_opened_in_few_messages() -> None:
    connected = threading.Event()

    class Counting(Scripted):
        """Answers when all channels wait for that, as those of a deployment do."""

        messages = 0

        def hear(self, reader: flight.MetadataRecordBatchReader) -> None:
            super().hear(reader)
            self.messages += 1
            assert connected.wait(WAIT_S)

    with Counting([frames.Accepted(0)]) as producer:
        client = FlightDataClient(300)
        gate, sinks = client.gate(), [Sink() for _ in range(200)]
        for n, sink in enumerate(sinks):
            gate.connect(channel(f"grpc+tcp://127.0.0.1:{producer.port}", n), sink, CREDIT)
        connected.set()
        opened: set[int] = set()
        while len(opened) < len(sinks):
            said = producer.calls.get(timeout=WAIT_S)
            assert isinstance(said, frames.Open)
            opened.add(said.number)
        client.close()
    assert producer.messages < len(sinks)


def test_a_label_that_fills_up_lets_rows_be_taken_as_they_lie() -> None:
    """Arrow's layout of a message, on which `encode_label` relies."""
    rows = pa.record_batch({"value": pa.array(range(200_000), pa.int64())})
    options = flight.FlightCallOptions(
        read_options=pa.ipc.IpcReadOptions(use_threads=False, ensure_alignment=pa.ipc.Alignment.Any)
    )
    with Scripted([(rows, frames.encode_label(0, rows.nbytes, rows.nbytes))]) as producer:
        client = flight.FlightClient(f"grpc+tcp://127.0.0.1:{producer.port}")
        command = flight.FlightDescriptor.for_command(frames.encode_head(frames.StreamHead(EdgeId("e"))))
        writer, reader = client.do_exchange(command, options)
        writer.write_metadata(next(frames.encode_commands([frames.Close(0)])))
        address = reader.read_chunk().data.column(0).buffers()[1].address
        writer.close()
    assert address % frames.LABEL_ALIGNMENT == 0
