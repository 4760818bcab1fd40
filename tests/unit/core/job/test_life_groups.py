"""An adaptive job with several slot sharing groups: its slots are divided over them, whichever they were
asked for."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs

from tests.unit.core.cluster import EVERY_2_S, Cluster, grouped, job_graph, pipelines, settings, stages
from unistream.core import contract
from unistream.model.graph import JobGraph
from unistream.model.resources import ResourceProfile

ADAPTIVE = {
    "jobmanager.scheduler": "adaptive",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
}
WAIT, STABLE, COOL = (contract.Timer(contract.TimerKind.RESOURCES, number) for number in range(3))
BIG = ResourceProfile(cpu_cores=2, memory_mb=1024)


def two_groups(parallelism: int = 2) -> JobGraph:
    """source in ``default``; count and sink in ``b``."""
    return grouped(job_graph(bounded=False, parallelism=parallelism), count="b", sink="b")


def started(slots: int, graph: JobGraph | None = None) -> Cluster:
    """With so many slots, each of a worker of its own."""
    cluster = Cluster(graph or two_groups(), settings(EVERY_2_S | ADAPTIVE))
    cluster.handle(contract.Started())
    for _ in range(slots):
        cluster.grant()
    settle(cluster)
    return cluster


def settle(cluster: Cluster) -> None:
    """No worker comes by itself."""
    cluster.settle_without("grant")


def running(slots: int, graph: JobGraph | None = None) -> Cluster:
    cluster = started(slots, graph)
    if STABLE in cluster.timers:
        cluster.fire(STABLE)
        settle(cluster)
    assert cluster.state == "RUNNING"
    return cluster


def lose_all(cluster: Cluster, vertex: str) -> None:
    """Every worker that has a task of it, and no other; then the job restarts with what is left."""
    workers = sorted({w for a, w in cluster.where.items() if a.vertex == by_name(cluster, vertex)})
    for worker in workers:
        cluster.lose(worker)
    settle(cluster)
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    settle(cluster)


def by_name(cluster: Cluster, name: str) -> str:
    return next(vertex.id for vertex in cluster.graph.vertices if vertex.name == name)


def widths(cluster: Cluster) -> tuple[int, ...]:
    return tuple(vertex.parallelism for vertex in cluster.machine.view().graph.vertices)


def groups_asked_for(cluster: Cluster) -> list[str]:
    return [request.group for request in cluster.wanted.values()]


def test_slots_are_asked_for_in_turn() -> None:
    cluster = Cluster(two_groups(3), settings(EVERY_2_S | ADAPTIVE))
    cluster.handle(contract.Started())
    assert groups_asked_for(cluster) == ["default", "b"] * 3
    assert [key.partition("/")[2] for key in cluster.wanted] == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("graph", "slots", "expected"),
    [
        pytest.param(two_groups(2), 2, (1, 1, 1), id="2 groups of 2 on 2"),
        pytest.param(two_groups(2), 3, (2, 1, 1), id="2 groups of 2 on 3"),
        pytest.param(two_groups(3), 3, (2, 1, 1), id="2 groups of 3 on 3"),
        pytest.param(two_groups(3), 6, (3, 3, 1), id="all there"),
        pytest.param(
            grouped(job_graph(bounded=False, parallelism=4), count="b", sink="c"),
            4,
            (2, 1, 1),
            id="3 groups on 4",
        ),
        pytest.param(
            grouped(pipelines(1), map0="b", sink0="b"), 3, (1, 1, 1), id="a forward edge between groups"
        ),
    ],
)
def test_it_starts_as_wide_as_its_slots_allow(graph: JobGraph, slots: int, expected: tuple[int, ...]) -> None:
    assert widths(running(slots, graph)) == expected


def test_all_slots_of_one_group_are_lost() -> None:
    cluster = running(4)
    assert widths(cluster) == (2, 2, 1)
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    settle(cluster)
    left = set(cluster.mail) - {w for a, w in cluster.where.items() if a.vertex == by_name(cluster, "count")}
    lose_all(cluster, "count")
    assert cluster.state == "RESTARTING", "others may come"
    cluster.fire(STABLE)
    settle(cluster)
    assert (cluster.state, widths(cluster)) == ("RUNNING", (1, 1, 1))
    assert set(cluster.where.values()) == left, "on the two that are left, each in one group"
    assert sorted(s for task in cluster.tasks.values() for s in (*task.splits, *task.done)) == [
        "s-0",
        "s-1",
        "s-2",
    ]
    assert len(cluster.wanted) == 2, "what it lacks is asked for"


def test_it_grows_again_with_whatever_comes() -> None:
    cluster = running(4)
    lose_all(cluster, "count")
    cluster.fire(STABLE)
    settle(cluster)
    cluster.grant()
    cluster.fire(COOL)
    settle(cluster)
    assert widths(cluster) == (1, 1, 1), "not all are there: more may come"
    cluster.fire(STABLE)
    settle(cluster)
    cluster.fire(STABLE)
    settle(cluster)
    assert (cluster.state, widths(cluster)) == ("RUNNING", (2, 1, 1))
    cluster.grant()
    cluster.fire(COOL)
    settle(cluster)
    assert (cluster.state, widths(cluster)) == ("RUNNING", (2, 2, 1))
    assert not cluster.wanted
    assert cluster.machine.view().restarts == 1, "growing is none"


def test_one_slot_is_not_enough_for_two_groups() -> None:
    cluster = started(1)
    assert STABLE not in cluster.timers
    cluster.fire(WAIT)
    settle(cluster)
    assert cluster.ended is not None
    assert cluster.ended.failure is not None
    assert cluster.ended.failure.message == (
        "no slot for slot sharing group(s) 'b' after 300000 ms "
        "(jobmanager.adaptive-scheduler.submission.resource-wait-timeout); 1 available slot(s) cannot "
        "give each of the 2 groups one that is big enough; start more workers"
    )


class TestProfiles:
    """``b`` needs big slots; ``default`` takes any."""

    @staticmethod
    def graph() -> JobGraph:
        return structs.replace(two_groups(), profiles={"b": BIG})

    def test_small_slots_do_not_serve_a_group_that_needs_big_ones(self) -> None:
        cluster = running(4, self.graph())
        lose_all(cluster, "count")
        assert STABLE not in cluster.timers
        cluster.fire(WAIT)
        settle(cluster)
        assert cluster.ended is not None
        assert cluster.ended.state == "FAILED"

    def test_big_slots_serve_both_and_go_back_to_who_needs_them(self) -> None:
        cluster = running(4, self.graph())
        lose_all(cluster, "source")
        cluster.fire(STABLE)
        settle(cluster)
        assert (cluster.state, widths(cluster)) == ("RUNNING", (1, 1, 1))
        assert Counter(r.profile for r in cluster.wanted.values()) == {BIG: 1, ResourceProfile(): 1}
        small = next(key for key, request in cluster.wanted.items() if request.profile != BIG)
        cluster.wanted = {small: cluster.wanted[small]}
        cluster.grant()
        cluster.fire(COOL)
        settle(cluster)
        cluster.fire(STABLE)
        settle(cluster)
        cluster.fire(STABLE)
        settle(cluster)
        assert (cluster.state, sum(widths(cluster)[:2])) == ("RUNNING", 3)


class TestRequestsThatMove:
    """A slice that got the lease of another one leaves its request to it."""

    def test_a_late_grant_is_taken(self) -> None:
        cluster = running(2)
        keys = list(cluster.wanted)
        assert len(keys) == 2
        cluster.grant()
        cluster.grant()
        assert not cluster.released
        cluster.fire(COOL)
        settle(cluster)
        assert widths(cluster) == (2, 2, 1)

    def test_a_lower_maximum_withdraws_them(self) -> None:
        cluster = running(3)
        assert len(cluster.wanted) == 1
        source, count, _ = (vertex.id for vertex in cluster.graph.vertices)
        cluster.handle(contract.RescaleRequested(request="r", parallelism={source: 1, count: 1}))
        settle(cluster)
        assert cluster.answers["r"].error is None
        assert widths(cluster) == (1, 1, 1)
        assert not cluster.wanted
        cluster.fire(contract.TimerKind.SLOT_IDLE)
        assert len(cluster.released) == 2, "the request, and the slot that it may not use"


def test_a_distrusted_slot_is_given_up_wherever_it_went() -> None:
    """Its worker refused a deployment; by the next start it is that of another slice."""
    cluster = Cluster(job_graph(bounded=False, parallelism=3), settings(EVERY_2_S | ADAPTIVE))
    cluster.handle(contract.Started())
    for _ in range(3):
        cluster.grant()
    first, _, refusing = cluster.mail
    send = cluster.mail[refusing].popleft()
    assert send.token is not None
    cluster.handle(contract.Undelivered(token=send.token, reason="no such slot", refused=True))
    cluster.lose(first)
    settle(cluster)
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    settle(cluster)
    assert not cluster.released
    cluster.fire(STABLE)
    assert cluster.released == ["default/2"]
    cluster.settle()
    assert cluster.state == "RUNNING"
    assert refusing not in cluster.where.values()


class TestBatch:
    """It has the default scheduler: its stages take turns in the slots that there are."""

    def test_it_does_not_wait_for_all_slots(self) -> None:
        cluster = Cluster(stages(), settings(ADAPTIVE))
        cluster.handle(contract.Started())
        assert not cluster.timers_of(contract.TimerKind.RESOURCES)
        assert len(cluster.wanted) == 2, "those of its first stage"
        cluster.grant()
        cluster.grant()
        settle(cluster)
        assert cluster.ended == contract.JobEnded(state="FINISHED")

    def test_a_region_fails_alone(self) -> None:
        cluster = Cluster(stages(), settings(ADAPTIVE))
        cluster.handle(contract.Started())
        cluster.settle_without("end of data")
        cluster.fail(cluster.task("source", 0))
        cluster.fire(contract.TimerKind.RESTART_DELAY)
        cluster.run_to_end()
        assert cluster.ended == contract.JobEnded(state="FINISHED")
        assert max(a.attempt.attempt for a in cluster.machine.view().attempts if a.attempt.index == 1) == 0
