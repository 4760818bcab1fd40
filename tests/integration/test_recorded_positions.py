"""A table that a job writes from a real topic, and a second job that reads the table and then the topic from
the positions in the table's commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

import unistream as us
from tests.integration import recorded_rows, slow_batches
from tests.integration.crash_runs import RECOVERING, WAIT_S, Crashes, in_the_gate, submit
from tests.integration.recorded_rows import (
    assert_commits_exact,
    both,
    expected,
    ids,
    live,
    read,
    recorded,
    send,
    write,
)
from tests.support.servers.kafka_tools import add_partitions, delete_records, produce_values, recreate_topic
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.connector.catalogue import create_discovery
from unistream.model.job_info import JobInfo

pytestmark = pytest.mark.kafka

CONFIG = {**RECOVERING, "execution.checkpointing.interval": "200 ms"}
MODULES = (recorded_rows, slow_batches)


class _Jobs:
    """A topic, and the two jobs."""

    def __init__(self, folder: Path, cluster: EmbeddedCluster, kafka: str, topic: str) -> None:
        self.lake = folder / "lake"
        self._cluster, self._kafka, self._topic = cluster, kafka, topic

    def send(self, first: int, end: int) -> None:
        send(self._kafka, self._topic, range(first, end))

    def write(
        self, *, parallelism: int = 2, savepoint: str | None = None, slow_s: float = 0.0, **config: str
    ) -> EmbeddedJobClient:
        env = us.Environment({"parallelism.default": str(parallelism)})
        write(env, self.lake, live(self._kafka, self._topic), slow_s=slow_s)
        return submit(self._cluster, env, {**CONFIG, **config}, savepoint, by_value=MODULES)

    def read(
        self,
        *,
        parallelism: int = 2,
        savepoint: str | None = None,
        history: str = "rows",
        out: str = "out",
        bounded: bool = False,
        **config: str,
    ) -> EmbeddedJobClient:
        env = us.Environment({"parallelism.default": str(parallelism), **config})
        topic = live(self._kafka, self._topic, bounded=bounded)
        read(env, self.lake, both(self.lake / history, topic), out)
        return submit(self._cluster, env, {**CONFIG, **config}, savepoint, by_value=MODULES)

    @property
    def table(self) -> Path:
        return self.lake / "rows"

    def find(self) -> None:
        """What the master does when the second job starts for the first time."""
        create_discovery(both(self.table, live(self._kafka, self._topic)).info()).discover()

    def write_until_stopped(self, end: int) -> None:
        """The first job, over events up to `end`."""
        self.send(0, end)
        job = self.write()
        self.await_rows(job, "rows", len(expected(range(end))))
        job.stop()

    def knows_newest_commit(self, info: JobInfo) -> bool:
        """A commit can be read in the table before the job has heard that it was made."""
        sink = info.sinks.get("lake")
        return sink is not None and sink.table_version == DeltaTable(str(self.table)).version()

    def await_rows(self, job: EmbeddedJobClient, table: str, rows: int) -> None:
        job.wait_for(lambda _: len(ids(self.lake / table)) >= rows, WAIT_S)


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[[], EmbeddedCluster]:
    values = Configuration({"heartbeat.interval": "200 ms"})
    return lambda: EmbeddedCluster("local", values, workdir=tmp_path / "cluster", rest=False)


@pytest.mark.parametrize("drain", [False, True], ids=["stopped", "drained"])
def test_the_second_job_gets_each_event_once_from_the_table_and_then_from_the_topic(
    tmp_path: Path, cluster: Callable[[], EmbeddedCluster], kafka: str, topic: str, drain: bool
) -> None:
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        jobs.send(0, 1_000)
        job = jobs.write()
        jobs.await_rows(job, "rows", len(expected(range(1_000))))
        shown = job.wait_for(lambda info: info.records_behind == 0 and jobs.knows_newest_commit(info), WAIT_S)
        assert [one.offsets for one in shown.sinks["lake"].positions] == [{"0": 500, "1": 500}]
        job.stop(drain=drain)
        jobs.send(1_000, 1_500)
        job = jobs.read(parallelism=3)
        jobs.await_rows(job, "out", len(expected(range(1_500))))
        savepoint = job.stop()
        jobs.send(1_500, 2_000)
        job = jobs.read(parallelism=1, savepoint=savepoint)
        jobs.await_rows(job, "out", len(expected(range(2_000))))
        job.stop()
    written = ids(jobs.lake / "rows")
    assert written == expected(range(1_000))
    assert assert_commits_exact(jobs.table) == DeltaTable(str(jobs.table)).version(), "each commit of rows"
    assert ids(jobs.lake / "out") == expected(range(2_000))


@pytest.mark.parametrize(
    "points",
    in_the_gate(
        [
            pytest.param(("committer.before_commit:2",), id="before the commit"),
            pytest.param(("delta.before_append:2",), id="before it is written"),
            pytest.param(("delta.appended:2",), id="after it was written"),
            pytest.param(
                ("committer.before_commit:2", "restore.before_commit", "restore.committed"),
                id="again while it is repeated",
            ),
        ],
        2,
    ),
)
def test_a_worker_that_dies_around_a_commit_leaves_positions_that_are_right(
    tmp_path: Path,
    cluster: Callable[[], EmbeddedCluster],
    crashes: Crashes,
    kafka: str,
    topic: str,
    *,
    points: tuple[str, ...],
) -> None:
    """The second job starts while the first one goes on."""
    crashes.arm(*points)
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        first = jobs.write()
        for sent in range(0, 1_000, 250):
            jobs.send(sent, sent + 250)
            jobs.await_rows(first, "rows", len(expected(range(sent + 250))))
        crashes.assert_happened()
        crashes.disarm()
        second = jobs.read(parallelism=3)
        jobs.send(1_000, 1_500)
        jobs.await_rows(first, "rows", len(expected(range(1_500))))
        jobs.await_rows(second, "out", len(expected(range(1_500))))
        second.stop()
        first.stop()
    assert assert_commits_exact(jobs.table) == DeltaTable(str(jobs.table)).version(), "each commit of rows"
    assert ids(jobs.table) == ids(jobs.lake / "out") == expected(range(1_500))


@pytest.mark.parametrize("twice", [False, True], ids=["", "twice"])
def test_a_table_of_a_job_that_was_cancelled_ends_at_its_last_commit(
    tmp_path: Path, cluster: Callable[[], EmbeddedCluster], kafka: str, topic: str, twice: bool
) -> None:
    """It dies with rows that are in no commit. `twice`: the second job's table is the history of a third."""
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        jobs.send(0, 2_000)
        job = jobs.write(slow_s=0.05)
        jobs.await_rows(job, "rows", 1)
        job.cancel()
        jobs.send(2_000, 2_500)
        job = jobs.read(parallelism=1)
        jobs.await_rows(job, "out", len(expected(range(2_500))))
        job.stop()
        if twice:
            jobs.send(2_500, 2_600)
            job = jobs.read(parallelism=2, history="out", out="again")
            jobs.await_rows(job, "again", len(expected(range(2_600))))
            job.stop()
            assert ids(jobs.lake / "again") == expected(range(2_600))
    assert assert_commits_exact(jobs.table) > 0
    assert ids(jobs.lake / "out") == expected(range(2_500))


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_a_topic_up_to_its_end_behind_the_table(
    tmp_path: Path, cluster: Callable[[], EmbeddedCluster], kafka: str, topic: str, mode: str
) -> None:
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        jobs.send(0, 300)
        job = jobs.write()
        jobs.await_rows(job, "rows", len(expected(range(300))))
        job.stop()
        jobs.send(300, 400)
        result = jobs.read(bounded=True, **{"execution.runtime-mode": mode}).result(WAIT_S)
    assert result.state == "FINISHED"
    assert ids(jobs.lake / "out") == expected(range(400))


def test_commits_of_checkpoints_with_rows_in_flight_have_no_positions(
    tmp_path: Path, cluster: Callable[[], EmbeddedCluster], kafka: str, topic: str
) -> None:
    unaligned = {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
    }
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        jobs.send(0, 3_000)
        job = jobs.write(slow_s=0.05, **unaligned)
        for sent in range(3_000, 6_000, 500):
            jobs.send(sent, sent + 500)
        jobs.await_rows(job, "rows", len(expected(range(6_000))))
        jobs.send(6_000, 6_100)
        job.stop()
        job = jobs.read()
        jobs.await_rows(job, "out", len(expected(range(6_100))))
        job.stop()
    assert assert_commits_exact(jobs.table) > 0
    assert recorded(jobs.table, DeltaTable(str(jobs.table)).version()), "a savepoint is aligned"
    assert ids(jobs.lake / "out") == expected(range(6_100))


def test_a_partition_that_the_first_job_has_not_seen_is_read_from_its_beginning(
    tmp_path: Path, cluster: Callable[[], EmbeddedCluster], kafka: str, topic: str
) -> None:
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        jobs.write_until_stopped(100)
        add_partitions(kafka, topic, 3)
        produce_values(
            kafka, topic, [b'{"id": 1000, "key": 1}', b'{"id": 1001, "key": 2}'], partitions=[2, 2]
        )
        job = jobs.read()
        jobs.await_rows(job, "out", len(expected(range(100))) + 2)
        job.stop()
    assert ids(jobs.lake / "out") == [*expected(range(100)), 1000, 1001]


def test_a_topic_that_does_not_go_on_where_the_table_ends_is_refused(
    tmp_path: Path, cluster: Callable[[], EmbeddedCluster], kafka: str, topic: str
) -> None:
    with cluster() as running:
        jobs = _Jobs(tmp_path, running, kafka, topic)
        jobs.write_until_stopped(100)
    jobs.find()
    jobs.send(100, 200)
    delete_records(kafka, topic, {0: 60})
    with pytest.raises(
        ConfigError, match="partition 0, but the records from there on were deleted by its ret"
    ):
        jobs.find()
    recreate_topic(kafka, topic, 2)
    with pytest.raises(ConfigError, match="are those of another topic"):
        jobs.find()
