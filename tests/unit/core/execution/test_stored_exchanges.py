"""Checkpoints of a streaming job with stored exchanges: when they begin, and what a restart reads again.

The pretended cluster refuses a partition that is read twice into one state or never, and a snapshot of a
task amid its stored inputs.
"""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, Task, enriched, settings, stages
from unistream.base.ids import VertexId
from unistream.core import contract
from unistream.core.execution.stored_exchanges import vertices_before
from unistream.model import messages as msg
from unistream.model.failure_reason import FailureReason
from unistream.model.graph import JobGraph, JobType
from unistream.model.snapshot_kind import SnapshotKind

FIXED = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "1 s",
}


def started(graph: JobGraph, **config: str) -> Cluster:
    cluster = Cluster(graph, settings(EVERY_2_S | FIXED | config))
    cluster.handle(contract.Started())
    return cluster


def checkpoint(cluster: Cluster) -> None:
    """One more is complete."""
    before = len(cluster.stored)
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    cluster.settle()
    assert len(cluster.stored) == before + 1


def recover(cluster: Cluster) -> None:
    cluster.settle()
    while cluster.timers_of(contract.TimerKind.RESTART_DELAY):
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle()


def own(task: Task) -> list[str]:
    """The partitions that are in its state."""
    return [name for name in task.read if name.endswith(f">{task.attempt.index}")]


def attempts(cluster: Cluster) -> dict[str, set[int]]:
    """Attempt numbers by the vertex's name."""
    names = {vertex.id: vertex.name for vertex in cluster.graph.vertices}
    found: dict[str, set[int]] = {}
    for view in cluster.machine.view().attempts:
        found.setdefault(names[view.attempt.vertex], set()).add(view.attempt.attempt)
    return found


def savepoint(cluster: Cluster, name: str) -> str | None:
    """The error, if it is refused."""
    request = contract.SnapshotRequest(id=name, kind=SnapshotKind.SAVEPOINT, target="there")
    cluster.handle(request)
    return cluster.answers[name].error if name in cluster.answers else None


def test_no_snapshot_while_what_is_stored_is_not_read() -> None:
    cluster = started(enriched())
    cluster.settle_without("read stored")
    assert {task.deployment.vertex.name for task in cluster.tasks.values()} == {"facts", "join", "sink"}
    assert cluster.state == "RUNNING"
    for _ in range(3):
        if cluster.timers_of(contract.TimerKind.CHECKPOINT_INTERVAL):
            cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
        cluster.settle_without("read stored")
    assert not cluster.of(contract.PrepareDirectory)
    assert savepoint(cluster, "early") == FailureReason.BLOCKING_OUTPUT_EXIST.value
    cluster.read_stored(cluster.task("join", 0))
    assert not cluster.of(contract.PrepareDirectory), "the other one still reads"
    cluster.read_stored(cluster.task("join", 1))
    assert cluster.of(contract.PrepareDirectory), "it was due; nothing is in the way any more"
    cluster.settle()
    assert list(cluster.stored) == ["chk-1"]
    assert savepoint(cluster, "later") is None
    cluster.settle()
    assert cluster.answers["later"].path == "savepoint-2"


def test_a_savepoint_while_the_producers_run_is_refused_as_flink_does() -> None:
    cluster = started(enriched())
    cluster.settle_without("finish table")
    assert cluster.task("table", 0).end_of_data
    assert savepoint(cluster, "early") is not None
    assert not cluster.of(contract.PrepareDirectory)


def test_tasks_before_a_stored_exchange_end_without_a_checkpoint() -> None:
    cluster = started(enriched())
    cluster.settle()
    deployed = {m.deployment.vertex.name: m.deployment.checkpointing for m in cluster.sent(msg.DeployTask)}
    assert deployed == {"table": False, "facts": True, "join": True, "sink": True}


def test_everything_upstream_of_a_stored_exchange_counts() -> None:
    graph = stages(job_type=JobType.STREAMING)
    source, count, sink = (vertex.id for vertex in graph.vertices)
    assert vertices_before(graph, frozenset({count})) == {source, count}
    assert vertices_before(graph, frozenset({sink})) == {source, count, sink}
    assert vertices_before(graph, frozenset[VertexId]()) == frozenset()


def test_before_the_first_checkpoint_a_restart_reads_from_the_beginning() -> None:
    cluster = started(enriched())
    cluster.settle_without("io PrepareDirectory")
    victim = cluster.task("join", 0)
    assert victim.read
    cluster.fail(victim)
    recover(cluster)
    assert attempts(cluster) == {"table": {0}, "facts": {1}, "join": {1}, "sink": {1}}
    assert len(own(cluster.task("join", 0))) == 2, "again, from both producers"


@pytest.mark.parametrize("fault", ["fail", "lose"])
def test_behind_a_checkpoint_nothing_stored_is_read_again(fault: str) -> None:
    cluster = started(enriched())
    cluster.settle()
    checkpoint(cluster)
    assert not any(cluster.partitions.values()), "they are deleted as soon as they lie behind it"
    victim = cluster.task("join", 0)
    if fault == "fail":
        cluster.fail(victim)
    else:
        cluster.lose(cluster.where[victim.attempt])
    recover(cluster)
    assert attempts(cluster) == {"table": {0}, "facts": {1}, "join": {1}, "sink": {1}}, (
        "no producer runs again"
    )
    again = cluster.task("join", 0)
    assert all(channel.ended for channel in again.stored)
    assert len(own(again)) == 2, "as restored"
    checkpoint(cluster)


def test_the_loss_of_a_worker_that_kept_them_restarts_nobody() -> None:
    cluster = started(enriched())
    cluster.settle()
    keepers = [a for a in cluster.finished if cluster.graph.vertex(a.vertex).name == "table"]
    assert keepers
    checkpoint(cluster)
    busy = set(cluster.where.values())
    for worker in [name for name in cluster.mail if name not in busy]:
        cluster.lose(worker)
    recover(cluster)
    assert attempts(cluster) == {"table": {0}, "facts": {0}, "join": {0}, "sink": {0}}


def test_a_restart_of_everything_runs_the_producers_as_finished() -> None:
    cluster = started(enriched(), **{"jobmanager.execution.failover-strategy": "full"})
    cluster.settle()
    checkpoint(cluster)
    cluster.fail(cluster.task("join", 0))
    recover(cluster)
    assert attempts(cluster) == {"table": {1}, "facts": {1}, "join": {1}, "sink": {1}}
    last = [m.deployment for m in cluster.sent(msg.DeployTask) if m.deployment.vertex.name == "table"][-1]
    assert last.restore is not None
    assert last.restore.finished
    assert not any(cluster.partitions.values()), "nobody needs what they have stored"
    checkpoint(cluster)


def test_the_end_of_the_last_producer_lets_the_checkpoint_that_waits_for_it_begin() -> None:
    """After a restart consumers have nothing to read, and may be ready before their producers have ended."""
    cluster = started(enriched(), **{"jobmanager.execution.failover-strategy": "full"})
    cluster.settle()
    checkpoint(cluster)
    cluster.fail(cluster.task("join", 0))
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle_without("finish table/1")
    assert list(cluster.stored)[-1] == "chk-2", "a producer runs"
    cluster.settle()
    assert list(cluster.stored)[-1] == "chk-3"


def test_a_consumer_of_what_is_read_already_may_start_before_its_producer_has_a_place() -> None:
    cluster = started(
        stages(job_type=JobType.STREAMING), **{"jobmanager.execution.failover-strategy": "full"}
    )
    cluster.settle_without("io WriteManifest")
    [write] = [job for job in cluster.jobs if isinstance(job, contract.WriteManifest)]
    cluster.fail(cluster.task("sink", 0))
    cluster.io(write)
    first = next(view for view in cluster.machine.view().attempts if view.attempt.index == 0)
    assert first.task_manager is not None
    cluster.lose(first.task_manager)
    cluster.settle_without("grant")
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle_without("grant")
    deployed = [m.deployment for m in cluster.sent(msg.DeployTask)][-1]
    assert {(c.ended, c.address) for gate in deployed.gates for c in gate.channels} >= {(True, "")}
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")


def test_a_consumer_that_fails_while_the_first_manifest_is_written_does_not_read_again() -> None:
    cluster = started(enriched())
    cluster.settle_without("io WriteManifest")
    cluster.fail(cluster.task("join", 0))
    cluster.settle_without("io WriteManifest")
    while cluster.timers_of(contract.TimerKind.RESTART_DELAY):
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle_without("io WriteManifest")
    assert "join" not in {t.deployment.vertex.name for t in cluster.tasks.values() if t.state == "RUNNING"}
    cluster.settle()
    assert list(cluster.stored)[:1] == ["chk-1"]
    assert all(channel.ended for channel in cluster.task("join", 0).stored)


def test_a_bounded_job_ends_with_its_last_checkpoint() -> None:
    for graph in (enriched(bounded=True), stages(job_type=JobType.STREAMING)):
        cluster = started(graph)
        cluster.run_to_end()
        assert cluster.ended is not None
        assert cluster.ended.state == "FINISHED"
        assert cluster.stored, "its sinks commit with a checkpoint, as in any streaming job"


def test_a_batch_job_has_none() -> None:
    cluster = started(stages())
    cluster.run_to_end()
    assert not cluster.of(contract.PrepareDirectory)
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"
