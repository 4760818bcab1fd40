"""A Kafka source of several topics: a list, or a pattern that new topics come to match while a job runs."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.crash_runs import OF_MATRIX, Crashes
from tests.integration.kafka_rows import fill, offsets, source, value
from tests.integration.test_kafka_growth import expect_numbers, find, start
from tests.support.harness.source_driver import SourceDriver
from tests.support.servers.kafka_tools import delete_topic, produce_values, recreate_topic
from unistream.base.errors import ConfigError
from unistream.dagster.run.metadata import positions_metadata
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import Rows
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = pytest.mark.kafka


@pytest.fixture
def names(kafka: str) -> tuple[str, str]:
    """Two topics, of two partitions and of one."""
    begin = f"many-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, f"{begin}.a", partitions=2)
    create_topic(kafka, f"{begin}.b", partitions=1)
    return f"{begin}.a", f"{begin}.b"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return tmp_path


def of_pattern(kafka: str, names: tuple[str, str], **changed: object) -> us.KafkaSource:
    """All topics that begin as these."""
    pattern = names[0].replace(".a", r"\..*")
    return source(kafka, None, **{"topic_pattern": pattern, "bounded": False, **changed})


def put(kafka: str, topic: str, numbers: range) -> None:
    """Into partition 0."""
    produce_values(kafka, topic, map(value, numbers), partitions=[0] * len(numbers))


def after(found: FoundSplits) -> KnownSplits:
    return KnownSplits(
        ids=frozenset(split.id for split in found.splits), origin=found.origin, origins=found.origins
    )


# --- what a discovery finds ---------------------------------------------------------------------------


def test_splits_of_a_list_and_of_a_pattern(kafka: str, names: tuple[str, str]):
    a, b = names
    fill(kafka, a, range(10))
    put(kafka, b, range(4))
    ends = {f"{a}-0": (5, None), f"{a}-1": (5, None), f"{b}-0": (4, None)}
    for given in (
        source(kafka, list(names), bounded=False, starting_offsets="latest"),
        of_pattern(kafka, names, starting_offsets="latest"),
    ):
        found = find(given, None)
        assert offsets(found.splits) == ends
        assert set(found.origins) == {a, b}
        assert all(map(uuid.UUID, found.origins.values()))
        assert find(given, after(found)) == FoundSplits(splits=(), origins=found.origins)
    by_topic = {(a, 0): 1, (a, 1): 2, (b, 0): 3}
    found = find(source(kafka, list(names), starting_offsets=by_topic), None)
    assert offsets(found.splits) == {f"{a}-0": (1, 5), f"{a}-1": (2, 5), f"{b}-0": (3, 4)}
    with pytest.raises(ConfigError, match=f"names {a}-0, but the topics have {a}-0, {a}-1, {b}-0; give"):
        find(source(kafka, list(names), starting_offsets={(a, 0): 1}), None)
    with pytest.raises(ConfigError, match=f"topic '{a}x' does not exist"):
        find(source(kafka, [a, f"{a}x"]), None)
    with pytest.raises(ConfigError, match=f"no topic at {kafka} matches topic_pattern 'nothing-.*'"):
        find(source(kafka, None, topic_pattern="nothing-.*"), None)


def test_a_topic_that_comes_to_match_begins_at_its_earliest_record(kafka: str, names: tuple[str, str]):
    given = of_pattern(kafka, names, starting_offsets="latest")
    first = find(given, None)
    c = names[0].replace(".a", ".c")
    create_topic(kafka, c)
    put(kafka, c, range(7))
    second = find(given, after(first))
    assert offsets(second.splits) == {f"{c}-0": (0, None)}
    assert second.origins.keys() == {*names, c}
    assert {**second.origins, **first.origins} == second.origins


def test_another_topic_of_the_name_and_one_that_is_gone_are_refused(kafka: str, names: tuple[str, str]):
    a, b = names
    before = after(find(of_pattern(kafka, names), None))
    recreate_topic(kafka, b, 2)
    for given in (of_pattern(kafka, names), source(kafka, list(names), bounded=False)):
        with pytest.raises(ConfigError, match=rf"topic '{b}' at {kafka} was deleted and created again"):
            find(given, before)
    delete_topic(kafka, b)
    with pytest.raises(ConfigError, match=rf"topic '{b}' at {kafka} has been deleted since the job"):
        find(of_pattern(kafka, names), before)
    with pytest.raises(ConfigError, match=f"those of topic '{b}', which it does not read any more"):
        find(source(kafka, a, bounded=False), before)


# --- readers ------------------------------------------------------------------------------------------


def test_rows_of_all_topics_and_a_reader_that_goes_on(kafka: str, names: tuple[str, str]):
    a, b = names
    fill(kafka, a, range(100))
    put(kafka, b, range(100, 150))
    given = of_pattern(kafka, names, bounded=True)
    with SourceDriver(given, find(given, None).splits) as task:
        polled = next(one for one in task.polled() if isinstance(one, Rows))
        before = polled.records.column("i").to_pylist()
        restored = task.reader.snapshot()
        assert {split.recorded for split in restored} <= {
            (f"{topic}-{p}", offset) for topic in names for p in (0, 1) for offset in range(51)
        }
    with SourceDriver(given, restored) as task:
        rows = before + [row["i"] for row in task.all_rows()]
        assert task.counters["pendingRecords"] == 0
    assert sorted(rows) == list(range(150))


def test_one_of_the_topics_is_created_again_while_they_are_read(kafka: str, names: tuple[str, str]):
    a, b = names
    fill(kafka, a, range(40))
    put(kafka, b, range(100, 110))
    given = source(kafka, list(names), bounded=False)
    with SourceDriver(given, find(given, None).splits) as task:
        rows = task.rows_until(lambda rows: len(rows) >= 50)
        assert sorted(row["i"] for row in rows) == [*range(40), *range(100, 110)]
        recreate_topic(kafka, b)
        put(kafka, b, range(1000, 1400))
        with pytest.raises(ConfigError, match=rf"topic '{b}' at {kafka} was deleted and created again"):
            task.all_rows()


# --- jobs ---------------------------------------------------------------------------------------------


def test_a_topic_that_is_created_while_the_job_runs_is_read_and_named(kafka, names, home):
    given = of_pattern(kafka, names, starting_offsets="latest", partition_discovery_interval_ms=200)
    c = names[0].replace(".a", ".c")
    with start(home, given) as job:
        job.wait_for(lambda info: info.checkpoints_completed > 0, WAIT_S)
        fill(kafka, names[0], range(100))
        create_topic(kafka, c)
        put(kafka, c, range(100, 150))
        expect_numbers(home, list(range(150)))
        read = {names[0]: {"0": 50, "1": 50}, names[1]: {"0": 0}, c: {"0": 50}}
        job.wait_for(lambda info: shown(info) == read, WAIT_S)
        savepoint = job.stop()
        job.wait(WAIT_S)
        info = job.status()
        assert info.restarts == 0, info.exceptions
    put(kafka, c, range(150, 200))
    with start(home, given, savepoint=savepoint) as job:
        expect_numbers(home, list(range(200)))
        job.cancel()
    [newest, *_] = DeltaTable(str(home / "rows")).history(1)
    recorded = newest["unistream.source-positions"]
    assert all(f'"name":"{name}"' in recorded for name in (*names, c))


def shown(info: us.JobInfo) -> dict[str, dict[str, int]] | None:
    """What Dagster shows of the positions of the sink's commits."""
    [sink] = info.sinks.values() if info.sinks else [None]
    positions: tuple[SourcePositions, ...] = sink.positions if sink is not None else ()
    metadata = positions_metadata(positions)
    return metadata["unistream/offsets"].value if metadata else None


def test_a_job_of_one_topic_goes_on_with_several(kafka, names, home):
    a, b = names
    fill(kafka, a, range(100))
    put(kafka, b, range(200, 250))
    with start(home, source(kafka, a, bounded=False)) as job:
        expect_numbers(home, list(range(100)))
        savepoint = job.stop()
        job.wait(WAIT_S)
    fill(kafka, a, range(100, 120))
    several = source(kafka, [a, b], bounded=False)
    with start(home, several, savepoint=savepoint) as job:
        expect_numbers(home, [*range(120), *range(200, 250)])
        job.wait_for(lambda info: shown(info) == {a: {"0": 60, "1": 60}, b: {"0": 50}}, WAIT_S)
        savepoint = job.stop()
        job.wait(WAIT_S)
    with start(home, source(kafka, a, bounded=False), savepoint=savepoint) as job:
        result = job.wait(WAIT_S)
    assert result.state == "FAILED"
    assert result.failure is not None
    assert f"those of topic '{b}', which it does not read any more" in result.failure.message


@OF_MATRIX
def test_a_worker_that_is_killed_between_the_discovery_of_a_topic_and_the_next_checkpoint(
    kafka: str, names: tuple[str, str], home: Path, crashes: Crashes
) -> None:
    crashes.arm("snapshot.sync_done", later=True)
    given = of_pattern(kafka, names, partition_discovery_interval_ms=100)
    fill(kafka, names[0], range(100))
    c = names[0].replace(".a", ".c")
    with start(home, given) as job:
        expect_numbers(home, list(range(100)))
        create_topic(kafka, c, partitions=2)
        fill(kafka, c, range(100, 500))
        crashes.go()
        job.wait_for(lambda info: info.restarts >= 1, WAIT_S)
        fill(kafka, c, range(500, 900))
        expect_numbers(home, list(range(900)))
        job.cancel()
    crashes.assert_happened()
