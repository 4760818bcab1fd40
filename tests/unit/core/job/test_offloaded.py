"""A stream whose bounded part an engine runs: it comes first, and behind a checkpoint it never runs again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize
from msgspec import structs

from tests.unit.core.cluster import EVERY_2_S, Action, settings
from tests.unit.core.engine_cluster import EngineCluster, offloaded
from tests.unit.core.job.among_faults import AmongFaults
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, OperatorUid
from unistream.core import contract
from unistream.core.contract.settings import RestorePoint
from unistream.model import messages as msg
from unistream.model.bounded import RunFailed, StagesRan
from unistream.model.graph import JobGraph
from unistream.model.snapshot_kind import SnapshotKind

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000"}
CHECKPOINT = contract.TimerKind.CHECKPOINT_INTERVAL
DELAY = contract.TimerKind.RESTART_DELAY
USERS = msg.TaskFailure(kind="UserCodeError", message="operator 'clean': row 7 is not good")


def cluster(
    graph: JobGraph | None = None, restore: RestorePoint | None = None, **config: str
) -> EngineCluster:
    return EngineCluster(graph, settings({**EVERY_2_S, **RESTARTS, **config}, offloads=True), restore)


def runs(job: EngineCluster) -> list[tuple[int, int]]:
    """Number and first attempt of each run of the engine."""
    commands: Any = job.of(contract.RunStages)
    return [(command.run, command.first_attempt) for command in commands]


def deployed(job: EngineCluster) -> list[str]:
    messages: Any = job.sent(msg.DeployTask)
    return sorted({message.deployment.vertex.name for message in messages})


def take_checkpoint(job: EngineCluster) -> None:
    job.fire(CHECKPOINT)
    job.settle()
    assert job.stored


# --- running --------------------------------------------------------------------------------------


def test_it_runs_first_and_needs_no_slots() -> None:
    job = cluster()
    job.handle(contract.Started())
    assert set(job.part.values()) == {"SCHEDULED"}
    assert job.of(contract.RequestSlots) == [], "neither it nor what reads it"
    job.settle_without("engine")
    assert runs(job) == [(1, 0)]
    job.engine_changed("RUNNING", "table")
    assert job.state == "RUNNING"
    assert job.part == {
        "table-0": "RUNNING",
        "table-1": "RUNNING",
        "clean-0": "SCHEDULED",
        "clean-1": "SCHEDULED",
    }
    job.engine_changed("FINISHED", "table")
    assert job.part["table-0"] == "FINISHED"
    job.engine_changed("RUNNING", "table")
    assert job.part["table-0"] == "FINISHED", "the engine repeats a task by itself"
    assert deployed(job) == []
    job.settle()
    assert set(job.part.values()) == {"FINISHED"}
    assert deployed(job) == ["facts", "join", "sink"]
    assert job.state == "RUNNING"


def test_the_stream_reads_its_files_and_behind_a_checkpoint_they_are_removed() -> None:
    job = cluster()
    job.handle(contract.Started())
    job.settle_without("io PrepareDirectory")
    assert len(job.files) == 2
    read = [task.read for task in job.tasks.values() if task.deployment.vertex.name == "join"]
    assert [len(names) for names in read] == [2, 2]
    job.settle()
    assert job.stored
    assert job.files == {}
    job.fail(job.task("join", 0))
    job.fire(DELAY)
    job.settle()
    assert job.state == "RUNNING"
    assert len(runs(job)) == 1
    channels = [c for c in job.task("join", 0).stored]
    assert {(c.ended, c.rows) for c in channels} == {(True, None)}


def test_no_checkpoint_before_its_rows_are_read() -> None:
    job = cluster().running()
    join = next(v.id for v in job.graph.vertices if v.name == "join")
    job.handle(contract.SnapshotRequest(id="savepoint", kind=SnapshotKind.SAVEPOINT, target="sp"))
    job.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.TERMINATE, target="sp"))
    job.handle(contract.RescaleRequested(request="rescale", parallelism={join: 3}))
    for request in ("savepoint", "stop", "rescale"):
        assert "the bounded part of the job runs before the stream" in (job.answers[request].error or "")
        assert "try again then, or cancel the job" in (job.answers[request].error or "")
    job.engine_ran()
    job.settle_without("read stored")
    job.handle(contract.SnapshotRequest(id="early", kind=SnapshotKind.SAVEPOINT, target="sp"))
    assert "exchange is still written or read: try again" in (job.answers["early"].error or "")
    job.settle()
    job.handle(contract.SnapshotRequest(id="late", kind=SnapshotKind.SAVEPOINT, target="sp"))
    job.settle()
    assert job.answers["late"].path is not None


# --- failures -------------------------------------------------------------------------------------


def test_a_consumer_that_fails_before_a_checkpoint_reads_the_files_again() -> None:
    job = cluster()
    job.handle(contract.Started())
    job.settle_without("io PrepareDirectory")
    job.fail(job.task("join", 1))
    job.fire(DELAY)
    job.settle_without("io PrepareDirectory")
    assert len(runs(job)) == 1
    assert len(job.task("join", 1).read) == 2
    assert len(job.files) == 2


def test_a_file_that_is_lost_makes_it_run_again() -> None:
    job = cluster()
    job.handle(contract.Started())
    job.settle_without("read stored")
    job.lose_file(next(iter(job.files)))
    job.settle()
    job.fire(DELAY)
    job.settle_without("io WriteManifest")
    assert runs(job) == [(1, 0), (2, 1)]
    assert job.state == "RUNNING"
    assert {path.partition("-")[0] for path in job.files} == {"2"}, "those of the first run are removed"
    assert len(job.task("join", 0).read) == 2


def test_a_failure_of_the_engine_is_a_matter_of_the_restart_strategy() -> None:
    job = cluster(**{"restart-strategy.fixed-delay.attempts": "2"}).running()
    for number in (1, 2):
        job.engine_changed("RUNNING")
        job.engine_failed()
        assert sorted(job.part.values()) == ["CANCELED", "CANCELED", "CANCELED", "FAILED"]
        job.fire(DELAY)
        assert runs(job)[-1] == (number + 1, number)
        assert job.machine.view().restarts == number
    job.engine_failed()
    assert job.ended is not None
    assert job.ended.state == "FAILED"


def test_splits_are_found_once() -> None:
    job = cluster().running()
    job.engine_failed()
    job.fire(DELAY)
    vertices: Any = job.of(contract.DiscoverSplits)
    assert [job.graph.vertex(command.vertex).name for command in vertices] == ["facts", "table"]


def test_an_error_of_a_function_names_its_task() -> None:
    job = cluster(**{"restart-strategy.type": "none"}).running()
    job.engine_changed("RUNNING")
    clean = next(v.id for v in job.graph.vertices if v.name == "clean")
    job.engine_failed(USERS, AttemptId(job.settings.job, clean, 1, 7))
    assert job.ended == contract.JobEnded(state="FAILED", failure=USERS)
    record: Any = job.of(contract.RecordException)[0]
    assert (record.attempt.vertex, record.attempt.index) == (clean, 1)
    assert job.part["clean-1"] == "FAILED"


def test_a_discovery_that_fails_is_repeated() -> None:
    job = cluster()
    job.handle(contract.Started())
    table = next(v.id for v in job.graph.vertices if v.name == "table")
    job.jobs = [c for c in job.jobs if getattr(c, "vertex", None) != table]
    job.handle(
        contract.DiscoveryFailed(vertex=table, failure=msg.TaskFailure(kind="Gone", message="?"), number=0)
    )
    assert job.machine.view().restarts == 1
    job.fire(DELAY)
    job.settle()
    assert job.state == "RUNNING"
    assert runs(job) == [(1, 1)]


def test_a_run_that_has_not_stored_everything_fails() -> None:
    job = cluster().running()
    run = job.run
    assert run is not None
    job.run = None
    stored = job.stored_by(run)
    job.files |= {row.file.path: row for row in stored}
    job.handle(StagesRan(run=1, stored=stored[1:]))
    assert job.files == {}
    assert "has not stored" in (job.machine.view().failure or USERS).message
    job.fire(DELAY)
    job.settle()
    assert job.state == "RUNNING"


def test_two_parts_are_one_run_and_each_has_its_stream() -> None:
    job = cluster(offloaded(parts=2)).running()
    assert {job.graph.vertex(vertex).name for vertex in job.run.splits} == {"table", "lists"}
    job.engine_changed("FINISHED", "lists")
    assert deployed(job) == [], "what it has stored is known when all of it has been run"
    job.engine_ran()
    job.settle_without("io PrepareDirectory")
    assert len(job.files) == 4
    assert deployed(job) == ["facts", "join", "match", "notes", "sink"]
    lists = next(v.id for v in job.graph.vertices if v.name == "lists")
    job.lose_file(next(path for path, rows in job.files.items() if rows.vertex == lists))
    job.fail(job.task("match", 0))
    job.fire(DELAY)
    job.settle_without("io PrepareDirectory")
    job.fire(DELAY)
    job.settle_without("io PrepareDirectory")
    assert runs(job) == [(1, 0), (2, 1)], "a file of one is lost, and all of it runs again"
    assert len(job.files) == 4
    job.settle()
    assert job.state == "RUNNING"
    assert job.stored
    assert job.files == {}


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "state"),
    [(contract.CancelRequested(), "CANCELED"), (contract.SuspendRequested(reason="shut down"), "SUSPENDED")],
)
@pytest.mark.parametrize("seen", [(), ("table",), ("table", "clean")], ids=["none", "some", "all"])
@pytest.mark.parametrize("late", [False, True], ids=["it ends", "it had just ended"])
def test_an_end_waits_for_the_engine(
    event: contract.Event, state: str, seen: tuple[str, ...], *, late: bool
) -> None:
    job = cluster().running()
    if seen:
        job.engine_changed("RUNNING", *seen)
    job.handle(event)
    assert job.ended is None
    assert job.cancels
    if late:
        job.engine_ran()
    else:
        job.engine_failed()
    assert job.ended is not None
    assert job.ended.state == state
    assert job.files == {}


def test_an_end_while_splits_are_found() -> None:
    job = cluster()
    job.handle(contract.Started())
    job.handle(contract.CancelRequested())
    job.settle()
    assert job.ended == contract.JobEnded(state="CANCELED")
    assert runs(job) == []


def test_a_leader_that_steps_down_ends_it() -> None:
    job = cluster().running()
    job.handle(contract.LeadershipLost(reason="another leads"))
    assert job.cancels
    assert job.handle(RunFailed(run=1, failure=USERS)) == []


# --- snapshots ------------------------------------------------------------------------------------


def saved() -> RestorePoint:
    job = cluster()
    job.handle(contract.Started())
    job.settle()
    job.handle(contract.SnapshotRequest(id="r", kind=SnapshotKind.SAVEPOINT, target="sp"))
    job.settle()
    directory, manifest = next(iter(job.stored.items()))
    return RestorePoint(directory=directory, manifest=manifest, owned=False)


def test_from_a_savepoint_nothing_of_it_runs() -> None:
    job = cluster(restore=saved())
    job.handle(contract.Started())
    assert set(job.part.values()) == {"FINISHED"}
    job.settle()
    assert runs(job) == []
    assert deployed(job) == ["facts", "join", "sink"]
    assert all(c.ended for c in job.task("join", 0).stored)
    assert job.state == "RUNNING"
    take_checkpoint(job)
    job.fail(job.task("join", 0))
    job.fire(DELAY)
    job.settle()
    assert runs(job) == []


def test_a_snapshot_without_a_part_of_it_is_refused() -> None:
    graph = offloaded()
    vertices = tuple(
        structs.replace(
            vertex,
            operators=tuple(structs.replace(one, uid=OperatorUid("new")) for one in vertex.operators),
        )
        if vertex.name == "clean"
        else vertex
        for vertex in graph.vertices
    )
    point = saved()
    manifest = structs.replace(
        point.manifest,
        vertices=tuple(v for v in point.manifest.vertices if "clean" not in v.operators),
    )
    with pytest.raises(ConfigError, match=r"has 'clean', which the snapshot does not have.*engine=native"):
        cluster(
            structs.replace(graph, vertices=vertices),
            RestorePoint(directory="sp", manifest=manifest, owned=False),
        )


def test_a_snapshot_that_was_taken_while_it_was_a_stream_is_refused() -> None:
    point = saved()
    vertices = tuple(
        structs.replace(v, finished_subtasks=()) if "table" in v.operators or "clean" in v.operators else v
        for v in point.manifest.vertices
    )
    manifest = structs.replace(point.manifest, vertices=vertices)
    with pytest.raises(ConfigError, match=r"was taken while 'table' was read as a stream"):
        cluster(restore=RestorePoint(directory="sp", manifest=manifest, owned=False))


# --- at random ------------------------------------------------------------------------------------


class OffloadedAmongFaults(AmongFaults):
    """Streams with a bounded part; the engine fails too, and loses what it has stored."""

    cluster: EngineCluster

    @initialize(
        bounded=st.booleans(),
        checkpointing=st.booleans(),
        failover=st.sampled_from(("region", "full")),
        parts=st.integers(1, 2),
    )
    def start(self, *, bounded: bool, checkpointing: bool, failover: str, parts: int) -> None:
        config = RESTARTS | {"jobmanager.execution.failover-strategy": failover}
        config |= (
            EVERY_2_S | {"execution.checkpointing.tolerable-failed-checkpoints": "3"} if checkpointing else {}
        )
        self.bounded = bounded
        graph = offloaded(bounded=bounded, parts=parts)
        self.cluster = EngineCluster(graph, settings(config, offloads=True))
        self.cluster.handle(contract.Started())

    def faults(self) -> list[Action]:
        cluster = self.cluster
        actions = super().faults()
        actions += [(f"lose {path}", lambda path=path: cluster.lose_file(path)) for path in cluster.files]
        if cluster.run is not None:
            actions.append(("the engine fails", cluster.engine_failed))
            actions.append(("the engine was too fast", cluster.engine_ran))
            actions.append(("a task has ended", lambda: cluster.engine_changed("FINISHED", "table")))
        return actions

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "cluster"):
            assert self.cluster.run is None
            assert self.cluster.files == {}, "what it has stored is removed"


class TestOffloadedAmongFaults(OffloadedAmongFaults.TestCase):  # type: ignore[misc]  # made by hypothesis
    settings = hypothesis_settings(
        max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
