"""The only module, with `receive`, that uses private names of kafka-python's consumer.

pyproject requires kafka-python >=3.0.6,<4; `tests/contract/test_contract_kafka_private.py` uses every name
below, so that it fails after an incompatible upgrade. The names:

    KafkaConsumer._fetcher, ._client (to close one whose constructor failed)
    KafkaConsumer._coordinator.poll, ._invoke_completed_offset_commit_callbacks
    KafkaNetSocket.sock_connect
    KafkaTCPTransport.close, ._write_buffer, ._net, ._sock; NetworkSelector.close
    KafkaConsumer._net.run, ._manager.send, ._manager.wait_for, ._cluster.leader_for_partition: one metadata
        request, which no public method sends for some topics only, with a timeout and without the cache
    Fetcher.PartitionRecords: looked up on the instance; __init__ arguments as inherited,
        _unpack_records, _consume_aborted_transactions_up_to, _is_batch_aborted, _contains_abort_marker,
        next_fetch_offset, leader_epoch, bytes_read, records_read, check_crcs, isolation_level, drain
    DefaultRecordBatch._buffer, HEADER_STRUCT, ATTRIBUTES_OFFSET
    Fetcher._send_list_offsets_requests, ._manager.cluster, .add_topic, .request_update, ._manager._net.sleep:
        offsets of partitions that have no leader yet
    the logger kafka.net.manager: why a client could not connect is only there
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from crc32c import crc32c
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import (
    AuthorizationError,
    CorruptRecordError,
    IllegalSaslStateError,
    IncompatibleBrokerVersion,
    InvalidRequestError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    StaleMetadata,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    for_code,
)
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.consumer import IsolationLevel
from kafka.protocol.metadata import MetadataRequest
from kafka.record.default_records import DefaultRecordBatch

from unistream.connector.kafka.broker.receive import DISCONNECTED, next_batch
from unistream.connector.kafka.record.records import RawBatch

_HEADER_BYTES: Final = DefaultRecordBatch.HEADER_STRUCT.size
_CODECS: Final = {
    DefaultRecordBatch.CODEC_GZIP: "gzip",
    DefaultRecordBatch.CODEC_LZ4: "lz4",
    DefaultRecordBatch.CODEC_ZSTD: "zstd",
}
LOGIN_REFUSED: Final = (SaslAuthenticationFailedError, UnsupportedSaslMechanismError, IllegalSaslStateError)
REFUSED: Final = (
    AuthorizationError,
    *LOGIN_REFUSED,
    KafkaConfigurationError,
    InvalidTopicError,
    InvalidRequestError,
    IncompatibleBrokerVersion,
    UnsupportedVersionError,
)
"""What brokers will refuse again."""
ASK_AGAIN_S: Final = 0.1
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16  # magic, version, compatible version


class RawPartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc, unused-ignore]
    """A partition's fetched data as `RawBatch`es: one object per record batch, none per record."""

    def _unpack_records(
        self, tp: Any, records: Any, key_deserializer: Any, value_deserializer: Any
    ) -> Iterator[RawBatch]:
        """Replaces the record iterator. Batches that are hidden from readers have count 0, so that the
        position moves past them."""
        while (batch := next_batch(records)) is not None:
            if batch.magic != 2:
                raise UnsupportedCodecError(
                    f"{tp.topic}-{tp.partition} has messages of format {batch.magic}; only 2 is supported"
                )
            if self.check_crcs:
                _check_crc(batch, tp)
            raw = _raw_batch(batch, hidden=self._is_hidden(batch))
            self.leader_epoch = batch.leader_epoch
            self.next_fetch_offset = raw.next_offset
            self.records_read += raw.count
            self.bytes_read += batch.size_in_bytes
            yield raw
        self.drain()

    def _is_hidden(self, batch: Any) -> bool:
        """Control batches, and with read_committed the batches of aborted transactions."""
        if self.isolation_level == IsolationLevel.READ_COMMITTED and batch.has_producer_id():
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if self._contains_abort_marker(batch):
                self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return True
        return bool(batch.is_control_batch)


def raw_consumer(config: dict[str, Any]) -> Any:
    """A KafkaConsumer whose `poll` returns lists of `RawBatch`. A constructor that fails leaves no thread."""
    consumer = KafkaConsumer.__new__(KafkaConsumer)
    try:
        with saying_why(config):
            consumer.__init__(**config)
    except BaseException:
        if hasattr(consumer, "_client"):
            consumer._client.close()
        raise
    consumer._fetcher.PartitionRecords = RawPartitionRecords
    consumer._fetcher._send_list_offsets_requests = _offsets_of_all(consumer._fetcher)
    consumer._coordinator.poll = _poll_without_coordinator(consumer._coordinator)
    return consumer


def _offsets_of_all(fetcher: Any) -> Callable[[dict[Any, int]], Awaitable[Any]]:
    """Asks for the offsets of all partitions, or of none. kafka-python leaves out those that have no leader
    just then, as each has when its topic is made: they look like partitions without a record of that time.
    Where a leader refuses it asks again at once, the same one, without a pause."""
    ask, manager = fetcher._send_list_offsets_requests, fetcher._manager

    async def wait() -> None:
        manager.cluster.request_update()
        await manager._net.sleep(ASK_AGAIN_S)

    async def asked(timestamps: dict[Any, int]) -> Any:
        leaders = {place: manager.cluster.leader_for_partition(place) for place in timestamps}
        without = [place for place, leader in leaders.items() if leader is None or leader < 0]
        if without:
            for place in without:
                manager.cluster.add_topic(place.topic)
            await wait()
            raise StaleMetadata(f"{without[0].topic}-{without[0].partition} has no leader")
        found, again = await ask(timestamps)
        if again:
            await wait()
        return found, again

    return asked


class _Failures(logging.Handler):
    """The errors of connections, as they are logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        attempt, _, reason = record.getMessage().partition(" failed: ")
        if attempt.startswith("Bootstrap attempt"):  # its text was put together before
            self.errors.append(KafkaConnectionError(reason))
        arguments = record.args if isinstance(record.args, tuple) else ()
        of_one_try = [one for one in arguments if not isinstance(one, KafkaTimeoutError)]
        self.errors += [one for one in of_one_try if isinstance(one, Exception)]


@contextmanager
def saying_why(properties: Mapping[str, Any]) -> Iterator[None]:
    """Wraps the constructor of a client, which tries again until its time is over, and then says only that it
    could not bootstrap. The refusal of a login is raised instead, and any other reason is added. Of ten tries
    with a wrong password some show the refusal, and none need to: the broker closes the connection right
    behind its answer, which kafka-python then may not read any more.

    Args:
        properties: Of the client, as kafka-python has them.
    """
    logger, seen = logging.getLogger("kafka.net.manager"), _Failures()
    logger.addHandler(seen)
    try:
        yield
    except KafkaTimeoutError as error:
        refusal = next((one for one in seen.errors if isinstance(one, LOGIN_REFUSED)), None)
        if refusal is not None:
            _, named, detail = str(refusal).rpartition("Error: ")
            raise (type(refusal)(detail) if named else refusal) from error
        if not seen.errors:
            raise
        raise KafkaTimeoutError(_reason(seen.errors[0], properties)) from error
    finally:
        logger.removeHandler(seen)


def _reason(error: Exception, properties: Mapping[str, Any]) -> str:
    text = str(error)
    if DISCONNECTED not in text:
        return text
    protocol = properties.get("security_protocol", "PLAINTEXT")
    what = f"is {protocol} the security.protocol of this listener"
    if protocol.startswith("SASL"):
        what += ", and are user, password and sasl.mechanism right"
    return f"it closes the connection: {what}?"


def _poll_without_coordinator(coordinator: Any) -> Callable[..., bool]:
    """Replaces the step of `KafkaConsumer.poll` that waits for the coordinator of the group and returns no
    records before: with partitions of its own choice a consumer needs it only to commit."""

    def poll(**_timeout: Any) -> bool:
        coordinator._invoke_completed_offset_commit_callbacks()
        return True

    return poll


_sock_connect = KafkaNetSocket.sock_connect


async def _connect_or_close(
    self: Any, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None
) -> Any:
    """A refused connection closes its socket; kafka-python leaves it to the garbage collector."""
    try:
        return await _sock_connect(self, net, sock, sockaddr, timeout_at=timeout_at)
    except BaseException:
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connect_or_close


_close_transport, _close_net = KafkaTCPTransport.close, NetworkSelector.close
_FLUSHING: Final = "_unistream_flushing"  # of a network: transports that close when they are flushed


def _close_when_flushed(self: Any) -> None:
    """A transport with something left to write is closed by its writer, which a client that closes cancels;
    kafka-python leaves the socket to the garbage collector then."""
    _close_transport(self)
    if self._write_buffer:
        self._net.__dict__.setdefault(_FLUSHING, []).append(self)


def _close_net_and_sockets(self: Any) -> None:
    _close_net(self)
    for transport in self.__dict__.pop(_FLUSHING, []):
        if transport._sock is not None:
            transport._sock.close()


KafkaTCPTransport.close, NetworkSelector.close = _close_when_flushed, _close_net_and_sockets


def topic_metadata(
    consumer: Any, topics: Mapping[str, Collection[int]], timeout_ms: int
) -> dict[str, list[tuple[str, list[int]]]]:
    """Topic -> (id, partitions), by the leader of each partition that is given, or by any broker if none is.

    The id is "" if the broker has no topic ids. Empty: a broker has no such topic. A broker gets one request.

    Raises:
        KafkaError: a broker refused, or did not answer within `timeout_ms`.
    """
    asked: dict[Any, list[str]] = {}
    for topic, led in topics.items():
        leaders = {consumer._cluster.leader_for_partition(TopicPartition(topic, p)) for p in led}
        for node in {node for node in leaders if node is not None and node >= 0} or {None}:
            asked.setdefault(node, []).append(topic)
    found: dict[str, list[tuple[str, list[int]]]] = {topic: [] for topic in topics}
    missing = set()
    for node, names in asked.items():
        for name, answer in _answers(consumer, names, timeout_ms, node).items():
            if answer is None:
                missing.add(name)
            else:
                found[name].append(answer)
    return {topic: [] if topic in missing else answers for topic, answers in found.items()}


def _answers(
    consumer: Any, topics: Sequence[str], timeout_ms: int, node: Any
) -> dict[str, tuple[str, list[int]] | None]:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )

    async def ask() -> Any:
        manager = consumer._manager
        return await manager.wait_for(manager.send(request, node), timeout_ms)

    return {found.name: _answer(found) for found in consumer._net.run(ask).topics}


def _answer(found: Any) -> tuple[str, list[int]] | None:
    error = for_code(found.error_code)
    if error is UnknownTopicOrPartitionError:
        return None
    if found.error_code:
        raise error(found.name)
    known = found.topic_id is not None and found.topic_id.int
    return str(found.topic_id) if known else "", sorted(p.partition_index for p in found.partitions)


def _check_crc(batch: Any, tp: Any) -> None:
    if crc32c(memoryview(batch._buffer)[DefaultRecordBatch.ATTRIBUTES_OFFSET :]) != batch.crc:
        raise CorruptRecordError(
            f"the record batch of {tp.topic}-{tp.partition} at offset {batch.base_offset} fails its checksum"
        )


def _raw_batch(batch: Any, *, hidden: bool) -> RawBatch:
    append_time = batch.timestamp_type == DefaultRecordBatch.LOG_APPEND_TIME
    return RawBatch(
        base_offset=batch.base_offset,
        next_offset=batch.next_offset,
        first_timestamp=batch.first_timestamp,
        append_timestamp=batch.max_timestamp if append_time else -1,
        count=0 if hidden else batch.records_count,
        payload=memoryview(b"") if hidden else _payload(batch),
    )


def _payload(batch: Any) -> memoryview:
    """The records, decompressed by Arrow's codecs."""
    body = memoryview(batch._buffer)[_HEADER_BYTES:]
    codec = batch.compression_type
    if codec == DefaultRecordBatch.CODEC_NONE:
        return body
    if codec == DefaultRecordBatch.CODEC_SNAPPY:
        return memoryview(_snappy(body))
    try:
        with pa.CompressedInputStream(pa.py_buffer(body), _CODECS[codec]) as stream:
            return memoryview(stream.read())
    except (OSError, KeyError) as error:
        raise CorruptRecordError(
            f"cannot decompress the batch at offset {batch.base_offset}: {error}"
        ) from error


def _snappy(body: memoryview) -> bytes:
    """Blocks in the xerial framing of Kafka clients, or one bare block."""
    if bytes(body[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(body)
    blocks = []
    at = _XERIAL_HEADER_BYTES
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        blocks.append(_snappy_block(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


def _snappy_block(block: memoryview) -> bytes:
    size, shift = 0, 0
    for byte in block[:5]:  # decompressed size: an unsigned varint of at most 32 bits
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy"))
