"""Behaviours of a job under failures as in Flink's DefaultScheduler; each test quotes the one that it shows.

The texts are those of `failureHandlingBehaviours` in tests/conformance/failover.json.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, Task, pipelines, settings, stages
from unistream.base.ids import AttemptId, JobId, PartitionId, SubtaskId, VertexId
from unistream.core import contract
from unistream.core.execution import Bulks, JobRun, SchedulingStrategy
from unistream.model import messages as msg
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.partition_type import PartitionType
from unistream.model.snapshot_kind import SnapshotKind

FIXED = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "1 s",
}


def running(graph: JobGraph, config: dict[str, str] | None = None) -> Cluster:
    cluster = Cluster(graph, settings(EVERY_2_S | FIXED | (config or {})))
    cluster.handle(contract.Started())
    cluster.settle()
    return cluster


def restarted(cluster: Cluster) -> set[str]:
    """``name/index`` of all subtasks that are not in their first attempt."""
    names = {vertex.id: vertex.name for vertex in cluster.graph.vertices}
    views = cluster.machine.view().attempts
    return {f"{names[v.attempt.vertex]}/{v.attempt.index}" for v in views if v.attempt.attempt}


def recover(cluster: Cluster) -> None:
    cluster.settle()
    while cluster.timers_of(contract.TimerKind.RESTART_DELAY):
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle()


def region(pipeline: int, index: int) -> set[str]:
    return {f"{kind}{pipeline}/{index}" for kind in ("source", "map", "sink")}


def until(cluster: Cluster, vertex: str) -> None:
    """Lets things happen until a task of that vertex is deployed."""
    while not any(task.deployment.vertex.name == vertex for task in cluster.tasks.values()):
        cluster.enabled()[0][1]()


def bring_up(cluster: Cluster) -> None:
    """What is scheduled comes to run, and no task gets on."""
    up = ("grant", "io", "deliver", "answer", "progress")
    while actions := [action for name, action in cluster.enabled() if name.split()[0] in up]:
        actions[0]()


# --- "all outstanding delayed deployments/restarts become void" ---------------------------------------


def end_by(cluster: Cluster, how: str) -> None:
    match how:
        case "fail":
            cluster.fail(cluster.task("map1", 1), recoverable=False)
        case "cancel":
            cluster.handle(contract.CancelRequested())
        case "suspend":  # the master goes, and what runs must not come back under it
            failure = msg.TaskFailure(kind="ClusterShutdown", message="the end", recoverable=False)
            if cluster.timers_of(contract.TimerKind.SPLIT_DISCOVERY):
                cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
            asked = next(job for job in cluster.jobs if isinstance(job, contract.DiscoverSplits))
            cluster.handle(
                contract.DiscoveryFailed(vertex=asked.vertex, failure=failure, number=asked.number)
            )


@pytest.mark.parametrize("how", ["fail", "cancel", "suspend"])
def test_all_outstanding_delayed_restarts_become_void(how: str) -> None:
    cluster = running(pipelines(interval_ms=60_000))
    cluster.fail(cluster.task("map0", 0))
    (restart,) = cluster.timers_of(contract.TimerKind.RESTART_DELAY)
    assert cluster.machine.view().next_restart_ms == cluster.now_ms + cluster.timers[restart]
    end_by(cluster, how)
    assert cluster.machine.view().next_restart_ms is None
    assert restart not in cluster.timers, "it is called off"
    deployed = len(cluster.sent(msg.DeployTask))
    cluster.handle(contract.TimerFired(restart))  # it was on its way already
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.ended.state == ("CANCELED" if how == "cancel" else "FAILED")
    assert len(cluster.sent(msg.DeployTask)) == deployed
    assert restarted(cluster) == set()


@pytest.mark.parametrize("how", ["fail", "cancel", "suspend"])
def test_all_outstanding_delayed_deployments_become_void(how: str) -> None:
    cluster = Cluster(pipelines(), settings(FIXED))
    cluster.handle(contract.Started())
    wanted = dict(cluster.wanted)
    assert wanted, "nothing can be deployed before there are slots"
    if how == "fail":
        refused = contract.SlotsUnfulfillable(requests=tuple(wanted)[:1], reason="too big", permanent=True)
        cluster.handle(refused)
    else:
        end_by(cluster, how)
    cluster.wanted |= wanted
    while cluster.wanted:
        cluster.grant()
    cluster.settle()
    assert cluster.ended is not None
    assert cluster.sent(msg.DeployTask) == []
    assert cluster.timers_of(contract.TimerKind.SLOT_REQUEST) == []


# --- "pending checkpoints are aborted when tasks are restarted, not counted as failed" ----------------


def test_pending_checkpoints_are_aborted_when_tasks_are_restarted_not_counted_as_failed() -> None:
    cluster = running(pipelines(), {"execution.checkpointing.tolerable-failed-checkpoints": "0"})
    for _ in range(3):
        cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
        while not any(task.to_ack for task in cluster.tasks.values()):
            cluster.enabled()[0][1]()
        (pending,) = {n for task in cluster.tasks.values() for n in task.to_ack}
        assert cluster.machine.checkpoints(0, 0).in_progress == 1
        cluster.fail(cluster.task("map0", 0))
        recover(cluster)
        assert pending not in {m.checkpoint_id for m in cluster.stored.values()}
    aborted = {m.checkpoint_id for m in cluster.sent(msg.CheckpointAborted)}  # type: ignore[union-attr]
    assert len(aborted) == 3
    assert restarted(cluster) == region(0, 0), "one that counts would have restarted everything"
    assert cluster.state == "RUNNING"


# --- "latest completed checkpoint is restored to exactly the restarted vertices" ----------------------


def test_latest_completed_checkpoint_is_restored_to_exactly_the_restarted_vertices() -> None:
    cluster = running(pipelines())
    for _ in range(2):
        cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
        cluster.settle()
    latest = max(m.checkpoint_id for m in cluster.stored.values())
    before = len(cluster.sent(msg.DeployTask))
    cluster.fail(cluster.task("sink1", 1))
    recover(cluster)
    again = [m.deployment for m in cluster.sent(msg.DeployTask)[before:]]  # type: ignore[union-attr]
    assert {f"{d.vertex.name}/{d.attempt.index}" for d in again} == region(1, 1)
    assert {d.restore.checkpoint_id for d in again if d.restore is not None} == {latest}
    assert all(d.restore is not None for d in again)


# --- "treated as a failure of the vertex (NoResourceAvailable) through the restart strategy" ----------


def test_a_slot_allocation_timeout_is_a_failure_of_the_vertex_and_goes_through_the_restart_strategy() -> None:
    once = {"restart-strategy.fixed-delay.attempts": "1", "slot.request.timeout": "3 s"}
    cluster = Cluster(pipelines(1), settings(EVERY_2_S | FIXED | once))
    cluster.handle(contract.Started())
    cluster.grant()  # for the first of the two regions
    cluster.settle_without("grant")
    deployed = {m.deployment.attempt.index for m in cluster.sent(msg.DeployTask)}  # type: ignore[union-attr]
    assert deployed == {0}

    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    assert cluster.state == "RESTARTING"
    (recorded,) = cluster.of(contract.RecordException)
    assert isinstance(recorded, contract.RecordException)
    assert recorded.failure.kind == "NoResourceAvailable"
    assert recorded.attempt is not None
    assert recorded.attempt.index == 1
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle_without("grant")
    assert restarted(cluster) == region(0, 1), "what has its slot goes on"

    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    cluster.settle_without("grant")
    assert cluster.ended is not None
    assert cluster.ended.state == "FAILED"


# --- "updateTaskExecutionState returns false, nothing changes" ----------------------------------------


def unknown_attempts(known: AttemptId) -> Iterable[AttemptId]:
    yield AttemptId(known.job, known.vertex, known.index, known.attempt + 1)
    yield AttemptId(known.job, known.vertex, 99, 0)
    yield AttemptId(known.job, VertexId("f" * 32), 0, 0)
    yield AttemptId(JobId("another"), known.vertex, known.index, known.attempt)


@pytest.mark.parametrize("state", ["INITIALIZING", "RUNNING", "FINISHED", "CANCELED", "FAILED"])
def test_the_state_of_an_unknown_execution_changes_nothing(state: str) -> None:
    cluster = running(pipelines(1))
    failure = msg.TaskFailure(kind="Boom", message="boom")
    before = cluster.machine.view()
    for attempt in unknown_attempts(cluster.task("map0", 0).attempt):
        report = msg.TaskStateChanged(attempt=attempt, state=state, failure=failure)
        assert cluster.handle(report) == []
    assert cluster.machine.view() == before


# --- "vertex is CREATED (new attempt) before restartTasks of the strategy is called" ------------------


class Watching:
    """A scheduling strategy that notes the states of what it is asked to restart."""

    def __init__(self, strategy: SchedulingStrategy, run: JobRun) -> None:
        self._strategy = strategy
        self._run = run
        self.asked: dict[SubtaskId, tuple[ExecutionState, int]] = {}

    def start(self) -> Bulks:
        return self._strategy.start()

    def restart(self, subtasks: Iterable[SubtaskId]) -> Bulks:
        subtasks = frozenset(subtasks)
        for subtask in subtasks:
            execution = self._run.executions[subtask]
            self.asked[subtask] = (execution.state, execution.attempt.attempt)
        return self._strategy.restart(subtasks)

    def on_running(self, subtask: SubtaskId) -> Bulks:
        return self._strategy.on_running(subtask)

    def on_finished(self, subtask: SubtaskId) -> Bulks:
        return self._strategy.on_finished(subtask)


def test_a_vertex_is_created_anew_before_the_strategy_restarts_tasks() -> None:
    cluster = running(pipelines())
    run = cluster.machine._parts.run
    watching = Watching(run.scheduling, run)
    run.scheduling = watching
    cluster.fail(cluster.task("map0", 0))
    recover(cluster)
    assert len(watching.asked) == 3
    assert set(watching.asked.values()) == {(ExecutionState.CREATED, 1)}


# --- "deployment waits for partition registration; failure or timeout = task failure;
# ---  partitions registered too late are released" ----------------------------------------------------


def test_deployment_waits_for_the_registration_of_all_produced_partitions() -> None:
    cluster = Cluster(stages(), settings(FIXED))
    cluster.handle(contract.Started())
    until(cluster, "source")
    while len(cluster.finished) < 2:
        assert not any(t.deployment.vertex.name == "count" for t in cluster.tasks.values())
        cluster.enabled()[0][1]()
    until(cluster, "count")  # the pretended worker checks that all of its inputs are there


def test_a_deployment_that_fails_or_is_not_answered_in_time_is_a_task_failure() -> None:
    cluster = Cluster(stages(), settings(FIXED))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.grant()
    worker = next(name for name, mail in cluster.mail.items() if mail)
    cluster.drop(worker)
    assert cluster.state == "CREATED", "the worker may be lost, and then that is the cause"
    cluster.fire(contract.TimerKind.UNDELIVERED)
    assert cluster.state == "RESTARTING"
    cluster.run_to_end()
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"
    assert len(restarted(cluster)) == 1


def test_partitions_registered_too_late_are_released() -> None:
    cluster = Cluster(stages(), settings(FIXED | {"jobmanager.execution.failover-strategy": "full"}))
    cluster.handle(contract.Started())
    bring_up(cluster)
    late, failing = cluster.task("source", 0), cluster.task("source", 1)
    worker = cluster.where[late.attempt]
    cluster.fail(failing)  # the other one is canceled, but has just ended
    cluster.report(late, "FINISHED")
    assert cluster.partitions[worker], "it has stored all that it made"
    cluster.settle_without("grant")
    assert not cluster.partitions[worker]
    cluster.run_to_end()
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"
    assert not any(cluster.partitions.values())


# --- "no checkpoint is triggered while a running task has a blocking output" --------------------------


def test_no_checkpoint_is_triggered_while_a_running_task_has_a_blocking_output() -> None:
    cluster = Cluster(stages(), settings(EVERY_2_S | FIXED))
    cluster.handle(contract.Started())
    bring_up(cluster)
    assert {t.state for t in cluster.tasks.values()} == {"RUNNING"}
    assert cluster.timers_of(contract.TimerKind.CHECKPOINT_INTERVAL) == []
    cluster.handle(contract.SnapshotRequest(id="sp", kind=SnapshotKind.SAVEPOINT))
    assert cluster.answers["sp"].error is not None
    cluster.run_to_end()
    assert cluster.sent(msg.TriggerCheckpoint) == []
    assert cluster.of(contract.PrepareDirectory) == []


# --- "a consumer failing with a PartitionException marks that single partition as unavailable for this
# ---  decision only, so its producer region restarts too" ---------------------------------------------


def reader_of(cluster: Cluster, index: int) -> tuple[Task, PartitionId]:
    """A task that reads, and the partition of producer 1 that it reads."""
    reader = cluster.task("map0", index)
    channel = reader.deployment.gates[0].channels[0]
    return reader, PartitionId(channel.producer.subtask, channel.edge)


def test_a_partition_that_was_not_found_is_marked_for_this_decision_only() -> None:
    cluster = Cluster(pipelines(1, bounded=True, partition=PartitionType.BLOCKING), settings(FIXED))
    cluster.handle(contract.Started())
    while len([t for t in cluster.tasks.values() if t.deployment.vertex.name == "map0"]) < 2:
        cluster.enabled()[0][1]()
    reader, lost = reader_of(cluster, 1)
    failure = msg.TaskFailure(kind="PartitionLost", message="not found", lost_partition=lost)
    cluster.report(reader, "FAILED", failure)
    recover_until(cluster, "map0", 1)
    assert restarted(cluster) == {"source0/1", "map0/1"}, "its producer, and no other"

    cluster.fail(cluster.task("map0", 1))
    recover_until(cluster, "map0", 1)
    numbers = {a.attempt.subtask: a.attempt.attempt for a in cluster.machine.view().attempts}
    assert numbers[lost.producer] == 1, "its second copy is as good as any"
    assert numbers[cluster.task("map0", 1).attempt.subtask] == 2
    cluster.run_to_end()
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"


def recover_until(cluster: Cluster, vertex: str, index: int) -> None:
    """Lets the restart happen until that task is there again; it does not end."""
    cluster.settle_without("finish map0/1")
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    while not any(
        t.deployment.vertex.name == vertex and t.attempt.index == index for t in cluster.tasks.values()
    ):
        cluster.enabled()[0][1]()
