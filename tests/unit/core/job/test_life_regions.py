"""Regions of a job: what restarts when something fails, what goes on, and what waits for its inputs."""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, Task, pipelines, settings, stages
from tests.unit.core.running import FIXED, recover, running
from unistream.base.errors import ConfigError
from unistream.core import contract
from unistream.core.job.deliveries import SEND_TRIES
from unistream.model import messages as msg
from unistream.model.partition_type import PartitionType
from unistream.model.snapshot_kind import SnapshotKind

BLOCKING = PartitionType.BLOCKING


def attempts(cluster: Cluster) -> dict[str, int]:
    """Attempt number of each subtask, as ``name/index``."""
    names = {vertex.id: vertex.name for vertex in cluster.graph.vertices}
    views = cluster.machine.view().attempts
    return {f"{names[v.attempt.vertex]}/{v.attempt.index}": v.attempt.attempt for v in views}


def reads(task: Task) -> set[str]:
    return {*task.splits, *task.done}


def test_only_the_failed_region_restarts_and_the_others_keep_their_tasks() -> None:
    cluster = running(pipelines())
    others = {a: t for a, t in cluster.tasks.items() if t.deployment.vertex.name != "x" and a.index == 1}
    cluster.fail(cluster.task("map0", 0))
    assert cluster.state == "RESTARTING"
    recover(cluster)
    restarted = {name for name, number in attempts(cluster).items() if number == 1}
    assert restarted == {"source0/0", "map0/0", "sink0/0"}
    assert all(cluster.tasks[a] is task for a, task in others.items()), "they are the same tasks as before"
    assert cluster.state == "RUNNING"
    assert cluster.machine.view().restarts == 1


def test_restart_all_restarts_all() -> None:
    cluster = running(pipelines(), EVERY_2_S | FIXED | {"jobmanager.execution.failover-strategy": "full"})
    cluster.fail(cluster.task("map0", 0))
    recover(cluster)
    assert set(attempts(cluster).values()) == {1}


def test_checkpoints_go_on_after_a_region_came_back_and_hold_every_split_once() -> None:
    cluster = running(pipelines())
    before = set(cluster.stored)
    for task in list(cluster.tasks.values()):
        task.done += task.splits[:1]
        del task.splits[:1]
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    cluster.settle()
    cluster.fail(cluster.task("source0", 0))
    recover(cluster)
    assert set(cluster.stored) > before
    assert cluster.state == "RUNNING"
    assert reads(cluster.task("source0", 0)) == {"source0-s-0", "source0-s-2"}


@pytest.mark.parametrize("pull", [False, True])
def test_splits_given_out_since_the_checkpoint_come_back_to_a_region_that_restarts(pull: bool) -> None:
    cluster = Cluster(pipelines(bounded=False, pull=pull), settings(EVERY_2_S | FIXED))
    cluster.handle(contract.Started())
    while not any(task.splits for task in cluster.tasks.values()):
        cluster.enabled()[0][1]()
    cluster.settle()
    assert not any("source0-s" in str(m.vertices) for m in cluster.stored.values() if m.checkpoint_id > 9)
    owner = next(t for t in cluster.tasks.values() if "source0-s-1" in reads(t))
    cluster.fail(owner)
    recover(cluster)
    held = [split for task in cluster.tasks.values() for split in reads(task)]
    assert sorted(held) == [f"source{n}-s-{i}" for n in (0, 1) for i in range(3)]


def test_a_failure_while_another_region_restarts_is_merged_and_each_starts_once_more() -> None:
    cluster = running(pipelines())
    cluster.fail(cluster.task("map0", 0))
    cluster.settle()
    cluster.fail(cluster.task("map1", 1))
    cluster.settle()
    delays = [timer for timer in cluster.timers if timer.kind is contract.TimerKind.RESTART_DELAY]
    assert len(delays) == 2
    for timer in delays:
        cluster.fire(timer)
    cluster.settle()
    numbers = attempts(cluster)
    assert {name for name, number in numbers.items() if number == 1} == {
        *("source0/0", "map0/0", "sink0/0"),
        *("source1/1", "map1/1", "sink1/1"),
    }
    assert cluster.state == "RUNNING"


def test_a_task_that_fails_again_before_its_restart_is_not_restarted_twice() -> None:
    cluster = running(pipelines(1))
    task = cluster.task("map0", 0)
    cluster.fail(task)
    late = cluster.task("sink0", 0)
    cluster.report(late, "FAILED", msg.TaskFailure(kind="Boom", message="while it was cancelled"))
    recover(cluster)
    assert attempts(cluster)["sink0/0"] == 1
    assert cluster.machine.view().restarts == 1
    recorded = [c.failure.message for c in cluster.of(contract.RecordException)]
    assert recorded == ["boom", "while it was cancelled"]


def test_a_lost_worker_restarts_just_the_regions_that_ran_there() -> None:
    cluster = running(pipelines())
    worker = cluster.where[cluster.task("map0", 0).attempt]
    cluster.lose(worker)
    recover_all(cluster)
    numbers = attempts(cluster)
    assert {name for name, number in numbers.items() if number} == {n for n in numbers if n.endswith("/0")}


def recover_all(cluster: Cluster) -> None:
    cluster.settle()
    while any(timer.kind is contract.TimerKind.RESTART_DELAY for timer in cluster.timers):
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle()


def test_a_failed_checkpoint_that_counts_restarts_everything() -> None:
    cluster = running(pipelines())
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    while not any(task.to_ack for task in cluster.tasks.values()):
        cluster.enabled()[0][1]()
    task = next(task for task in cluster.tasks.values() if task.to_ack)
    n = next(iter(task.to_ack))
    cluster.handle(msg.CheckpointDeclined(attempt=task.attempt, checkpoint_id=n, reason="full"))
    recover_all(cluster)
    assert set(attempts(cluster).values()) == {1}


def test_while_a_stop_holds_tasks_behind_its_barrier_a_failure_restarts_everything() -> None:
    cluster = running(pipelines())
    cluster.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.SUSPEND, target="sp"))
    while not any(task.to_ack for task in cluster.tasks.values()):
        cluster.enabled()[0][1]()
    cluster.fail(cluster.task("map0", 0))
    recover_all(cluster)
    assert set(attempts(cluster).values()) == {1}
    assert cluster.answers["stop"].error is not None


@pytest.mark.parametrize("strategy", ["pipelined-region", "lazy-from-sources"])
def test_a_blocking_consumer_waits_until_all_of_its_producers_have_finished(strategy: str) -> None:
    cluster = Cluster(stages(), settings({"jobmanager.scheduling-strategy": strategy}))
    cluster.handle(contract.Started())
    assert [r.key for r in cluster.wanted.values()] == ["default/0", "default/1"]
    deployed: list[str] = []
    while cluster.ended is None:
        cluster.enabled()[0][1]()
        deployed = [m.deployment.vertex.name for m in cluster.sent(msg.DeployTask)]  # type: ignore[union-attr]
    assert deployed == ["source", "source", "count", "count", "sink"]
    assert cluster.ended.state == "FINISHED"
    cluster.settle()
    assert not any(cluster.partitions.values()), "what was read is deleted"


def test_a_streaming_job_does_not_share_one_slot_among_its_regions() -> None:
    cluster = Cluster(pipelines(2, bounded=True), settings({"slot.request.timeout": "1 s"}))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.settle_without("grant")
    assert cluster.wanted
    assert cluster.ended is None


def test_one_slot_is_enough_for_a_bounded_job_when_regions_follow_each_other() -> None:
    cluster = Cluster(pipelines(1, bounded=True, partition=BLOCKING), settings({}))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.settle_without("grant")
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"
    assert len(cluster.mail) == 1


def test_a_lost_worker_takes_its_partitions_along_and_their_producers_run_again() -> None:
    cluster = Cluster(stages(), settings(FIXED))
    cluster.handle(contract.Started())
    while not any(t.deployment.vertex.name == "count" for t in cluster.tasks.values()):
        cluster.enabled()[0][1]()
    cluster.lose(next(worker for worker, kept in cluster.partitions.items() if kept))
    cluster.run_to_end()
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"
    numbers = attempts(cluster)
    assert sorted(n for name, n in numbers.items() if name.startswith("source")) == [0, 1]
    assert {n for name, n in numbers.items() if name.startswith("count")} == {1}
    assert numbers["sink/0"] == 0, "it had not begun"


def test_a_partition_that_cannot_be_read_is_produced_again() -> None:
    cluster = Cluster(stages(), settings(FIXED))
    cluster.handle(contract.Started())
    while not any(t.deployment.vertex.name == "count" for t in cluster.tasks.values()):
        cluster.enabled()[0][1]()
    reader = next(t for t in cluster.tasks.values() if t.deployment.vertex.name == "count")
    channel = reader.deployment.gates[0].channels[1]
    lost = msg.PartitionId(channel.producer.subtask, channel.edge)
    failure = msg.TaskFailure(kind="CorruptSpill", message="bit flip", lost_partition=lost)
    cluster.report(reader, "FAILED", failure)
    cluster.run_to_end()
    numbers = attempts(cluster)
    assert (numbers["source/0"], numbers["source/1"]) == (0, 1)
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"


def test_a_job_with_blocking_exchanges_takes_no_checkpoints() -> None:
    cluster = Cluster(stages(), settings(EVERY_2_S))
    assert cluster.machine.view().checkpoints_completed == 0
    cluster.handle(contract.Started())
    cluster.run_to_end()
    assert cluster.of(contract.PrepareDirectory) == []
    assert cluster.ended is not None
    assert cluster.ended.state == "FINISHED"


def test_idle_slots_are_given_back_after_their_timeout() -> None:
    graph = pipelines(1, bounded=True, partition=BLOCKING)
    cluster = Cluster(graph, settings({"slot.idle.timeout": "7 s"}))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.grant()
    while not cluster.timers_of(contract.TimerKind.SLOT_IDLE):
        ends = [a for a in cluster.enabled() if not a[0].endswith("/0")]
        ends[0][1]()
    cluster.fire(contract.TimerKind.SLOT_IDLE)
    assert cluster.released == ["default/1"], "slice 0 has still something to do"


def test_eager_scheduling_of_a_stored_exchange_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"jobmanager.scheduling-strategy=eager.*'source' -> 'count'"):
        Cluster(stages(), settings({"jobmanager.scheduling-strategy": "eager"}))


def test_the_order_to_end_a_stuck_worker_is_said_again() -> None:
    cluster = running(pipelines(1))
    cluster.fail(cluster.task("map0", 0))
    cluster.fire(contract.TimerKind.CANCELLATION)
    assert cluster.timers_of(contract.TimerKind.CANCELLATION), "the order may be lost"
    assert len(set(cluster.sent_to(msg.ReleaseTaskManager))) == 1


def test_a_task_that_cannot_be_told_of_a_checkpoint_takes_only_its_region_along() -> None:
    cluster = running(pipelines())
    victim = cluster.where[cluster.task("sink0", 0).attempt]
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    cluster.settle_without(f"deliver {victim}")
    while not any(isinstance(send.message, msg.CheckpointCompleted) for send in cluster.mail[victim]):
        cluster.deliver(victim)
        cluster.settle_without(f"deliver {victim}")
    lost = 0
    while lost < SEND_TRIES or any(
        isinstance(s.message, msg.CheckpointCompleted) for s in cluster.mail[victim]
    ):
        cluster.drop(victim)
        lost += 1
    cluster.fire(contract.TimerKind.UNDELIVERED)
    recover_all(cluster)
    numbers = attempts(cluster)
    assert {name for name, number in numbers.items() if number} <= {n for n in numbers if n.endswith("/0")}
    assert any(numbers.values())
