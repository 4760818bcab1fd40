"""Every private name of kafka-python that `connector.kafka.broker.receive` uses, on sockets and frames."""

from __future__ import annotations

import inspect
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.connection import KafkaConnection
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from unistream.connector.kafka.broker.receive import LONG_BYTES, SHORT_BYTES, BatchView, next_batch

VERSION = 12  # of a fetch
OF_HEADERS = ("next_offset", "crc", "records_count", "compression_type", "is_control_batch", "producer_id")


def _frame(number: int, records: list[bytes | None]) -> bytes:
    """A response with one partition for each of `records`."""
    topic = FetchResponse.FetchableTopicResponse
    partitions = [
        topic.PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=0,
            last_stable_offset=0,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=content,
        )
        for index, content in enumerate(records)
    ]
    response = FetchResponse(
        version=VERSION,
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[topic(topic="t", partitions=partitions)],
        node_endpoints=[],
    )
    response.with_header(correlation_id=number)
    return bytes(response.encode(header=True, framed=True))


def _request() -> Any:
    return FetchRequest(
        version=VERSION,
        replica_id=-1,
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[],
        forgotten_topics_data=[],
        rack_id="",
    )


class Connection:
    """A transport and the parser of its protocol, as a client's loop calls them."""

    def __init__(self, responses: int) -> None:
        self.peer, mine = socket.socketpair()
        mine.setblocking(False)
        self.parser = KafkaProtocol()
        for number in range(responses):
            self.parser.send_request(_request(), correlation_id=number)
        self.transport = KafkaTCPTransport(None, mine)
        self.transport._protocol = SimpleNamespace(parser=self.parser)
        self.found: list[Any] = []
        self.longest = 0  # of what did not go into a frame

    def receive(self) -> Exception | None:
        """As `KafkaTCPTransport._read_from_sock`, until nothing more is there."""
        while True:
            data, error = self.transport._sock_recv()
            if error is not None or not data:
                return error
            self.longest = max(self.longest, len(data))
            self.found += [response for _, response in self.parser.receive_bytes(data)]

    def send(self, content: bytes) -> None:
        """From the peer, and received."""
        view = memoryview(content)
        while view:
            view = view[self.peer.send(view[:50_000]) :]
            assert self.receive() is None

    def close(self) -> None:
        self.peer.close()
        self.transport._sock.close()


def _records(response: Any) -> list[Any]:
    return [partition.records for partition in response.responses[0].partitions]


@pytest.mark.parametrize("piece", [1 << 20, 100_000, 4096, 1000])
@pytest.mark.parametrize(
    "sizes",
    [
        [[0]],
        [[10], [20], [None]],
        [[300_000, 7, 50_000]],
        [[5], [200_000], [4000], [4090, 0, None], [90_000]],
        *([[SHORT_BYTES + more]] for more in range(-70, 10, 8)),
    ],
    ids=str,
)
def test_responses_are_received_as_they_were_sent(sizes: list[list[int | None]], piece: int) -> None:
    """In pieces of any size, short and long, several at once."""
    content = [[None if size is None else os.urandom(size) for size in one] for one in sizes]
    sent = b"".join(_frame(number, one) for number, one in enumerate(content))
    connection = Connection(len(sizes))
    for at in range(0, len(sent), piece):
        connection.send(sent[at : at + piece])
    assert [_records(response) for response in connection.found] == content
    assert connection.longest <= SHORT_BYTES
    connection.peer.close()
    error = connection.receive()
    assert isinstance(error, KafkaConnectionError)
    assert "socket disconnected" in str(error)
    connection.close()


def test_records_of_a_long_response_are_views_that_outlive_it() -> None:
    connection = Connection(2)
    for number in range(2):
        connection.send(_frame(number, [bytes([number]) * 200_000, b"short"]))
    first, second = (_records(response) for response in connection.found)
    assert [type(one) for one in (*first, *second)] == [memoryview] * 4
    assert first[0].readonly
    connection.found.clear()
    assert (bytes(first[0]), bytes(second[0])) == (b"\x00" * 200_000, b"\x01" * 200_000)
    connection.close()


def test_what_came_before_the_peer_went_is_received() -> None:
    connection = Connection(1)
    connection.peer.sendall(_frame(0, [b"last words"]))
    connection.peer.close()
    assert isinstance(connection.receive(), KafkaConnectionError)
    assert [_records(response) for response in connection.found] == [[b"last words"]]
    connection.close()


def test_a_peer_that_goes_within_a_frame_is_told() -> None:
    connection = Connection(1)
    connection.peer.sendall(_frame(0, [b"x" * 100_000])[:50_000])
    connection.peer.close()
    assert isinstance(connection.receive(), KafkaConnectionError)
    assert connection.found == []
    connection.close()


def test_a_socket_that_is_closed_is_an_error() -> None:
    peer, mine = socket.socketpair()
    peer.close()
    mine.close()
    for sock in (mine, None):
        found, error = KafkaTCPTransport(None, sock)._sock_recv()
        assert found == b""
        assert isinstance(error, KafkaConnectionError)


def test_the_library_calls_what_is_replaced() -> None:
    assert "recvd_data, err = self._sock_recv()" in inspect.getsource(KafkaTCPTransport._read_from_sock)
    assert "self.parser.receive_bytes(data)" in inspect.getsource(KafkaConnection.data_received)
    assert "response_type.decode(read_buffer)" in inspect.getsource(KafkaProtocol._process_response)


@pytest.mark.parametrize("size", [0, 10, 4096, 60_000, 100_000])
@pytest.mark.parametrize("nbytes", [0, 1, 4095, 4097, 200_000, None])
def test_bytes_of_a_response_are_read_once(size: int, nbytes: int | None) -> None:
    content = os.urandom(size)
    buffer = KafkaBytes(size)
    buffer.write(content)
    buffer.seek(min(3, size))
    rest = content[min(3, size) :]
    first = buffer.read(nbytes)
    assert first == (rest if nbytes is None else rest[:nbytes])
    assert buffer.tell() == min(3, size) + len(first)
    assert buffer.read() == rest[len(first) :]
    assert isinstance(first, memoryview) == (nbytes is None and len(rest) > LONG_BYTES)


def _batch(offset: int, *, legacy: bool = False) -> bytes:
    if legacy:
        old = LegacyRecordBatchBuilder(1, 0, 1 << 20)
        old.append(offset, timestamp=10, key=None, value=b"old")
        return bytes(old.build())
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for i in range(3):
        builder.append(i, 10 + i, None, b"%d" % i, [])
    return offset.to_bytes(8, "big") + bytes(builder.build())[8:]


def test_batches_are_views_with_all_that_their_header_says() -> None:
    content = memoryview(_batch(5) + _batch(8, legacy=True) + _batch(9) + _batch(12)[:-1])
    records, plain = MemoryRecords(content), MemoryRecords(content)
    found = []
    while (batch := next_batch(records)) is not None:
        found.append(batch)
        expected = plain.next_batch()
        assert batch.base_offset == expected.base_offset
        if not isinstance(batch, BatchView):
            assert isinstance(batch, LegacyRecordBatch)
            continue
        assert bytes(batch._buffer) == expected._buffer
        for name in OF_HEADERS:
            assert getattr(batch, name) == getattr(expected, name), name
    assert [type(one) for one in found] == [BatchView, LegacyRecordBatch, BatchView]
    assert plain.next_batch() is None
    assert found[0]._buffer.obj is content.obj
    assert DefaultRecordBatch.HEADER_STRUCT.size == 61
