"""Files and then a real Kafka topic as one source, on workers that are killed around the switch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import unistream as us
from tests.integration import hybrid_rows, slow_batches
from tests.integration.crash_runs import RECOVERING, WAIT_S, Crashes, in_the_gate, submit
from tests.integration.hybrid_rows import BOTH, FENCE, DyingSource, assert_exact, hybrid, pipeline, send
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo

pytestmark = pytest.mark.kafka

ROWS = 4_000
CONFIG = {**RECOVERING, "execution.checkpointing.interval": "200 ms"}
INTERVAL_DURING_BACKLOG = "execution.checkpointing.interval-during-backlog"
POINTS = [
    "hybrid.history_rows:10",
    "hybrid.before_request",
    "hybrid.requested",
    "hybrid.before_begin",
    "hybrid.begun",
    "hybrid.live_rows",
]


class _Place:
    """A folder with the history, and a topic with the rest."""

    def __init__(self, folder: Path, kafka: str, topic: str) -> None:
        self.lake = folder / "lake"
        self.history = folder / "history"
        self.kafka, self.topic = kafka, topic
        hybrid_rows.write_history(self.history)

    def send(self, first: int, end: int) -> None:
        send(self.kafka, self.topic, range(first, end))

    def submit(
        self,
        cluster: EmbeddedCluster,
        config: dict[str, str],
        *,
        bounded: bool,
        derived: bool = False,
        parallelism: int = 2,
        savepoint: str | None = None,
        slow_s: float = 0.0,
    ) -> EmbeddedJobClient:
        env = us.Environment({"parallelism.default": str(parallelism)})

        def source() -> DyingSource:
            return DyingSource(hybrid(self.history, self.kafka, self.topic, bounded=bounded, derived=derived))

        pipeline(env, self.lake, source, slow_s=slow_s)
        modules = (hybrid_rows, slow_batches)
        return submit(cluster, env, config, savepoint, by_value=modules)


@pytest.fixture
def place(tmp_path: Path, kafka: str, topic: str) -> _Place:
    return _Place(tmp_path, kafka, topic)


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[[], EmbeddedCluster]:
    values = Configuration({"heartbeat.interval": "200 ms"})
    return lambda: EmbeddedCluster("local", values, workdir=tmp_path / "cluster", rest=False)


def rows_visible(lake: Path) -> int:
    try:
        return DeltaTable(str(lake / "rows")).to_pyarrow_table().num_rows
    except TableNotFoundError:
        return 0


@pytest.mark.parametrize("derived", [False, True], ids=["fence", "last event time"])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_each_row_comes_once_and_windows_go_on_over_the_switch(
    place: _Place, cluster: Callable[[], EmbeddedCluster], mode: str, derived: bool
) -> None:
    """The rows that are in both come from one of them, whichever side decides."""
    place.send(FENCE - BOTH, ROWS)
    config = {**CONFIG, "execution.runtime-mode": mode}
    with cluster() as running:
        result = place.submit(running, config, bounded=True, derived=derived).result(WAIT_S)
    assert result.state == "FINISHED"
    if mode == "STREAMING" and not derived:
        assert_exact(place.lake, ROWS)
    else:
        written = DeltaTable(str(place.lake / "rows")).to_pyarrow_table()
        assert sorted(written["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize("slow_s", [0.0, 0.02], ids=["", "slow"])
def test_barriers_that_overtake_rows_do_not_let_live_rows_overtake_the_history(
    place: _Place, cluster: Callable[[], EmbeddedCluster], slow_s: float
) -> None:
    place.send(FENCE - BOTH, ROWS)
    config = {**STREAMING, **CONFIG, "execution.checkpointing.unaligned.enabled": "true"}
    with cluster() as running:
        result = place.submit(running, config, bounded=True, slow_s=slow_s).result(WAIT_S)
    assert result.state == "FINISHED"
    assert_exact(place.lake, ROWS)


@pytest.mark.parametrize(
    "points", in_the_gate([*([point] for point in POINTS), POINTS], 0, -1), ids=lambda p: p[-1]
)
def test_a_worker_that_dies_around_the_switch_loses_and_doubles_nothing(
    place: _Place, cluster: Callable[[], EmbeddedCluster], crashes: Crashes, points: list[str]
) -> None:
    place.send(FENCE - BOTH, ROWS)
    crashes.arm(*points)
    with cluster() as running:
        result = place.submit(running, {**STREAMING, **CONFIG}, bounded=True).result(WAIT_S)
    assert result.state == "FINISHED"
    crashes.assert_happened()
    assert result.restarts >= 1
    assert_exact(place.lake, ROWS)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_job_that_is_stopped_in_its_history_goes_on_with_another_parallelism(
    place: _Place, cluster: Callable[[], EmbeddedCluster], before: int, after: int
) -> None:
    """Live rows arrive while it reads the history, and while it is stopped."""

    def reads(info: JobInfo) -> bool:
        return info.checkpoints_completed >= 3

    place.send(FENCE - BOTH, FENCE)
    with cluster() as running:
        job = place.submit(running, CONFIG, bounded=False, parallelism=before, slow_s=0.25)
        job.wait_for(reads, WAIT_S)
        place.send(FENCE, FENCE + 500)
        savepoint = job.stop()
        read = rows_visible(place.lake)
        assert 0 < read < FENCE, "it was stopped in the history"
        place.send(FENCE + 500, ROWS)
        job = place.submit(running, CONFIG, bounded=False, parallelism=after, savepoint=savepoint)
        job.wait_for(lambda _: rows_visible(place.lake) >= ROWS, WAIT_S)
        savepoint = job.stop()
        job = place.submit(running, CONFIG, bounded=False, parallelism=before, savepoint=savepoint)
        place.send(ROWS, ROWS + 500)
        job.wait_for(lambda _: rows_visible(place.lake) >= ROWS + 500, WAIT_S)
        job.stop(drain=True)
    assert_exact(place.lake, ROWS + 500)


def test_without_checkpoints_during_the_backlog_they_begin_with_the_live_source(
    place: _Place, cluster: Callable[[], EmbeddedCluster]
) -> None:
    place.send(FENCE - BOTH, ROWS)
    config = {**CONFIG, INTERVAL_DURING_BACKLOG: "0 ms"}
    with cluster() as running:
        job = place.submit(running, config, bounded=False, slow_s=0.05)
        info = job.wait_for(lambda info: info.checkpoints_completed >= 1, WAIT_S)
        assert info.checkpoints_failed == 0
        assert rows_visible(place.lake) in (0, FENCE), "the first one is behind the history"
        job.wait_for(lambda _: rows_visible(place.lake) >= ROWS, WAIT_S)
        job.stop(drain=True)
    assert_exact(place.lake, ROWS)
