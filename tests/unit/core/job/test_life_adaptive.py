"""A job's parallelism changes: because a user says so, or because slots come and go."""

from __future__ import annotations

import re

import pytest

from tests.unit.core.cluster import (
    EVERY_2_S,
    Cluster,
    enriched,
    job_graph,
    pipelines,
    restored_items,
    settings,
)
from unistream.base.ids import TaskManagerId, VertexId
from unistream.core import contract
from unistream.model import messages as msg
from unistream.model.graph import JobGraph
from unistream.model.snapshot_kind import SnapshotKind

FIXED = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100"}
WAIT, STABLE, COOL = (contract.Timer(contract.TimerKind.RESOURCES, number) for number in range(3))
SLOTS = contract.Timer(contract.TimerKind.SLOT_REQUEST, -1)


def running(graph: JobGraph | None = None, **config: str) -> Cluster:
    cluster = Cluster(graph or job_graph(bounded=False), settings(EVERY_2_S | FIXED | config))
    cluster.handle(contract.Started())
    cluster.settle()
    assert cluster.state == "RUNNING"
    return cluster


def widths(cluster: Cluster) -> tuple[int, ...]:
    return tuple(vertex.parallelism for vertex in cluster.machine.view().graph.vertices)


def ask(cluster: Cluster, name: str = "r", **parallelism: int) -> None:
    by_name = {vertex.name: vertex.id for vertex in cluster.graph.vertices}
    wanted = {by_name.get(vertex, VertexId(vertex)): width for vertex, width in parallelism.items()}
    cluster.handle(contract.RescaleRequested(request=name, parallelism=wanted))


def rescale(cluster: Cluster, name: str = "r", **parallelism: int) -> str | None:
    """The error; None: it is done."""
    ask(cluster, name, **parallelism)
    cluster.settle()
    return cluster.answers[name].error


def numbers(cluster: Cluster) -> dict[str, int]:
    names = {vertex.id: vertex.name for vertex in cluster.graph.vertices}
    views = cluster.machine.view().attempts
    return {f"{names[v.attempt.vertex]}/{v.attempt.index}": v.attempt.attempt for v in views}


def splits(cluster: Cluster) -> list[str]:
    return sorted(split for task in cluster.tasks.values() for split in (*task.splits, *task.done))


class TestOnRequest:
    def test_wider_and_narrower_every_split_once_and_attempts_grow(self) -> None:
        cluster = running()
        assert rescale(cluster, "a", source=3, count=3) is None
        assert (widths(cluster), cluster.state) == ((3, 3, 1), "RUNNING")
        assert splits(cluster) == ["s-0", "s-1", "s-2"]
        assert rescale(cluster, "b", source=1, count=1) is None
        assert splits(cluster) == ["s-0", "s-1", "s-2"]
        assert numbers(cluster) == {"source/0": 2, "count/0": 2, "sink/0": 2}
        assert rescale(cluster, "c", source=3) is None
        assert numbers(cluster)["source/2"] == 1, "a number is never used twice"
        assert cluster.machine.view().restarts == 0
        assert not cluster.of(contract.RecordException)
        recorded = [c.graph.vertices[0].parallelism for c in cluster.of(contract.RecordGraph)]
        assert recorded == [3, 1, 3]

    def test_it_starts_from_a_checkpoint_made_for_it(self) -> None:
        cluster = running()
        assert list(cluster.stored) == ["chk-1"]
        assert rescale(cluster, source=1) is None
        restore = cluster.task("source", 0).deployment.restore
        assert restore is not None
        assert restore.checkpoint_id == 2
        assert sorted(restored_items(restore)) == ["done:s-0", "done:s-1", "done:s-2"]

    def test_slots_that_are_not_needed_any_more_go_back(self) -> None:
        cluster = running()
        rescale(cluster, source=1, count=1)
        assert not cluster.released
        cluster.fire(contract.TimerKind.SLOT_IDLE)
        assert cluster.released == ["default/1"]

    def test_what_it_has_already_is_answered_at_once(self) -> None:
        cluster = running()
        ask(cluster, source=2)
        assert cluster.answers["r"].path == ""
        assert numbers(cluster)["source/0"] == 0

    def test_a_repeated_request_is_one(self) -> None:
        cluster = running()
        ask(cluster, source=3)
        ask(cluster, source=3)
        cluster.settle()
        assert cluster.answers["r"].error is None
        assert numbers(cluster)["source/0"] == 1

    @pytest.mark.parametrize(
        ("parallelism", "text"),
        [({"x": 2}, "has no vertex 'x'"), ({"count": 129}, "above max parallelism 128"), ({"count": 0}, "1")],
    )
    def test_what_cannot_be(self, parallelism: dict[str, int], text: str) -> None:
        cluster = running()
        assert text in (rescale(cluster, **parallelism) or "")
        assert (cluster.state, widths(cluster)) == ("RUNNING", (2, 2, 1))

    def test_one_at_a_time(self) -> None:
        cluster = running()
        ask(cluster, "a", source=3)
        ask(cluster, "b", source=1)
        assert cluster.answers["b"].error == "the job is already being rescaled"
        cluster.settle()
        assert (cluster.answers["a"].error, widths(cluster)) == (None, (3, 2, 1))

    def test_not_while_it_restarts(self) -> None:
        cluster = running()
        cluster.fail(cluster.task("count", 0))
        ask(cluster, source=3)
        assert "not all tasks are running" in (cluster.answers["r"].error or "")

    def test_not_after_its_end(self) -> None:
        cluster = running()
        cluster.handle(contract.CancelRequested())
        cluster.settle()
        ask(cluster, source=3)
        assert cluster.answers["r"].error == "the job has ended: CANCELED"

    def test_a_cancel_in_the_middle_answers_it(self) -> None:
        cluster = running()
        ask(cluster, source=1)
        cluster.handle(contract.CancelRequested())
        cluster.settle()
        assert cluster.answers["r"].error == "the job was not rescaled: the job was cancelled"

    def test_a_stop_that_is_under_way_wins(self) -> None:
        cluster = running()
        cluster.handle(contract.SnapshotRequest(id="stop", kind=SnapshotKind.SUSPEND))
        assert "the job is being stopped already" in (rescale(cluster, source=1) or "")
        assert cluster.ended is not None
        assert cluster.answers["stop"].path is not None


class TestFailuresOnTheWay:
    def test_while_the_checkpoint_is_taken_it_is_given_up(self) -> None:
        cluster = running()
        ask(cluster, source=1)
        cluster.fail(cluster.task("count", 0))
        assert "the checkpoint for it failed" in (cluster.answers["r"].error or "")
        cluster.settle()
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle()
        assert (cluster.state, widths(cluster)) == ("RUNNING", (2, 2, 1))
        assert rescale(cluster, "again", source=1) is None

    def test_when_its_manifest_cannot_be_written(self) -> None:
        cluster = running()
        ask(cluster, source=1)
        cluster.settle_without("io WriteManifest")
        job = next(job for job in cluster.jobs if isinstance(job, contract.WriteManifest))
        cluster.jobs.remove(job)
        failed = contract.ManifestFailed(checkpoint_id=job.manifest.checkpoint_id, reason="disk full")
        cluster.handle(failed)
        assert re.search(
            "not rescaled: the checkpoint for it failed.*disk full", cluster.answers["r"].error or ""
        )
        cluster.settle()
        assert widths(cluster) == (2, 2, 1)

    def test_a_worker_lost_while_tasks_end(self) -> None:
        cluster = running()
        ask(cluster, source=3, count=3)
        cluster.settle_without("cancelled")
        assert cluster.state == "RESTARTING"
        cluster.lose(cluster.where[cluster.task("count", 1).attempt])
        cluster.settle()
        assert (cluster.answers["r"].error, widths(cluster), cluster.state) == (None, (3, 3, 1), "RUNNING")
        assert splits(cluster) == ["s-0", "s-1", "s-2"]

    def test_a_task_that_fails_in_the_new_graph(self) -> None:
        cluster = running()
        ask(cluster, source=3, count=3)
        while not any(attempt.attempt == 1 for attempt in cluster.tasks):
            cluster.enabled()[0][1]()
        cluster.fail(next(task for task in cluster.tasks.values() if task.attempt.attempt == 1))
        assert "r" not in cluster.answers
        cluster.settle()
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.settle()
        assert (cluster.answers["r"].error, widths(cluster), cluster.state) == (None, (3, 3, 1), "RUNNING")


class TestSlotsOfAWiderJob:
    """It goes on running until they are there."""

    def test_its_tasks_run_meanwhile(self) -> None:
        cluster = running()
        ask(cluster, source=3)
        assert len(cluster.wanted) == 1
        cluster.settle_without("grant")
        assert (cluster.state, set(numbers(cluster).values())) == ("RUNNING", {0})
        assert cluster.timers[SLOTS] > 0
        cluster.settle()
        assert widths(cluster) == (3, 2, 1)
        assert SLOTS not in cluster.timers

    def test_none_in_time(self) -> None:
        cluster = running()
        ask(cluster, source=3)
        cluster.settle_without("grant")
        cluster.fire(SLOTS)
        error = cluster.answers["r"].error or ""
        assert "the job was not rescaled: 1 of 3 slots are missing after" in error
        assert not cluster.wanted, "they are not asked for any more"
        assert (cluster.state, set(numbers(cluster).values())) == ("RUNNING", {0})
        assert rescale(cluster, "again", source=1) is None

    def test_no_worker_is_big_enough(self) -> None:
        cluster = running()
        ask(cluster, source=3)
        requests = tuple(cluster.wanted)
        cluster.wanted.clear()
        cluster.handle(contract.SlotsUnfulfillable(requests=requests, reason="too big", permanent=True))
        assert cluster.answers["r"].error == "the job was not rescaled: too big"
        assert cluster.state == "RUNNING"

    def test_the_job_fails_meanwhile(self) -> None:
        cluster = running()
        ask(cluster, source=3)
        cluster.settle_without("grant")
        cluster.fail(cluster.task("count", 0))
        assert cluster.answers["r"].error == "the job was not rescaled: boom"
        assert SLOTS not in cluster.timers

    def test_some_come_and_go_again(self) -> None:
        cluster = running(pipelines(1))
        ask(cluster, source0=4)
        cluster.grant()
        spare = next(worker for worker in cluster.mail if worker not in cluster.where.values())
        cluster.lose(spare)
        assert len(cluster.wanted) == 2, "another is asked for"
        cluster.settle()
        assert (cluster.answers["r"].error, widths(cluster)) == (None, (4, 4, 4))

    def test_those_that_are_idle_meanwhile_are_kept_for_it(self) -> None:
        cluster = running()
        assert rescale(cluster, "a", source=1, count=1) is None
        ask(cluster, "b", source=4)
        cluster.fire(contract.TimerKind.SLOT_IDLE)
        assert not cluster.released, "the second slot has nothing to do, but the change needs it"
        cluster.settle()
        assert (cluster.answers["b"].error, widths(cluster)) == (None, (4, 1, 1))

    def test_those_that_are_idle_go_back_when_it_is_given_up(self) -> None:
        cluster = running()
        ask(cluster, source=4)
        cluster.grant()
        cluster.fire(SLOTS)
        assert "1 of 4 slots are missing" in (cluster.answers["r"].error or "")
        cluster.fire(contract.TimerKind.SLOT_IDLE)
        assert cluster.released == ["default/3", "default/2"], "what was asked for, and what had come"


def adaptive(slots: int, parallelism: int = 3, **config: str) -> Cluster:
    """Started with so many slots; more are asked for."""
    graph = job_graph(bounded=False, parallelism=parallelism)
    cluster = Cluster(graph, settings(EVERY_2_S | FIXED | {"jobmanager.scheduler": "adaptive"} | config))
    cluster.handle(contract.Started())
    for _ in range(slots):
        cluster.grant()
    cluster.settle_without("grant")
    return cluster


def settle(cluster: Cluster) -> None:
    """No worker comes by itself."""
    cluster.settle_without("grant")


def recover(cluster: Cluster) -> None:
    settle(cluster)
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    settle(cluster)


class TestAdaptive:
    def test_starts_with_what_there_is(self) -> None:
        cluster = adaptive(2)
        assert cluster.state == "CREATED"
        cluster.fire(STABLE)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", (2, 2, 1))
        wanted = cluster.machine.view().wanted
        assert wanted is not None
        assert wanted.vertices[0].parallelism == 3

    def test_grows_when_a_worker_comes_and_never_above_its_maximum(self) -> None:
        cluster = adaptive(2)
        cluster.fire(STABLE)
        settle(cluster)
        cluster.grant()
        settle(cluster)
        assert widths(cluster) == (2, 2, 1), "it has just started"
        cluster.fire(COOL)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", (3, 3, 1))
        assert splits(cluster) == ["s-0", "s-1", "s-2"]
        assert cluster.machine.view().restarts == 0
        assert not cluster.wanted, "no more is asked for"

    def test_shrinks_when_a_worker_is_lost_and_not_replaced(self) -> None:
        cluster = adaptive(3)
        settle(cluster)
        assert widths(cluster) == (3, 3, 1)
        cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
        settle(cluster)
        cluster.lose(cluster.where[cluster.task("source", 1).attempt])
        recover(cluster)
        assert cluster.state == "RESTARTING", "a replacement may come"
        cluster.fire(STABLE)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", (2, 2, 1))
        assert splits(cluster) == ["s-0", "s-1", "s-2"]
        assert cluster.machine.view().restarts == 1

    def test_stored_output_that_is_lost_while_it_waits_for_slots_is_no_failure(self) -> None:
        graph = enriched(parallelism=2)
        cluster = Cluster(graph, settings(FIXED | {"jobmanager.scheduler": "adaptive"}))
        cluster.handle(contract.Started())
        cluster.settle()
        first, second = (cluster.where[cluster.task("facts", index).attempt] for index in (0, 1))
        cluster.lose(first)
        recover(cluster)
        restarts = cluster.machine.view().restarts
        cluster.lose(second)  # has stored rows of the table; nothing runs, and all starts again
        assert cluster.machine.view().restarts == restarts
        cluster.settle()
        assert cluster.state == "RUNNING"
        assert not cluster.timers_of(contract.TimerKind.RESTART_DELAY)

    def test_fails_without_any_slot(self) -> None:
        cluster = adaptive(0)
        cluster.fire(WAIT)
        settle(cluster)
        assert cluster.ended is not None
        assert cluster.ended.state == "FAILED"
        assert cluster.ended.failure is not None
        assert "no slot for slot sharing" in cluster.ended.failure.message

    def test_says_why_the_worker_did_not_come_that_was_started(self) -> None:
        cluster = adaptive(0)
        cluster.handle(
            contract.TaskManagerLost(task_manager=TaskManagerId("new"), reason="no space left on device")
        )
        cluster.fire(WAIT)
        settle(cluster)
        assert cluster.ended is not None
        assert cluster.ended.failure is not None
        assert cluster.ended.failure.message == (
            "no slot for slot sharing group(s) 'default' after 300000 ms "
            "(jobmanager.adaptive-scheduler.submission.resource-wait-timeout); a worker was started but "
            "failed: no space left on device"
        )

    @pytest.mark.parametrize("permanent", [False, True])
    def test_requests_that_nobody_can_serve(self, permanent: bool) -> None:
        cluster = adaptive(1)
        requests = tuple(cluster.wanted)
        cluster.wanted.clear()
        cluster.handle(contract.SlotsUnfulfillable(requests=requests, reason="too big", permanent=permanent))
        settle(cluster)
        if permanent:
            assert cluster.ended is not None
            return
        cluster.fire(STABLE)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", (1, 1, 1))

    def test_a_user_lowers_and_raises_its_maximum(self) -> None:
        cluster = adaptive(3)
        ask(cluster, "a", source=1, count=1)
        settle(cluster)
        assert (cluster.answers["a"].error, widths(cluster)) == (None, (1, 1, 1))
        cluster.fire(contract.TimerKind.SLOT_IDLE)
        assert len(cluster.released) == 2, "what it may not use goes back"
        ask(cluster, "b", source=2, count=2)
        settle(cluster)
        assert "b" not in cluster.answers
        cluster.grant()
        settle(cluster)
        assert (cluster.answers["b"].error, widths(cluster)) == (None, (2, 2, 1))

    def test_a_lower_maximum_withdraws_what_is_asked_for(self) -> None:
        cluster = adaptive(2)
        cluster.fire(STABLE)
        settle(cluster)
        assert len(cluster.wanted) == 1
        ask(cluster, source=2, count=2)
        settle(cluster)
        assert cluster.answers["r"].error is None
        assert not cluster.wanted

    def test_a_failed_checkpoint_before_it_grows_waits_for_the_next_cool_down(self) -> None:
        cluster = adaptive(2)
        cluster.fire(STABLE)
        settle(cluster)
        cluster.grant()
        cluster.fire(COOL)
        while not any(task.to_ack for task in cluster.tasks.values()):
            cluster.enabled()[0][1]()
        task = next(task for task in cluster.tasks.values() if task.to_ack)
        n = next(iter(task.to_ack))
        cluster.handle(msg.CheckpointDeclined(attempt=task.attempt, checkpoint_id=n, reason="full"))
        assert COOL in cluster.timers

    def test_its_end_leaves_no_timer(self) -> None:
        cluster = adaptive(2)
        cluster.fire(STABLE)
        settle(cluster)
        cluster.grant()
        cluster.fire(COOL)  # it begins to grow
        cluster.handle(contract.CancelRequested())
        settle(cluster)
        assert cluster.ended is not None
        assert not cluster.timers_of(contract.TimerKind.RESOURCES)

    def test_a_failure_while_it_waits_for_slots_begins_the_wait_again(self) -> None:
        cluster = adaptive(1)
        cluster.fire(STABLE)
        settle(cluster)
        cluster.fail(cluster.task("count", 0))
        recover(cluster)
        assert (cluster.state, cluster.tasks) == ("RESTARTING", {}), "it waits for more slots"
        failure = msg.TaskFailure(kind="Boom", message="of the whole job, from whatever was under way")
        cluster.machine._life.fail(failure, None)
        cluster.handle(
            contract.Delivered(token=-1)
        )  # of nothing: what follows from the failure is taken along
        assert cluster.machine.view().restarts == 2
        for kind in (contract.TimerKind.RESTART_DELAY, contract.TimerKind.RESOURCES) * 2:
            for timer in cluster.timers_of(kind):
                if timer not in (WAIT, COOL) and timer in cluster.timers:
                    cluster.fire(timer)
                    settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", (1, 1, 1))
