"""Tasks move from workers that are drained, and the job loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, grouped, job_graph, pipelines, settings, stages
from unistream.base.ids import CheckpointId, TaskManagerId
from unistream.core import contract
from unistream.core.job.moving import MoveState
from unistream.model import messages as msg
from unistream.model.graph import JobType
from unistream.model.snapshot_kind import SnapshotKind

CONFIG = EVERY_2_S | {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "9"}
ADAPTIVE = {"jobmanager.scheduler": "adaptive"}


def running(config: dict[str, str] | None = None, graph: Any = None) -> Cluster:
    cluster = Cluster(graph or job_graph(bounded=False), settings(CONFIG | (config or {})))
    cluster.handle(contract.Started())
    cluster.settle()
    assert cluster.state == "RUNNING"
    return cluster


def begun(config: dict[str, str] | None = None) -> tuple[Cluster, str]:
    """A job whose worker is drained, and that has another slot: its checkpoint is under way."""
    cluster = running(config)
    worker = worker_of(cluster, "count", 0)
    cluster.drain(worker)
    cluster.grant()
    assert move_of(cluster) is MoveState.CHECKPOINT
    return cluster, worker


def worker_of(cluster: Cluster, vertex: str, index: int) -> str:
    return cluster.where[cluster.task(vertex, index).attempt]


def move_of(cluster: Cluster) -> MoveState:
    return cluster.machine._life.moving.state


def moved(cluster: Cluster) -> bool:
    return not cluster.draining and cluster.state == "RUNNING"


@pytest.mark.parametrize("config", [{}, ADAPTIVE], ids=["default", "adaptive"])
def test_its_tasks_restart_elsewhere_from_a_checkpoint_taken_for_that(config: dict[str, str]) -> None:
    cluster = running(config)
    worker, checkpoints = worker_of(cluster, "count", 0), len(cluster.stored)
    cluster.drain(worker)
    assert len(cluster.wanted) == 1, "one slot for the one that is left"
    cluster.settle()
    assert moved(cluster)
    assert worker not in cluster.mail
    assert len(cluster.stored) > checkpoints
    assert cluster.task("count", 0).deployment.restore is not None
    assert cluster.machine.view().checkpoints_restored == 1
    assert cluster.machine.view().restarts == 0, "nothing has failed"
    assert [c for c in cluster.commands if isinstance(c, contract.RecordException)] == []


def test_only_what_runs_with_them_restarts() -> None:
    cluster = running(graph=grouped(pipelines(2), source0="a", map0="a", sink0="a"))
    other = cluster.task("map1", 0).attempt
    cluster.drain(worker_of(cluster, "map0", 0))
    cluster.settle()
    assert moved(cluster)
    assert cluster.task("map0", 0).attempt.attempt == 1
    assert cluster.task("map1", 0).attempt == other


def test_it_runs_on_until_there_are_slots() -> None:
    cluster = running()
    attempts = set(cluster.tasks)
    cluster.drain(worker_of(cluster, "count", 0))
    cluster.settle_without("grant")
    assert set(cluster.tasks) == attempts
    assert cluster.state == "RUNNING"
    cluster.settle()
    assert moved(cluster)


def test_told_twice_it_moves_once() -> None:
    cluster, worker = begun()
    cluster.drain(worker)
    cluster.settle()
    cluster.handle(contract.TaskManagerDraining(task_manager=TaskManagerId(worker)))
    cluster.settle()
    assert moved(cluster)
    assert cluster.task("count", 0).attempt.attempt == 1


def test_two_at_once_move_together() -> None:
    cluster = running()
    workers = {worker_of(cluster, "count", index) for index in (0, 1)}
    assert len(workers) == 2
    for worker in workers:
        cluster.drain(worker)
    cluster.settle()
    assert moved(cluster)
    assert not workers & set(cluster.mail)
    assert cluster.task("count", 0).attempt.attempt == 1, "one restart for both"


def test_a_checkpoint_that_is_under_way_is_not_in_the_way() -> None:
    cluster = running()
    cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
    cluster.drain(worker_of(cluster, "count", 0))
    cluster.settle()
    assert moved(cluster)


def test_a_savepoint_meanwhile_is_answered() -> None:
    cluster, _ = begun()
    cluster.handle(contract.SnapshotRequest(id="s", kind=SnapshotKind.SAVEPOINT, target="sp"))
    cluster.settle()
    assert moved(cluster)
    assert "s" in cluster.answers


def _lose_drained(cluster: Cluster, worker: str) -> None:
    cluster.lose(worker)


def _lose_target(cluster: Cluster, _worker: str) -> None:
    cluster.lose(list(cluster.mail)[-1])


def _fail_task(cluster: Cluster, _worker: str) -> None:
    cluster.fail(cluster.task("count", 1))


def _decline(cluster: Cluster, _worker: str) -> None:
    cluster.settle_without("ack")
    attempt, number = next((t.attempt, n) for t in cluster.tasks.values() for n in t.to_ack)
    cluster.handle(msg.CheckpointDeclined(attempt=attempt, checkpoint_id=CheckpointId(number), reason="full"))


def _expire(cluster: Cluster, _worker: str) -> None:
    cluster.settle_without("ack")
    cluster.fire(contract.TimerKind.CHECKPOINT_TIMEOUT)


def _rescale(cluster: Cluster, _worker: str) -> None:
    count = next(v.id for v in cluster.graph.vertices if v.name == "count")
    cluster.handle(contract.RescaleRequested(request="wider", parallelism={count: 3}))


@pytest.mark.parametrize("config", [{}, ADAPTIVE], ids=["default", "adaptive"])
@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(_lose_drained, id="the worker is killed"),
        pytest.param(_lose_target, id="the worker of the new slot is killed"),
        pytest.param(_fail_task, id="a task fails"),
        pytest.param(_decline, id="the checkpoint is declined"),
        pytest.param(_expire, id="the checkpoint expires"),
        pytest.param(_rescale, id="the job is rescaled"),
    ],
)
def test_what_happens_meanwhile(happens: Callable[[Cluster, str], None], config: dict[str, str]) -> None:
    cluster, worker = begun(config | {"execution.checkpointing.tolerable-failed-checkpoints": "3"})
    happens(cluster, worker)
    for _ in range(3):
        cluster.settle()
        for timer in cluster.timers_of(contract.TimerKind.RESTART_DELAY):
            cluster.fire(timer)
    for timer in cluster.timers_of(contract.TimerKind.RESOURCES):
        cluster.fire(timer)
    cluster.settle()
    assert moved(cluster)
    assert worker not in cluster.mail


def test_a_job_that_is_cancelled_meanwhile_ends() -> None:
    cluster, _ = begun()
    cluster.handle(contract.CancelRequested())
    cluster.settle()
    assert cluster.ended == contract.JobEnded(state="CANCELED")


def test_a_stop_wins() -> None:
    cluster, _ = begun()
    cluster.handle(contract.SnapshotRequest(id="s", kind=SnapshotKind.SUSPEND, target="sp"))
    cluster.settle()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.answers["s"].error is None


def test_tasks_of_a_batch_job_end_where_they_run_and_what_they_stored_is_read_there() -> None:
    cluster = Cluster(stages(job_type=JobType.BATCH), settings())
    cluster.handle(contract.Started())
    cluster.settle_without("finish")
    sources = {attempt for attempt in cluster.tasks if cluster.tasks[attempt].is_source}
    drained = [cluster.where[attempt] for attempt in sources]
    for worker in drained:
        cluster.drain(worker)
    cluster.settle_without("finish")
    assert sources <= set(cluster.tasks), "they run on"
    while any(attempt in cluster.tasks for attempt in sources):
        next(act for name, act in cluster.enabled() if name.startswith("finish"))()
    assert set(drained) <= set(cluster.mail), "what they have stored is needed"
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.machine.view().restarts == 0
    assert all(number == 0 for number in (a.attempt.attempt for a in cluster.machine.view().attempts))


def test_what_a_drained_worker_has_stored_is_computed_again_if_it_is_lost() -> None:
    cluster = Cluster(stages(job_type=JobType.BATCH), settings(CONFIG))
    cluster.handle(contract.Started())
    while not any(cluster.partitions.values()):
        cluster.enabled()[0][1]()
    worker = next(worker for worker, stored in cluster.partitions.items() if stored)
    cluster.drain(worker)
    if worker in cluster.mail:
        cluster.lose(worker)
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")


def test_what_waits_for_slots_gets_none_there() -> None:
    cluster = Cluster(job_graph(bounded=False), settings(CONFIG))
    cluster.handle(contract.Started())
    cluster.grant()
    (worker,) = cluster.mail
    cluster.drain(worker)
    assert worker not in cluster.mail, "nothing ran there: its lease was returned"
    cluster.settle()
    assert cluster.state == "RUNNING"


def test_a_worker_without_slots_of_the_job_changes_nothing() -> None:
    cluster = running()
    before = len(cluster.commands)
    cluster.handle(contract.TaskManagerDraining(task_manager=TaskManagerId("stranger")))
    assert cluster.commands[before:] == []
