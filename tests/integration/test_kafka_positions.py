"""Where a Kafka source begins and stops, against a real broker: times, groups, offsets, gaps in the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration import kafka_positions_pipeline
from tests.integration.crash_runs import OF_MATRIX, Crashes, Lives, commands_in
from tests.integration.kafka_positions_pipeline import BOOTSTRAP, GROUP, TOPIC, pipeline
from tests.integration.kafka_rows import fill, offsets, source, splits, value
from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import delete_records, end_offsets, produce_values
from unistream.base.errors import ConfigError
from unistream.connector.kafka.broker.client import KafkaPosition
from unistream.port.source import Exhausted, SplitFinished
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = pytest.mark.kafka

CONFIG = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def found(kafka: str, topic: str, **changed: object) -> list[tuple[int, int | None]]:
    """Start and stop of each of the two partitions."""
    by_id = offsets(splits(source(kafka, topic, **{"bounded": False, **changed})))
    return [by_id[f"{topic}-{partition}"] for partition in (0, 1)]


def numbers(given: us.KafkaSource, **how: float) -> list[int]:
    with SourceDriver(given, splits(given), **how) as task:
        return [row["i"] for row in task.all_rows()]


def commit(kafka: str, group: str, topic: str, positions: dict[int, int]) -> None:
    """As another consumer of the group."""
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    try:
        consumer.commit(
            {TopicPartition(topic, p): OffsetAndMetadata(at, "", -1) for p, at in positions.items()}
        )
    finally:
        consumer.close()


def committed(kafka: str, group: str, topic: str) -> list[int | None]:
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    try:
        return [consumer.committed(TopicPartition(topic, partition)) for partition in (0, 1)]
    finally:
        consumer.close()


# --- what is found ------------------------------------------------------------------------------------


def test_starts_and_stops_by_time_and_by_offset(kafka: str, topic: str):
    fill(kafka, topic, range(100), timestamps_ms=range(1_000, 101_000, 1_000))
    at = datetime.fromtimestamp(51, UTC)
    assert found(kafka, topic, starting_offsets=at) == [(25, None), (25, None)]
    assert found(kafka, topic, stopping_offsets=at) == [(0, 25), (0, 25)]
    assert found(kafka, topic, starting_offsets=51_001, stopping_offsets=61_001) == [(26, 31), (25, 30)]
    assert found(kafka, topic, stopping_offsets=10**12) == [(0, 50), (0, 50)], "what is there now"
    assert found(kafka, topic, bounded=True) == [(0, 50), (0, 50)]
    assert found(kafka, topic, stopping_offsets={0: 7, 1: 90}) == [(0, 7), (0, 90)]
    by_topic = {(topic, 0): 7, (topic, 1): 9}
    assert found(kafka, topic, starting_offsets=by_topic, bounded=True) == [(7, 50), (9, 50)]


def test_starts_and_stops_at_what_a_group_has_committed(kafka: str, topic: str):
    fill(kafka, topic, range(20))
    group = {"properties": {"group.id": f"of-{topic}"}}
    with pytest.raises(
        ConfigError, match=rf"group 'of-{topic}' has committed no offset of {topic}-0, {topic}-1"
    ):
        found(kafka, topic, starting_offsets="committed", **group)
    commit(kafka, f"of-{topic}", topic, {0: 4})
    with pytest.raises(ConfigError, match=rf"'of-{topic}' has committed no offset of {topic}-1; commit"):
        found(kafka, topic, stopping_offsets="committed", **group)
    earliest, latest = "committed-or-earliest", "committed-or-latest"
    assert found(kafka, topic, starting_offsets=earliest, **group) == [(4, None), (0, None)]
    assert found(kafka, topic, starting_offsets=latest, **group) == [(4, None), (10, None)]
    assert found(kafka, topic, stopping_offsets=latest, **group) == [(0, 4), (0, 10)]
    commit(kafka, f"of-{topic}", topic, {1: 9})
    assert found(kafka, topic, starting_offsets="committed", bounded=True, **group) == [(4, 10), (9, 10)]
    delete_records(kafka, topic, {0: 5})
    with pytest.raises(ConfigError, match=r"is at offset 4 of topic .* partition 0, which has been deleted"):
        found(kafka, topic, starting_offsets=earliest, **group)


# --- reading to a stop --------------------------------------------------------------------------------


def test_a_stop_that_is_not_behind_the_start_gives_no_rows_and_ends(kafka: str, topic: str):
    fill(kafka, topic, range(20))
    given = source(kafka, topic, starting_offsets={0: 5, 1: 8}, stopping_offsets={0: 5, 1: 3}, bounded=False)
    with SourceDriver(given, splits(given)) as task:
        assert [type(polled) for polled in task.polled()] == [SplitFinished, SplitFinished, Exhausted]


def test_a_stop_that_does_not_exist_yet_is_waited_for(kafka: str, topic: str):
    fill(kafka, topic, range(10))
    given = source(kafka, topic, stopping_offsets={0: 8, 1: 2}, bounded=False)
    with SourceDriver(given, splits(given)) as task:
        before = task.rows_until(lambda rows: len(rows) >= 7)
        assert sorted(row["i"] for row in before) == [0, 1, 2, 3, 4, 6, 8]
        fill(kafka, topic, range(10, 40))
        assert [row["i"] for row in task.all_rows()] == [10, 12, 14]


@pytest.fixture
def transactions(kafka: str, topic: str) -> None:
    """Partition 0: records 0 1 2, marker 3, aborted 4 5 6, marker 7, records 8 9 10, marker 11."""
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=topic)
    try:
        producer.init_transactions()
        for first in (0, 4, 8):
            producer.begin_transaction()
            for offset in range(first, first + 3):
                producer.send(topic, value(offset), partition=0)
            producer.flush(timeout=WAIT_S)
            if first == 4:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()
    eventually(lambda: end_offsets(kafka, topic)[0] == 12, "the last marker is written", WAIT_S)


@pytest.mark.parametrize(
    ("start", "stop", "read"),
    [
        pytest.param(0, 3, [0, 1, 2], id="at a marker"),
        pytest.param(0, 4, [0, 1, 2], id="behind a marker"),
        pytest.param(0, 6, [0, 1, 2], id="between aborted records"),
        pytest.param(5, 8, [], id="from aborted records to behind their marker"),
        pytest.param(3, 9, [8], id="past all of them"),
        pytest.param(0, 12, [0, 1, 2, 8, 9, 10], id="behind the last marker, where nothing follows"),
        pytest.param(11, 12, [], id="the last marker alone"),
    ],
)
@pytest.mark.usefixtures("transactions")
def test_a_stop_at_markers_and_aborted_records(kafka, topic, start, stop, read):
    given = source(kafka, topic, starting_offsets={0: start, 1: 0}, stopping_offsets={0: stop, 1: 0})
    assert numbers(given) == read


@pytest.fixture
def compacted(kafka: str) -> str:
    """A topic with the records 11, 13 and 14; those before them were compacted away."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:  # by default a cleaner rests for 15 s
        soon = {"log.cleaner.backoff.ms": "200"}
        broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
        admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, broker, soon)])
    finally:
        admin.close()
    name = f"compacted-{datetime.now(UTC):%H%M%S%f}"
    at_once = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    create_topic(kafka, name, config={"cleanup.policy": "compact", **at_once})
    for key, begin, end in ((b"a", 0, 10), (b"b", 10, 12), (b"a", 12, 14), (b"c", 14, 15)):
        produce_values(kafka, name, map(value, range(begin, end)), keys=[key] * (end - begin))
    eventually(lambda: numbers(source(kafka, name)) == [11, 13, 14], "it is compacted", WAIT_S, 0.2)
    return name


def test_a_stop_in_a_gap_that_compaction_has_left(kafka: str, compacted: str):
    for stop, read in ((5, []), (11, []), (12, [11]), (13, [11]), (14, [11, 13]), (15, [11, 13, 14])):
        assert numbers(source(kafka, compacted, stopping_offsets={0: stop})) == read, stop
    in_the_gap = KafkaPosition(topic=compacted, partition=0, offset=3, stop=10).split()
    with SourceDriver(source(kafka, compacted), [in_the_gap]) as task:
        assert task.all_rows() == []


# --- jobs ---------------------------------------------------------------------------------------------


def read_by_group(folder: Path, kafka: str, topic: str) -> None:
    """What came since the last run, into a table."""
    given = source(
        kafka,
        topic,
        starting_offsets="committed-or-earliest",
        properties={"group.id": f"nightly-{topic}"},
    )
    config = {"execution.checkpointing.dir": (folder / "checkpoints").as_uri(), **CONFIG}
    env = us.Environment({**config, "parallelism.default": "2"}, target="local")
    pipeline(env, given, folder / "rows")
    assert env.execute("nightly").state == "FINISHED"


def test_a_bounded_job_after_the_other_by_the_offsets_of_a_group(kafka: str, topic: str, tmp_path: Path):
    """The last positions are committed to the group before the job has ended: none is read twice."""
    for begin, end in ((0, 100), (100, 150)):
        fill(kafka, topic, range(begin, end))
        read_by_group(tmp_path, kafka, topic)
        assert committed(kafka, f"nightly-{topic}", topic) == [end // 2, end // 2]
        rows = DeltaTable(str(tmp_path / "rows")).to_pyarrow_table().column("i").to_pylist()
        assert sorted(rows) == list(range(end))


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    with commands_in(tmp_path) as command:
        yield Lives(tmp_path, command, f"{kafka_positions_pipeline.__name__}:build", CONFIG)


@pytest.mark.parametrize(
    "point", [pytest.param("manifest.before_create", marks=OF_MATRIX), "manifest.created"]
)
def test_a_job_that_is_killed_stops_where_it_would_have(
    kafka: str, topic: str, crashes: Crashes, lives: Lives, point: str
) -> None:
    """Start and stop are state: what the group commits and what the topic gets meanwhile changes neither."""
    group = f"of-{topic}"
    facts = {BOOTSTRAP: kafka, TOPIC: topic, GROUP: group}
    fill(kafka, topic, range(400))
    commit(kafka, group, topic, {0: 10, 1: 20})
    life = lives.start(**facts, **crashes.environment(point))
    lives.assert_killed(life)
    crashes.assert_happened()
    fill(kafka, topic, range(400, 500))
    if lives.newest is not None:
        commit(kafka, group, topic, {0: 210, 1: 210})
    life = lives.start(**facts, parallelism=2)
    assert life.wait() == 0, life.err
    rows = DeltaTable(str(lives.folder / "rows")).to_pyarrow_table().column("i").to_pylist()
    end = 400 if point == "manifest.created" else 500
    expected = {*range(20, end, 2), *range(41, end, 2)}
    assert sorted(rows) == sorted(expected)
