"""Every private name of kafka-python that `unistream.connector.kafka.private` uses, touched by name."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import kafka
import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.structs import TopicPartition

from unistream.connector.kafka.private import RawPartitionRecords

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
