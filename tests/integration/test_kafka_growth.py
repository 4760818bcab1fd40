"""Topics that get partitions, are deleted, or are created again, while a job runs or is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration import kafka_growth_pipeline
from tests.integration.crash_runs import Crashes, Lives, await_info, commands_in, in_the_gate
from tests.integration.kafka_growth_pipeline import BOOTSTRAP, INTERVAL, TOPIC, pipeline
from tests.integration.kafka_rows import fill, offsets, source, splits, value
from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import add_partitions, delete_topic, produce_values, recreate_topic
from unistream.base.errors import ConfigError
from unistream.client.remote.rest_client import Poll
from unistream.connector.kafka import create_discovery
from unistream.connector.kafka.broker.client import KafkaPosition
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import Rows
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = pytest.mark.kafka

CONFIG = {
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "parallelism.default": "2",
}


def find(given: us.KafkaSource, known: KnownSplits | None) -> FoundSplits:
    discovery = create_discovery(given.info())
    try:
        return discovery.find(known)
    finally:
        discovery.close()


def known(found: FoundSplits) -> KnownSplits:
    return KnownSplits(ids=frozenset(split.id for split in found.splits), origin=found.origin)


def put(kafka: str, topic: str, numbers: range, partitions: list[int]) -> None:
    """Rows `numbers`, in turns into these partitions."""
    produce_values(
        kafka, topic, map(value, numbers), partitions=[partitions[i % len(partitions)] for i in numbers]
    )


def start_of(found: FoundSplits) -> dict[str, tuple[int, int | None]]:
    return offsets(found.splits)


# --- what a discovery finds ---------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["latest", "earliest", {0: 5, 1: 2}, 10**15])
def test_a_partition_that_was_not_there_at_the_start_begins_at_its_earliest_record(kafka, topic, start):
    fill(kafka, topic, range(20))
    given = source(kafka, topic, bounded=False, starting_offsets=start)
    first = find(given, None)
    assert set(start_of(first)) == {f"{topic}-0", f"{topic}-1"}
    add_partitions(kafka, topic, 4)
    put(kafka, topic, range(100, 120), [2, 3])
    assert start_of(find(given, known(first))) == {f"{topic}-2": (0, None), f"{topic}-3": (0, None)}


def test_a_discovery_refuses_another_topic_of_the_same_name_and_one_that_is_gone(kafka, topic):
    given = source(kafka, topic, bounded=False)
    before = find(given, None)
    recreate_topic(kafka, topic, partitions=3)
    with pytest.raises(ConfigError, match=rf"topic '{topic}' at {kafka} was deleted and created again.*uid"):
        find(given, known(before))
    unknown = KnownSplits(ids=known(before).ids, origin="")
    assert start_of(find(given, unknown)) == {f"{topic}-2": (0, None)}, "an old savepoint has no id"
    delete_topic(kafka, topic)
    with pytest.raises(ConfigError, match=rf"topic '{topic}' at {kafka} has been deleted since the job"):
        find(given, known(before))


# --- readers ------------------------------------------------------------------------------------------


def read_some(given: us.KafkaSource, found: list[Split], rows: int) -> list[Split]:
    """The positions after so many rows."""
    with SourceDriver(given, found) as task:
        task.rows_until(lambda read: len(read) >= rows)
        return list(task.reader.snapshot())


@pytest.mark.parametrize("partitions", [2, 1], ids=["as many partitions", "fewer"])
@pytest.mark.parametrize("has_id", [True, False], ids=["by its id", "an old position"])
def test_positions_in_a_topic_are_not_read_in_another_of_its_name(kafka, topic, partitions, has_id):
    fill(kafka, topic, range(40))
    given = source(kafka, topic, bounded=False)
    positions = [KafkaPosition.of(split) for split in read_some(given, splits(given), 40)]
    assert all(position.topic_id for position in positions)
    recreate_topic(kafka, topic, partitions)
    put(kafka, topic, range(1000, 1100), list(range(partitions)))
    if not has_id:
        positions = [KafkaPosition(topic=p.topic, partition=p.partition, offset=p.offset) for p in positions]
    restored = [position.split() for position in positions]
    if not has_id and partitions == 2:
        with SourceDriver(given, restored) as task:  # nothing can tell that it is another one
            task.rows_until(lambda rows: len(rows) >= 60)
            ids = {KafkaPosition.of(split).topic_id for split in task.reader.snapshot()}
            assert len(ids) == 1
            assert "" not in ids, "from now on it is known"
        return
    said = "was deleted and created again" if has_id else r"no longer has partition 1"
    with SourceDriver(given, restored) as task, pytest.raises(ConfigError, match=said):
        task.all_rows()


def test_a_topic_that_is_created_again_while_it_is_read_is_never_mixed_with_the_first(kafka, topic):
    fill(kafka, topic, range(40))
    given = source(kafka, topic, bounded=False)
    rows: list[int] = []
    with SourceDriver(given, splits(given)) as task:
        rows += [row["i"] for row in task.rows_until(lambda rows: len(rows) >= 40)]
        recreate_topic(kafka, topic, 2)
        fill(kafka, topic, range(1000, 1400))  # the old positions exist in it

        def read_on() -> None:
            for polled in task.polled():
                assert isinstance(polled, Rows)
                rows.extend(polled.records.column("i").to_pylist())

        with pytest.raises(ConfigError, match=rf"topic '{topic}' at {kafka} was deleted and created again"):
            read_on()
    assert sorted(rows) == list(range(40))


def test_a_topic_that_is_deleted_while_it_is_read_is_named_soon(kafka, topic):
    fill(kafka, topic, range(10))
    given = source(kafka, topic, bounded=False)
    with SourceDriver(given, splits(given)) as task:
        task.rows_until(lambda rows: len(rows) >= 10)
        delete_topic(kafka, topic)
        with pytest.raises(ConfigError, match=rf"topic '{topic}' at {kafka} has been deleted since the job"):
            task.all_rows()


# --- jobs ---------------------------------------------------------------------------------------------


def environment(folder: Path, **config: str) -> us.Environment:
    return us.Environment(
        {
            **CONFIG,
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "execution.checkpointing.savepoint-dir": (folder / "savepoints").as_uri(),
            **config,
        },
        target="local",
    )


def start(
    folder: Path, given: us.KafkaSource, *, savepoint: str | None = None, uid: str = "topic", **options: bool
) -> us.JobClient:
    env = environment(folder)
    pipeline(env, given, folder / "rows", uid)
    return env.execute_async("growth", savepoint=savepoint, **options)


def numbers(folder: Path) -> list[int]:
    if not (folder / "rows" / "_delta_log").exists():
        return []
    return sorted(DeltaTable(str(folder / "rows")).to_pyarrow_table()["i"].to_pylist())


def expect_numbers(folder: Path, expected: list[int]) -> None:
    poll = Poll(WAIT_S)
    while len(numbers(folder)) < len(expected):
        assert poll.next(), f"{len(numbers(folder))} of {len(expected)} rows came"
    assert numbers(folder) == expected


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize("start_at", in_the_gate(["latest", {0: 0, 1: 0}], 0), ids=str)
def test_partitions_that_came_while_the_job_was_stopped_are_read_whole(kafka, topic, home, start_at):
    given = source(kafka, topic, bounded=False, starting_offsets=start_at)
    with start(home, given) as job:
        job.wait_for(lambda info: info.checkpoints_completed > 0, WAIT_S)
        fill(kafka, topic, range(100))
        expect_numbers(home, list(range(100)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    add_partitions(kafka, topic, 4)
    put(kafka, topic, range(100, 300), [0, 1, 2, 3])
    with start(home, given, savepoint=savepoint) as job:
        expect_numbers(home, list(range(300)))
        put(kafka, topic, range(300, 400), [0, 1, 2, 3])
        expect_numbers(home, list(range(400)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    put(kafka, topic, range(400, 500), [2, 3])
    with start(home, given, savepoint=savepoint) as job:  # now they are in the savepoint
        expect_numbers(home, list(range(500)))
        job.cancel()


def test_partitions_that_come_while_the_job_runs_are_read(kafka, home):
    topic = f"growing-{home.name}-{time.time_ns()}"
    create_topic(kafka, topic, partitions=1)  # of two subtasks one has nothing to read
    given = source(
        kafka, topic, bounded=False, starting_offsets="latest", partition_discovery_interval_ms=200
    )
    with start(home, given) as job:
        job.wait_for(lambda info: info.checkpoints_completed > 0, WAIT_S)
        put(kafka, topic, range(100), [0])
        add_partitions(kafka, topic, 3)
        put(kafka, topic, range(100, 400), [0, 1, 2])
        expect_numbers(home, list(range(400)))
        done = job.status().checkpoints_completed
        job.wait_for(lambda info: info.checkpoints_completed > done, WAIT_S)
        assert (info := job.status()).restarts == 0, info.exceptions
        savepoint = job.stop()
        job.wait(WAIT_S)
    put(kafka, topic, range(400, 500), [0, 1, 2])
    with start(home, given, savepoint=savepoint) as job:
        expect_numbers(home, list(range(500)))
        job.cancel()


def test_a_topic_that_was_created_again_while_the_job_was_stopped_is_refused_until_the_user_chooses(
    kafka, topic, home
):
    given = source(kafka, topic, bounded=False)
    fill(kafka, topic, range(100))
    with start(home, given) as job:
        expect_numbers(home, list(range(100)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    recreate_topic(kafka, topic, 2)
    fill(kafka, topic, range(1000, 1300))
    with start(home, given, savepoint=savepoint) as job:
        result = job.wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert f"topic {topic!r} at {kafka} was deleted and created again" in result.failure.message
    assert "another uid" in result.failure.message
    assert numbers(home) == list(range(100)), "nothing of the new topic was read"
    with start(home, given, savepoint=savepoint, uid="topic-2", allow_non_restored_state=True) as job:
        expect_numbers(home, [*range(100), *range(1000, 1300)])
        job.cancel()


def test_a_topic_that_is_deleted_while_the_job_runs_ends_it_with_a_sentence(kafka, topic, home):
    given = source(kafka, topic, bounded=False)
    fill(kafka, topic, range(100))
    with start(home, given) as job:
        expect_numbers(home, list(range(100)))
        delete_topic(kafka, topic)
        result = job.wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert f"topic {topic!r} at {kafka} has been deleted since the job began" in result.failure.message
    assert result.restarts == 0, result.exceptions


# --- kills --------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_between_a_discovery_and_the_next_checkpoint(
    kafka: str, topic: str, tmp_path: Path, crashes: Crashes
) -> None:
    """The new splits were given out, and are in no checkpoint."""
    crashes.arm("snapshot.sync_done", later=True)
    given = source(kafka, topic, bounded=False, partition_discovery_interval_ms=100)
    fill(kafka, topic, range(100))
    with start(tmp_path, given) as job:
        expect_numbers(tmp_path, list(range(100)))
        add_partitions(kafka, topic, 4)
        put(kafka, topic, range(100, 500), [0, 1, 2, 3])
        crashes.go()
        job.wait_for(lambda info: info.restarts >= 1, WAIT_S)
        put(kafka, topic, range(500, 900), [0, 1, 2, 3])
        expect_numbers(tmp_path, list(range(900)))
        job.cancel()
    crashes.assert_happened()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    with commands_in(tmp_path) as command:
        yield Lives(tmp_path, command, f"{kafka_growth_pipeline.__name__}:build", CONFIG)


@pytest.mark.parametrize("point", in_the_gate(["manifest.before_create", "manifest.created"], 1))
def test_a_master_that_is_killed_between_a_discovery_and_its_checkpoint(
    kafka: str, topic: str, crashes: Crashes, lives: Lives, point: str
) -> None:
    facts = {BOOTSTRAP: kafka, TOPIC: topic, INTERVAL: "100"}
    fill(kafka, topic, range(100))
    life = lives.start(**facts, **crashes.environment(point, later=True))
    with lives.watch(life) as (client, job):
        await_info(client, job, lambda info: info.checkpoints_completed > 0)
        expect_numbers(lives.folder, list(range(100)))
        add_partitions(kafka, topic, 4)
        put(kafka, topic, range(100, 500), [0, 1, 2, 3])
        crashes.go()
    lives.assert_killed(life)
    crashes.assert_happened()
    put(kafka, topic, range(500, 600), [2, 3])
    life = lives.start(**facts, parallelism=3)
    with lives.watch(life) as (client, job):
        await_info(client, job, lambda info: info.checkpoints_completed > 1)
        expect_numbers(lives.folder, list(range(600)))
        client.client(job).stop(drain=True, target=str(lives.folder / "savepoints"))
    assert life.wait() == 0, life.err
