"""Every private name of kafka-python that `connector.kafka.broker.private` uses, touched by name."""

from __future__ import annotations

import inspect
import os
import socket
import subprocess
import sys
import uuid
from importlib.metadata import version

import kafka
import pytest
from kafka import KafkaAdminClient
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.metadata import MetadataRequest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.structs import TopicPartition

from tests.eventually import WAIT_S
from tests.support.servers.kafka_tools import produce_values
from unistream.connector.kafka.broker.config import client_settings
from unistream.connector.kafka.broker.private import RawPartitionRecords, raw_consumer, topic_metadata
from unistream.testing.devtools.kafka_tools import create_topic

TIMEOUT_MS = 10_000
RECORDS = Fetcher.PartitionRecords


def _batch() -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for i in range(3):
        builder.append(i, 10 + i, None, b"%d" % i, [])
    return bytes(builder.build())


def test_version_is_in_the_pinned_range():
    major = int(version("kafka-python").split(".")[0])
    assert major == 3


@pytest.mark.parametrize(
    "name",
    [
        "_unpack_records",
        "_maybe_skip_record",
        "_consume_aborted_transactions_up_to",
        "_is_batch_aborted",
        "_contains_abort_marker",
        "drain",
        "take",
    ],
)
def test_methods_of_partition_records(name: str):
    assert callable(getattr(RECORDS, name))


def test_arguments_of_what_is_overridden():
    assert list(inspect.signature(RECORDS._unpack_records).parameters) == [
        "self",
        "tp",
        "records",
        "key_deserializer",
        "value_deserializer",
    ]
    assert "self.PartitionRecords(" in inspect.getsource(Fetcher._parse_fetched_data)
    assert "self._fetcher = Fetcher(" in inspect.getsource(kafka.KafkaConsumer.__init__)
    assert "self._client = " in inspect.getsource(kafka.KafkaConsumer.__init__)


def test_attributes_of_an_instance():
    records = RECORDS(0, TopicPartition("t", 0), MemoryRecords(_batch()))
    for name in (
        "next_fetch_offset",
        "leader_epoch",
        "bytes_read",
        "records_read",
        "check_crcs",
        "isolation_level",
        "aborted_producer_ids",
    ):
        assert hasattr(records, name), name


def test_attributes_of_a_batch():
    batch = DefaultRecordBatch(_batch())
    assert bytes(batch._buffer) == _batch()
    assert (DefaultRecordBatch.HEADER_STRUCT.size, DefaultRecordBatch.ATTRIBUTES_OFFSET) == (61, 21)
    assert (batch.base_offset, batch.next_offset, batch.records_count) == (0, 3, 3)


def test_the_override_yields_batches_and_moves_the_position():
    drained = []
    records = RawPartitionRecords(
        1, TopicPartition("t", 0), MemoryRecords(_batch() + _batch()), on_drain=drained.append
    )
    taken = records.take(10)
    assert [(b.base_offset, b.next_offset, b.count) for b in taken] == [(0, 3, 3), (0, 3, 3)]
    assert records.next_fetch_offset == 3
    assert records.records_read == 6
    assert drained == [records]
    assert not records


def test_what_one_metadata_request_needs():
    made = inspect.getsource(kafka.KafkaConsumer.__init__)
    for name in ("self._manager = ", "self._cluster = ", "self._net = "):
        assert name in made, name
    assert list(inspect.signature(KafkaConnectionManager.send).parameters)[:3] == [
        "self",
        "request",
        "node_id",
    ]
    assert list(inspect.signature(KafkaConnectionManager.wait_for).parameters) == [
        "self",
        "future",
        "timeout_ms",
    ]
    assert list(inspect.signature(ClusterMetadata.leader_for_partition).parameters) == ["self", "partition"]
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="t")],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert request.encode(version=12), "topic ids came with version 10"


SOCKETS_LEFT = """import gc, psutil, sys
from kafka.errors import KafkaError
from unistream.connector.kafka.broker.config import client_settings
from unistream.connector.kafka.broker.private import raw_consumer
settings = client_settings(sys.argv[1], {"bootstrap.timeout.ms": "300"})
gc.collect()
gc.disable()  # it would close them
before = psutil.Process().num_fds()
try:
    raw_consumer(settings)
except KafkaError:
    print("left:", psutil.Process().num_fds() - before)
"""


@pytest.mark.skipif(os.name != "posix", reason="counts file descriptors")
def test_a_refused_connection_leaves_no_socket():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        # In a process of its own: what other tests left here may be closed at any moment.
        run = [sys.executable, "-c", SOCKETS_LEFT, address]
        done = subprocess.run(run, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout == "left: 0\n"


def test_a_client_that_closes_while_it_writes_leaves_no_socket(kafka: str):
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.list_topics()
    [transport] = [conn.transport for conn in admin._manager._conns.values() if conn.transport is not None]
    sock = transport._sock
    transport._write_buffer.append(b"not sent yet")
    admin.close()
    assert sock.fileno() == -1


def test_what_reading_without_a_coordinator_needs():
    assert "self._coordinator.poll(" in inspect.getsource(kafka.KafkaConsumer)
    assert list(inspect.signature(ConsumerCoordinator.poll).parameters) == ["self", "timeout_ms"]
    assert callable(ConsumerCoordinator._invoke_completed_offset_commit_callbacks)


@pytest.mark.kafka
def test_offsets_are_of_all_partitions_also_of_one_whose_leader_is_not_known_yet(kafka: str):
    """kafka-python leaves that one out where it knows the leader of another one."""
    known, new = f"p-{uuid.uuid4().hex[:8]}", f"p-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, known)
    create_topic(kafka, new)
    produce_values(kafka, new, [b"1", b"2"])
    places = [TopicPartition(known, 0), TopicPartition(new, 0)]
    consumers = [raw_consumer(client_settings(kafka, {})) for _ in range(3)]
    try:
        for consumer in consumers:
            assert consumer.beginning_offsets(places[:1], timeout_ms=TIMEOUT_MS) == {places[0]: 0}
            assert consumer._cluster.leader_for_partition(places[1]) is None
        first, second, third = consumers
        assert first.beginning_offsets(places, timeout_ms=TIMEOUT_MS) == dict.fromkeys(places, 0)
        assert second.end_offsets(places, timeout_ms=TIMEOUT_MS) == {places[0]: 0, places[1]: 2}
        at_time = third.offsets_for_times(dict.fromkeys(places, 1), timeout_ms=TIMEOUT_MS)
        assert at_time[places[0]] is None, "it has no record"
        assert at_time[places[1]].offset == 0
    finally:
        for consumer in consumers:
            consumer.close()


def test_the_metadata_of_a_topic_by_any_broker_and_by_its_leaders(kafka: str):
    first, second = f"meta-{uuid.uuid4().hex}", f"meta-{uuid.uuid4().hex}"
    create_topic(kafka, first, partitions=2)
    create_topic(kafka, second)
    consumer = raw_consumer(client_settings(kafka, {}))
    try:
        [(first_id, partitions)] = topic_metadata(consumer, {first: ()}, TIMEOUT_MS)[first]
        assert uuid.UUID(first_id).int
        assert partitions == [0, 1]
        consumer.assign([TopicPartition(first, 0)])
        found = topic_metadata(consumer, {first: [0, 1], second: (), "there-is-none": ()}, TIMEOUT_MS)
        assert found[first] == [(first_id, [0, 1])]
        assert found[second][0][0] != first_id
        assert found["there-is-none"] == []
    finally:
        consumer.close(autocommit=False)
