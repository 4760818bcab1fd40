"""Figures of snapshots: spreads, bounds, and what is kept of those that completed or failed."""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, settings
from tests.unit.core.running import recover, running
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, CheckpointId, JobId, VertexId
from unistream.core import contract
from unistream.core.checkpoint import PendingCheckpoint, Sample
from unistream.core.checkpoint.history import SAMPLES_MAX, CheckpointHistory
from unistream.core.contract import RestorePoint, SnapshotRequest
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo, SnapshotStatus
from unistream.model.messages import CheckpointAcked
from unistream.model.snapshot import TaskSnapshot
from unistream.model.snapshot_kind import SnapshotKind

SOURCE, SINK = VertexId("v-source"), VertexId("v-sink")
NAMES = {SOURCE: "source", SINK: "sink"}
TASKS = tuple(AttemptId(JobId("job"), vertex, index, 0) for vertex in (SOURCE, SINK) for index in (0, 1))
HISTORY_MAX = 10
WALL_MS = 1_000_000  # wall clock when the machine's clock shows 0


class Story:
    """A history, and the snapshots that are under way."""

    def __init__(self, kept_max: int = HISTORY_MAX) -> None:
        self.history = CheckpointHistory(kept_max)
        self.pending: dict[int, PendingCheckpoint] = {}

    def open(self, n: int, at_ms: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
        one = PendingCheckpoint(checkpoint_id=CheckpointId(n), request=SnapshotRequest(kind=kind))
        self.pending[n] = one
        self.history.opened(one, at_ms)

    def trigger(self, n: int, wall_ms: int) -> None:
        one = self.pending[n]
        one.directory, one.timestamp_ms, one.participants = f"chk-{n}", wall_ms, frozenset(TASKS)

    def ack(self, n: int, place: int, at_ms: int, **figures: int) -> None:
        message = CheckpointAcked(
            attempt=TASKS[place],
            checkpoint_id=CheckpointId(n),
            snapshot=TaskSnapshot(),
            **figures,  # type: ignore[arg-type]
        )
        self.history.acked(self.pending[n], message, at_ms)

    def complete(
        self, n: int, began_ms: int, took_ms: int, size: int = 0, kind: SnapshotKind = SnapshotKind.CHECKPOINT
    ) -> None:
        """Opened, triggered, acknowledged by all, durable."""
        self.open(n, began_ms, kind)
        self.trigger(n, WALL_MS + began_ms)
        for place in range(len(TASKS)):
            self.ack(n, place, began_ms + took_ms, state_bytes=size, new_bytes=size // 2)
        self.history.completed(self.pending.pop(n), began_ms + took_ms)

    def fail(self, n: int, at_ms: int, reason: str) -> None:
        self.history.failed(self.pending.pop(n), reason, at_ms)

    def info(self, now_ms: int = 0) -> CheckpointsInfo:
        return self.history.info(self.pending.values(), NAMES, now_ms, WALL_MS + now_ms)


# --- spreads --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "bounds", "quantiles"),
    [
        pytest.param([7], (7, 7, 7.0), (7, 7, 7, 7, 7), id="one value is all of them"),
        pytest.param([2, 1], (1, 2, 1.5), (1.5, 1.9, 1.95, 1.99, 1.999), id="between two, by distance"),
        pytest.param([4, 1, 3, 2], (1, 4, 2.5), (2.5, 3.7, 3.85, 3.97, 3.997), id="in any order"),
        pytest.param([0] * 99 + [100], (0, 100, 1.0), (0, 0, 0, 1.0, 90.1), id="one that stands out"),
        pytest.param([5] * 1_001, (5, 5, 5.0), (5, 5, 5, 5, 5), id="all the same"),
        pytest.param(
            [9_999, *range(SAMPLES_MAX + 1)],
            (0, 9_999, 510_499 / 1_002),
            (500.5, 900.1, 950.05, 990.01, 999.001),
            id="bounds and average are of all, quantiles of the last ones",
        ),
    ],
)
def test_a_spread(values: list[int], bounds: tuple[float, ...], quantiles: tuple[float, ...]) -> None:
    spread = Sample(values).spread()
    assert (spread.min, spread.max, spread.average) == bounds
    found = (spread.p50, spread.p90, spread.p95, spread.p99, spread.p999)
    assert found == pytest.approx(quantiles)


def test_nothing_has_no_spread() -> None:
    assert Story().info() == CheckpointsInfo()
    with pytest.raises(AssertionError, match="a spread of nothing"):
        Sample().spread()


def test_the_summary_is_of_completed_ones_alone() -> None:
    story = Story()
    story.complete(1, 0, 10, size=100)
    story.complete(2, 20, 30, size=300, kind=SnapshotKind.SAVEPOINT)
    story.open(3, 60)
    story.trigger(3, WALL_MS)
    story.ack(3, 0, 61, state_bytes=10**9)
    story.fail(3, 9_999, "too late")
    summary = story.info().summary
    assert {name: (spread.min, spread.max) for name, spread in summary.items()} == {
        "duration_ms": (10, 30),
        "state_bytes": (400, 1_200),
        "new_bytes": (200, 600),
        "processed_bytes": (0, 0),
        "persisted_bytes": (0, 0),
    }


# --- single snapshots -----------------------------------------------------------------------------


def test_one_that_is_under_way_shows_who_is_missing() -> None:
    story = Story()
    story.open(1, 100)
    assert story.info(105).latest == (
        CheckpointFigures(
            checkpoint_id=CheckpointId(1),
            kind=SnapshotKind.CHECKPOINT,
            status=SnapshotStatus.IN_PROGRESS,
            timestamp_ms=WALL_MS + 100,
            duration_ms=5,
        ),
    )
    story.trigger(1, WALL_MS + 107)
    story.ack(1, 3, 120, alignment_ms=4, persisted_bytes=7, state_bytes=9, unaligned=True)
    (one,) = story.info(130).latest
    assert (one.timestamp_ms, one.duration_ms, one.path) == (WALL_MS + 107, 30, "chk-1")
    assert [(v.name, [s.index for s in v.subtasks], v.missing) for v in one.vertices] == [
        ("source", [], (0, 1)),
        ("sink", [1], (0,)),
    ]
    assert (one.expected, len(one.subtasks)) == (4, 1)
    assert (one.state_bytes, one.persisted_bytes, one.alignment_ms) == (9, 7, 4)
    assert one.subtasks[0].acked_after_ms == 20
    assert one.subtasks[0].unaligned


def test_a_completed_one_is_kept_whole() -> None:
    story = Story()
    story.complete(1, 100, 40, size=8)
    info = story.info(500)
    (one,) = info.latest
    assert info.latest_completed == one
    assert (one.status, one.timestamp_ms, one.duration_ms) == (SnapshotStatus.COMPLETED, WALL_MS + 100, 40)
    assert (one.state_bytes, one.new_bytes, one.expected, one.discarded) == (32, 16, 4, False)
    assert all(vertex.missing == () for vertex in one.vertices)
    assert (info.completed, info.failed, info.in_progress) == (1, 0, 0)


def test_one_that_failed_before_its_directory_had_a_name_has_a_time_all_the_same() -> None:
    story = Story()
    story.open(1, 100)
    story.fail(1, 160, "IO_EXCEPTION: full")
    failed = story.info(500).latest_failed
    assert failed is not None
    assert (failed.timestamp_ms, failed.duration_ms, failed.path) == (WALL_MS + 100, 60, None)
    assert (failed.status, failed.reason) == (SnapshotStatus.FAILED, "IO_EXCEPTION: full")


def test_the_latest_of_each_kind() -> None:
    story = Story()
    story.complete(1, 0, 1)
    story.complete(2, 0, 1, kind=SnapshotKind.SAVEPOINT)
    story.open(3, 0)
    story.fail(3, 1, "first")
    story.complete(4, 0, 1)
    story.complete(5, 0, 1, kind=SnapshotKind.SUSPEND)
    story.open(6, 0)
    info = story.info(9)
    latest = (info.latest_completed, info.latest_savepoint, info.latest_failed)
    assert [figures.checkpoint_id for figures in latest if figures is not None] == [4, 5, 3]
    assert [figures.checkpoint_id for figures in info.latest] == [6, 5, 4, 3, 2, 1]
    assert (info.completed, info.failed, info.in_progress) == (4, 1, 1)


def test_only_the_newest_are_kept_but_the_latest_of_a_kind_for_ever() -> None:
    story = Story()
    story.complete(1, 0, 1, kind=SnapshotKind.SAVEPOINT)
    for n in range(2, 2 * HISTORY_MAX):
        story.complete(n, n, 1)
    story.open(99, 50)
    info = story.info(60)
    assert [f.checkpoint_id for f in info.latest] == [99, *range(2 * HISTORY_MAX - 1, HISTORY_MAX, -1)]
    assert len(info.latest) == HISTORY_MAX
    assert info.completed == 2 * HISTORY_MAX - 1
    found = {n: info.find(CheckpointId(n)) for n in (1, 2, 99)}
    assert [n for n, figures in found.items() if figures is not None] == [1, 99]


@pytest.mark.parametrize("kept_max", [1, 3, 12])
def test_as_many_are_kept_as_the_job_says(kept_max: int) -> None:
    story = Story(kept_max)
    for n in range(1, 12):
        story.complete(n, n, 1)
    assert [f.checkpoint_id for f in story.info(60).latest] == list(range(11, max(0, 11 - kept_max), -1))


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        pytest.param({}, HISTORY_MAX, id="Flink's default"),
        pytest.param({"web.checkpoints.history": "2"}, 2, id="fewer"),
        pytest.param({"web.checkpoints.history": "100"}, 12, id="all"),
    ],
)
def test_a_job_says_how_many(config: dict[str, str], kept: int) -> None:
    cluster = running(job_graph(bounded=False), EVERY_2_S | config)
    while len(cluster.stored) < 12:
        take(cluster)
    info = checkpoints(cluster)
    assert (len(info.latest), info.completed) == (kept, 12)
    assert info.latest[0] == info.latest_completed


@pytest.mark.parametrize("text", ["0", "1001", "many"])
def test_a_wrong_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.checkpoints\.history"):
        settings({"web.checkpoints.history": text})


def test_one_that_made_way_for_newer_ones_is_marked() -> None:
    story = Story()
    story.complete(1, 0, 1)
    story.complete(2, 2, 1)
    story.history.discarded("chk-1")
    assert [(f.checkpoint_id, f.discarded) for f in story.info().latest] == [(2, False), (1, True)]
    story.history.discarded("chk-2")
    latest = story.info().latest_completed
    assert latest is not None
    assert latest.discarded


# --- of a whole job -------------------------------------------------------------------------------


def checkpoints(cluster: Cluster) -> CheckpointsInfo:
    return cluster.machine.checkpoints(cluster.now_ms, WALL_MS + cluster.now_ms)


def take(cluster: Cluster) -> None:
    cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
    cluster.settle()


def test_a_subsumed_checkpoint_is_discarded_and_names_are_those_of_the_graph() -> None:
    cluster = running(job_graph(bounded=False))
    take(cluster)
    take(cluster)
    info = checkpoints(cluster)
    assert info.completed == len(cluster.stored) >= 2
    assert [f.discarded for f in info.latest] == [False] + [True] * (info.completed - 1)
    assert {v.name for v in info.latest[0].vertices} == {v.name for v in cluster.graph.vertices}
    assert (info.restored, info.latest_restored) == (0, None)


def test_every_failover_is_a_restore_once_there_is_a_checkpoint() -> None:
    cluster = running(job_graph(bounded=False))
    while not cluster.stored:
        take(cluster)
    for number in (1, 2):
        cluster.now_ms += 1_000
        cluster.fail(next(iter(cluster.tasks.values())))
        recover(cluster)
        info = checkpoints(cluster)
        assert info.restored == number
        restored = info.latest_restored
        assert restored is not None
        assert restored.path in cluster.stored
        assert (restored.kind, restored.restored_ms) == (SnapshotKind.CHECKPOINT, WALL_MS + cluster.now_ms)


def test_a_failover_without_a_checkpoint_restores_nothing() -> None:
    cluster = running(job_graph(bounded=False), {"restart-strategy.type": "fixed-delay"})
    cluster.fail(next(iter(cluster.tasks.values())))
    recover(cluster)
    assert (checkpoints(cluster).restored, checkpoints(cluster).latest_restored) == (0, None)


def test_a_start_from_a_savepoint_is_a_restore() -> None:
    first = running(job_graph(bounded=False))
    first.handle(contract.SnapshotRequest(id="r", kind=SnapshotKind.SAVEPOINT))
    first.settle()
    path = first.answers["r"].path
    assert path is not None
    restore = RestorePoint(directory=path, manifest=first.stored[path], owned=False)
    second = Cluster(job_graph(bounded=False), settings(EVERY_2_S), restore)
    assert checkpoints(second).restored == 0
    second.handle(contract.Started())
    restored = checkpoints(second).latest_restored
    assert restored is not None
    assert (restored.path, restored.kind) == (path, SnapshotKind.SAVEPOINT)
    assert restored.checkpoint_id == first.stored[path].checkpoint_id


def test_figures_outlive_the_job() -> None:
    cluster = running(job_graph(bounded=False))
    take(cluster)
    before = checkpoints(cluster).completed
    cluster.handle(contract.CancelRequested())
    cluster.settle()
    assert cluster.ended is not None
    info = checkpoints(cluster)
    assert (info.completed, info.in_progress) == (before, 0)
    assert all(figures.discarded for figures in info.latest if figures.status is SnapshotStatus.COMPLETED)
