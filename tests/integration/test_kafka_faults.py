"""The Kafka source when something is wrong: records, offsets, topics, brokers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.kafka_rows import fill, offsets, source, splits, value
from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import delete_records, produce_values
from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.connector.kafka.broker.client import KafkaClient, KafkaPosition
from unistream.connector.kafka.source import fetch as kafka_fetch
from unistream.model.metric_names import PENDING_UNKNOWN, SECONDS_UNANSWERED
from unistream.port.source import Rows
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.devtools.stack import LocalStack

pytestmark = pytest.mark.kafka


def test_a_missing_topic_is_named_with_those_that_exist(kafka: str, topic: str):
    with pytest.raises(ConfigError, match=rf"topic 'no-such-topic' does not exist at {kafka} \(it has .+\)"):
        splits(source(kafka, "no-such-topic"))


def test_a_reader_whose_broker_is_gone_says_so():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    given = source(address, "t", bounded=False, properties={"bootstrap.timeout.ms": "1000"})
    with (
        SourceDriver(given, [KafkaPosition(topic="t", partition=0, offset=0).split()]) as task,
        pytest.raises(Unreachable, match=f"Kafka at {address} did not answer within 1 s"),
    ):
        task.all_rows()


def test_deleted_offsets_are_never_skipped_silently(kafka: str, topic: str):
    fill(kafka, topic, range(100))
    given = source(kafka, topic)
    found = splits(given)
    delete_records(kafka, topic, {1: 20})
    with (
        SourceDriver(given, found) as task,
        pytest.raises(
            ConfigError,
            match=rf"topic '{topic}' partition 1: offset 0 has been deleted; available are 20 to 50",
        ),
    ):
        task.all_rows()
    beyond = [KafkaPosition(topic=topic, partition=0, offset=51, stop=60).split()]
    with SourceDriver(given, beyond) as task, pytest.raises(ConfigError, match="offset 51 does not exist"):
        task.all_rows()
    assert offsets(splits(given))[f"{topic}-1"] == (20, 50)


def test_offsets_deleted_while_reading_are_noticed(kafka: str, topic: str):
    fill(kafka, topic, range(10))
    given = source(kafka, topic, bounded=False, starting_offsets="latest")
    with SourceDriver(given, splits(given)) as task:
        fill(kafka, topic, range(10, 12))
        assert len(task.rows_until(lambda rows: len(rows) >= 2)) == 2
        restored = task.reader.snapshot()
    fill(kafka, topic, range(12, 40))
    delete_records(kafka, topic, {0: 10, 1: 10})
    with SourceDriver(given, restored) as task, pytest.raises(ConfigError, match="offset 6 has been deleted"):
        task.all_rows()


def test_offsets_that_vanish_between_two_fetches_are_noticed_too(kafka: str, topic: str):
    fill(kafka, topic, range(100))
    client = KafkaClient(kafka, {})
    try:
        client.assign([KafkaPosition(topic=topic, partition=0, offset=5)])
        delete_records(kafka, topic, {0: 20})
        with pytest.raises(
            ConfigError, match="partition 0: offset 5 has been deleted; available are 20 to 50"
        ):
            client.poll(WAIT_S * 1000, 10)
    finally:
        client.close()


def test_bad_records_in_the_three_modes(kafka: str, topic: str):
    values = [value(i) for i in range(60)]
    values[21] = b"not json"  # partition 1, offset 10
    values[40] = b'{"i": "forty"}'  # partition 0, offset 20
    produce_values(kafka, topic, values, partitions=[i % 2 for i in range(60)])
    good = [i for i in range(60) if i not in (21, 40)]

    failing = source(kafka, topic)
    one_partition = [s for s in splits(failing) if s.id.endswith("-1")]
    with (
        SourceDriver(failing, one_partition) as task,
        pytest.raises(
            UserCodeError, match=rf"topic '{topic}' partition 1 offset 10: bad record: it is not a JSON"
        ),
    ):
        task.all_rows()

    skipping = source(kafka, topic, on_bad_record="skip")
    with SourceDriver(skipping, splits(skipping)) as task:
        assert sorted(row["i"] for row in task.all_rows()) == good
    assert task.counters["numRecordsSkipped"] == 2

    keeping = source(kafka, topic, on_bad_record="dead-letter")
    letters: list[dict] = []
    rows: list[int] = []
    with SourceDriver(keeping, splits(keeping)) as task:
        for polled in task.polled():
            if isinstance(polled, Rows):
                rows += polled.records.column("i").to_pylist()
                letters += polled.dead_letters.to_pylist() if polled.dead_letters is not None else []
    assert sorted(rows) == good
    assert sorted((r["partition"], r["offset"], r["raw"]) for r in letters) == [
        (0, 20, b'{"i": "forty"}'),
        (1, 10, b"not json"),
    ]


@pytest.mark.slow
def test_a_reader_survives_a_broker_that_restarts_and_gives_up_one_that_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kafka_fetch, "IDLE_CHECK_S", 0.5)
    monkeypatch.setattr(kafka_fetch, "UNANSWERED_S", 1.0)
    with LocalStack(tmp_path, ["kafka"]) as first:
        address = first.address("kafka")
        create_topic(address, "t", partitions=2)
        given = source(address, "t", bounded=False)
        fill(address, "t", range(10))
        with SourceDriver(given, splits(given)) as task:
            task.rows_until(lambda rows: len(rows) >= 10)
            first.close()
            with LocalStack(tmp_path, ["kafka"]) as second:
                assert second.address("kafka") == address
                fill(address, "t", range(10, 20))
                rows = task.rows_until(lambda rows: len(rows) >= 10)
                assert sorted(row["i"] for row in rows) == list(range(10, 20))
                assert all(p == (10, None) for p in offsets(task.reader.snapshot()).values())
            while not task.counters[SECONDS_UNANSWERED]:
                task.reader.poll()
            assert task.counters[PENDING_UNKNOWN] == 1, "nobody knows what has come since"
            monkeypatch.setattr(kafka_fetch, "UNREACHABLE_AFTER_S", 1.0)
            with pytest.raises(Unreachable, match=f"Kafka at {address} did not answer"):
                task.all_rows()
