"""The Kafka source against a real broker."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import CoordinatorNotAvailableError

from tests.eventually import WAIT_S, eventually
from tests.integration.kafka_rows import SCHEMA, fill, offsets, source, splits, value
from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import end_offsets, produce_values
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.connector.kafka import create_discovery
from unistream.connector.kafka.broker.client import KafkaPosition
from unistream.model.splits import KnownSplits
from unistream.port.source import Exhausted, Rows, SplitFinished

pytestmark = pytest.mark.kafka


def test_bounded_reads_all_rows_once_in_order_and_ends(kafka: str, topic: str):
    fill(kafka, topic, range(1000), timestamps_ms=range(5000, 6000))
    given = source(kafka, topic)
    found = splits(given)
    assert offsets(found) == {f"{topic}-0": (0, 500), f"{topic}-1": (0, 500)}
    fill(kafka, topic, range(1000, 1100))  # after the start: not part of it

    ids: dict[str, list[int]] = {split.id: [] for split in found}
    finished: list[str] = []
    with SourceDriver(given, found) as task:
        for polled in task.polled():
            match polled:
                case Rows(split_id, records, timestamps, dead_letters):
                    assert split_id not in finished
                    assert records.schema == SCHEMA
                    assert dead_letters is None
                    numbers = records.column("i").to_pylist()
                    assert timestamps.to_pylist() == [5000 + i for i in numbers]
                    assert records.column("name").to_pylist() == [f"n{i}" for i in numbers]
                    ids[split_id] += numbers
                case SplitFinished(split_id):
                    finished.append(split_id)
        assert task.reader.snapshot() == []
    assert ids == {f"{topic}-0": list(range(0, 1000, 2)), f"{topic}-1": list(range(1, 1000, 2))}
    assert sorted(finished) == [f"{topic}-0", f"{topic}-1"]
    assert task.counters["numBytesIn"] > 20_000


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_snapshot_in_the_middle_and_a_new_reader_goes_on_exactly_there(kafka, topic, compression):
    # small batches: several of them in one fetch, and positions in the middle of others
    fill(kafka, topic, range(3000), compression=compression)
    given = source(kafka, topic, properties={"max.partition.fetch.bytes": "20000"})
    before: list[dict] = []
    with SourceDriver(given, splits(given)) as task:
        for polled in task.polled():
            assert isinstance(polled, Rows)
            before += polled.records.to_pylist()
            if len(before) > 500:
                break
        restored = task.reader.snapshot()
    assert 500 < len(before) < 3000
    assert sum(offset for offset, _ in offsets(restored).values()) == len(before)
    with SourceDriver(given, restored) as task:
        after = task.all_rows()
    assert sorted(row["i"] for row in before + after) == list(range(3000))


def test_a_restart_in_the_middle_of_a_record_batch(kafka: str, topic: str):
    fill(kafka, topic, range(200))
    given = source(kafka, topic)
    inner = [
        KafkaPosition(topic=topic, partition=0, offset=37, stop=61).split(),
        KafkaPosition(topic=topic, partition=1, offset=99, stop=100).split(),
    ]
    with SourceDriver(given, inner) as task:
        numbers = sorted(row["i"] for row in task.all_rows())
    assert numbers == sorted([*range(74, 122, 2), 199])


def test_unbounded_goes_on_with_what_comes_later_and_knows_new_partitions(kafka: str, topic: str):
    fill(kafka, topic, range(10))
    given = source(kafka, topic, bounded=False, starting_offsets="latest")
    discovery = create_discovery(given.info())
    found = discovery.discover()
    assert offsets(found) == {f"{topic}-0": (5, None), f"{topic}-1": (5, None)}
    with SourceDriver(given, found) as task:
        assert task.counters["pendingUnknown"] == 1
        fill(kafka, topic, range(10, 30))
        rows = task.rows_until(lambda rows: len(rows) >= 20)
        assert task.counters["pendingUnknown"] == 0
        assert sorted(row["i"] for row in rows) == list(range(10, 30))
        fill(kafka, topic, range(30, 34))
        rows = task.rows_until(lambda rows: len(rows) >= 4)
        assert sorted(row["i"] for row in rows) == list(range(30, 34))
        assert offsets(task.reader.snapshot()) == {f"{topic}-0": (17, None), f"{topic}-1": (17, None)}
    again = discovery.find(KnownSplits(ids=frozenset(split.id for split in found)))
    assert again.splits == ()
    discovery.close()


def test_starting_offsets_by_time_and_by_number(kafka: str, topic: str):
    fill(kafka, topic, range(100), timestamps_ms=range(1_000, 101_000, 1_000))
    ends = {f"{topic}-0": 50, f"{topic}-1": 50}
    for start, expected in (
        (51_000, {f"{topic}-0": 25, f"{topic}-1": 25}),
        (51_001, {f"{topic}-0": 26, f"{topic}-1": 25}),
        (10**12, ends),
        ({0: 3, 1: 50}, {f"{topic}-0": 3, f"{topic}-1": 50}),
        ("earliest", {f"{topic}-0": 0, f"{topic}-1": 0}),
        ("latest", ends),
    ):
        found = offsets(splits(source(kafka, topic, starting_offsets=start)))
        assert {k: offset for k, (offset, _) in found.items()} == expected, start
    with pytest.raises(ConfigError, match=r"names partitions \[0\], but topic .* has \[0, 1\]"):
        splits(source(kafka, topic, starting_offsets={0: 3}))
    with pytest.raises(ConfigError, match=r"partition 1 has no offset 51; available are 0 to 50"):
        splits(source(kafka, topic, starting_offsets={0: 3, 1: 51}))


def test_bounded_on_an_empty_topic_ends_at_once(kafka: str, topic: str):
    given = source(kafka, topic)
    with SourceDriver(given, splits(given)) as task:
        polled = list(task.polled())
    assert [type(p) for p in polled] == [SplitFinished, SplitFinished, Exhausted]


def test_tombstones_give_no_row_and_positions_pass_them(kafka: str, topic: str):
    produce_values(kafka, topic, [value(0), None, value(2), None], keys=[b"k"] * 4, partitions=[0] * 4)
    given = source(kafka, topic)
    with SourceDriver(given, splits(given)) as task:
        assert [row["i"] for row in task.all_rows()] == [0, 2]
    assert task.counters["numTombstonesSkipped"] == 2

    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])
    raw = source(kafka, topic, format="bytes", schema=schema)
    with SourceDriver(raw, splits(raw)) as task:
        rows = task.all_rows()
    assert [row["value"] for row in rows] == [value(0), None, value(2), None]
    assert {row["key"] for row in rows} == {b"k"}
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]


def test_keys_headers_and_tombstones_as_columns(kafka: str, topic: str):
    producer = KafkaProducer(bootstrap_servers=kafka)
    try:
        for key, what, headers in (
            (b"a", value(1), [("trace", b"7"), ("trace", b"8")]),
            (b"b", value(2), []),
            (b"a", None, [("why", b"gone")]),
        ):
            producer.send(topic, what, key=key, headers=headers, partition=1, timestamp_ms=5_000)
        producer.flush(timeout=WAIT_S)
    finally:
        producer.close()
    given = source(
        kafka,
        topic,
        schema=pa.schema([("key", pa.string()), *SCHEMA]),
        key_format="bytes",
        key_fields=["key"],
        metadata={"headers": "headers", "from": "topic", "at": "offset", "deleted": "tombstone"},
        tombstones="row",
    )
    with SourceDriver(given, splits(given)) as task:
        rows = task.all_rows()
    pairs = [[(one["key"], one["value"]) for one in row.pop("headers")] for row in rows]
    assert pairs == [[("trace", b"7"), ("trace", b"8")], [], [("why", b"gone")]]
    assert [tuple(row.values()) for row in rows] == [
        ("a", 1, "n1", topic, 0, False),
        ("b", 2, "n2", topic, 1, False),
        ("a", None, None, topic, 2, True),
    ]


def test_only_committed_transactions_are_read_and_their_markers_are_passed(kafka: str, topic: str):
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
    try:
        producer.init_transactions()
        for i, commits in enumerate([True, False, True, False]):
            producer.begin_transaction()
            for k in range(3):
                producer.send(topic, value(10 * i + k), partition=0)
            producer.flush(timeout=WAIT_S)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close()
    assert end_offsets(kafka, topic)[0] == 16  # 12 records and 4 markers
    given = source(kafka, topic)
    with SourceDriver(given, splits(given)) as task:
        assert [row["i"] for row in task.all_rows()] == [0, 1, 2, 20, 21, 22]

    dirty = source(kafka, topic, properties={"isolation.level": "read_uncommitted"})
    with SourceDriver(dirty, splits(dirty)) as task:
        assert len(task.all_rows()) == 12


def test_positions_are_reported_to_the_group_after_a_checkpoint(kafka: str, topic: str):
    assert_a_checkpoint_is_reported(kafka, topic, partition=0)


def test_positions_that_could_not_be_committed_are_committed_later(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
):
    """As at a broker that still makes its topic of offsets."""
    refused: list[object] = []
    commit = ConsumerCoordinator._send_offset_commit_request

    async def refuse_first(self: ConsumerCoordinator, offsets: object) -> object:
        if not refused:
            refused.append(offsets)
            raise CoordinatorNotAvailableError
        return await commit(self, offsets)

    monkeypatch.setattr(ConsumerCoordinator, "_send_offset_commit_request", refuse_first)
    assert_a_checkpoint_is_reported(kafka, topic, partition=1)
    assert refused


def test_rows_are_read_while_the_group_has_no_coordinator(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
):
    async def unavailable(self: ConsumerCoordinator) -> object:
        raise CoordinatorNotAvailableError

    monkeypatch.setattr(ConsumerCoordinator, "_send_group_coordinator_request", unavailable)
    fill(kafka, topic, range(20))
    given = source(kafka, topic, bounded=False, properties={"group.id": f"monitor-{topic}"})
    with SourceDriver(given, splits(given)) as task:
        assert len(task.rows_until(lambda rows: len(rows) >= 20)) == 20
        task.reader.snapshot()
        task.reader.notify_checkpoint_complete(CheckpointId(1))
        fill(kafka, topic, range(20, 40))
        assert len(task.rows_until(lambda rows: len(rows) >= 20)) == 20


def assert_a_checkpoint_is_reported(kafka: str, topic: str, partition: int) -> None:
    """Reads 20 rows of two partitions and completes a checkpoint: the group is at 10 in `partition`."""
    fill(kafka, topic, range(20))
    group = f"monitor-{topic}"
    given = source(kafka, topic, bounded=False, properties={"group.id": group})
    with SourceDriver(given, splits(given)) as task:
        task.rows_until(lambda rows: len(rows) >= 20)
        task.reader.snapshot()
        task.reader.notify_checkpoint_complete(CheckpointId(1))
        expect_committed(kafka, group, topic, partition=partition, expected=10)


def expect_committed(kafka: str, group: str, topic: str, partition: int, expected: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    try:
        place = TopicPartition(topic, partition)
        eventually(lambda: consumer.committed(place) == expected, f"{place} is committed", WAIT_S, 0.05)
    finally:
        consumer.close()


def test_records_that_are_not_read_yet_are_counted(kafka: str, topic: str):
    """Until all of them are; what is behind the end of a bounded source does not count."""
    fill(kafka, topic, range(300))
    given = source(kafka, topic)
    found = splits(given)
    fill(kafka, topic, range(300, 400))
    shown: list[int] = []
    with SourceDriver(given, found) as task:
        eventually(
            lambda: isinstance(task.reader.poll(), Rows) or task.counters["pendingRecords"] == 300,
            "what is there is known",
            WAIT_S,
        )
        assert task.counters["pendingUnknown"] == 0
        shown.append(task.counters["pendingRecords"])
        for _ in task.polled():
            shown.append(task.counters["pendingRecords"])
    assert shown == sorted(shown, reverse=True)
    assert 0 < shown[0] <= 300
    assert shown[-1] == 0


def test_closing_an_unfinished_reader_leaves_no_thread(kafka: str, topic: str):
    fill(kafka, topic, range(100))
    before = {thread.name for thread in threading.enumerate()}
    given = source(kafka, topic, bounded=False)
    with SourceDriver(given, splits(given)) as task:
        task.rows_until(lambda rows: len(rows) >= 100)
    assert {thread.name for thread in threading.enumerate()} <= before
