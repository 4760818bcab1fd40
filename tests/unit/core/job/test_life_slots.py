"""A job's stages that wait for each other's slots: which ones they can have, and when waiting is in vain."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.core.cluster import Cluster, grouped, pipelines, settings
from unistream.base.ids import AllocationId, SubtaskId, TaskManagerId
from unistream.core import contract
from unistream.core.resource import SlotPool, missing_slots_text
from unistream.model.graph import JobGraph, JobType
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ANY_PROFILE, ResourceProfile

SMALL = ResourceProfile(memory_mb=256)
BIG = ResourceProfile(cpu_cores=1, memory_mb=1024)
ONCE = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "slot.request.timeout": "5 s",
}


def narrow(graph: JobGraph) -> JobGraph:
    vertices = tuple(structs.replace(vertex, parallelism=1) for vertex in graph.vertices)
    return structs.replace(graph, vertices=vertices)


def endless_beside_stages() -> JobGraph:
    """source0 -> map0 -> sink0 never ends, in group ``a``; source1, map1, sink1 run one after the other."""
    graph = narrow(pipelines(2, bounded=True, partition=PartitionType.BLOCKING))
    graph = grouped(graph, source0="a", map0="a", sink0="a")
    first = {vertex.id for vertex in graph.vertices if vertex.slot_sharing_group == "a"}
    vertices = tuple(
        structs.replace(vertex, source=structs.replace(vertex.source, bounded=False))
        if vertex.source is not None and vertex.id in first
        else vertex
        for vertex in graph.vertices
    )
    edges = tuple(
        structs.replace(edge, partition=PartitionType.PIPELINED_BOUNDED) if edge.source in first else edge
        for edge in graph.edges
    )
    return structs.replace(graph, vertices=vertices, edges=edges)


def two_stages(**profiles: ResourceProfile) -> JobGraph:
    """source0 in ``a``, then map0 and sink0 in ``b``, one after the other."""
    graph = narrow(pipelines(1, bounded=True, partition=PartitionType.BLOCKING))
    graph = grouped(graph, source0="a", map0="b", sink0="b")
    return structs.replace(graph, profiles=profiles, job_type=JobType.BATCH)


def grant(cluster: Cluster, group: str, worker: str, profile: ResourceProfile, *, strict: bool) -> None:
    """A slot with that profile, of a worker of its own, for the oldest request of a group."""
    key = next(key for key, request in cluster.wanted.items() if request.group == group)
    del cluster.wanted[key]
    cluster.add_worker(worker)
    cluster.handle(contract.SlotsGranted(leases=(lease(worker, key, profile, strict=strict),)))


def lease(worker: str, request: str, profile: ResourceProfile, *, strict: bool) -> contract.SlotLease:
    return contract.SlotLease(
        request=request,
        allocation=AllocationId(f"a-{worker}"),
        task_manager=TaskManagerId(worker),
        address=f"unix:{worker}",
        profile=profile,
        strict=strict,
    )


def test_a_stage_does_not_wait_for_the_slot_of_what_never_ends() -> None:
    cluster = Cluster(endless_beside_stages(), settings(ONCE))
    cluster.handle(contract.Started())
    grant(cluster, "a", "tm", ANY_PROFILE, strict=True)
    cluster.settle_without("grant")
    asked = [request for request in cluster.wanted.values() if request.group == "default"]
    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    failure = cluster.machine.view().failure
    assert failure is not None
    assert failure.message == missing_slots_text(asked, 1, 5_000)
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    cluster.settle_without("grant")
    assert cluster.ended is not None
    assert cluster.ended.state == "FAILED"


def test_stages_wait_for_each_other_as_long_as_it_takes() -> None:
    cluster = Cluster(endless_beside_stages(), settings(ONCE))
    cluster.handle(contract.Started())
    grant(cluster, "default", "tm", ANY_PROFILE, strict=True)
    while not any(task.state == "RUNNING" for task in cluster.tasks.values()):
        next(action for action in cluster.enabled() if action[0] != "grant")[1]()
    for _ in range(3):
        cluster.fire(contract.TimerKind.SLOT_REQUEST)
    assert cluster.machine.view().failure is None, "source1 has an end, and its slot is enough for the others"


@pytest.mark.parametrize(
    ("first", "second", "slot", "strict", "serves"),
    [
        pytest.param(BIG, BIG, BIG, True, True, id="equal ones"),
        pytest.param(BIG, SMALL, BIG, True, True, id="more than enough"),
        pytest.param(BIG, ANY_PROFILE, BIG, True, True, id="any will do"),
        pytest.param(SMALL, BIG, SMALL, True, False, id="too small"),
        pytest.param(ANY_PROFILE, BIG, ANY_PROFILE, True, False, id="unspecified, and made to measure"),
        pytest.param(
            ANY_PROFILE,
            BIG,
            ANY_PROFILE,
            False,
            True,
            id="unspecified, of a worker that registered by itself",
        ),
    ],
)
def test_a_stage_has_the_slot_of_the_one_before_if_it_is_big_enough(
    first: ResourceProfile, second: ResourceProfile, slot: ResourceProfile, strict: bool, serves: bool
) -> None:
    cluster = Cluster(two_stages(a=first, b=second), settings(ONCE))
    cluster.handle(contract.Started())
    grant(cluster, "a", "tm", slot, strict=strict)
    cluster.settle_without("grant")
    if serves:
        assert cluster.ended is not None
        assert cluster.ended.state == "FINISHED"
        sent = [
            request.group for command in cluster.of(contract.RequestSlots) for request in command.requests
        ]
        assert sent == ["a"], "no worker is started for the second"
        return
    assert [request.group for request in cluster.wanted.values()] == ["b"]
    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    failure = cluster.machine.view().failure
    assert failure is not None
    assert "1 slot of slot sharing group 'b' with 1 cpu core" in failure.message


def test_it_is_said_why_a_worker_did_not_come_up() -> None:
    cluster = Cluster(narrow(pipelines(1)), settings(ONCE))
    cluster.handle(contract.Started())
    asked = list(cluster.wanted.values())
    for reason in ("exited with code 1", "exited with code 2"):
        cluster.handle(contract.TaskManagerLost(task_manager=TaskManagerId("never"), reason=reason))
    assert cluster.machine.view().failure is None, "others may come up yet"
    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    failure = cluster.machine.view().failure
    assert failure is not None
    assert failure.message == missing_slots_text(asked, 1, 5_000, "exited with code 2")
    assert failure.message.endswith("but failed: exited with code 2")
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.grant()
    cluster.settle()
    assert cluster.state == "RUNNING"
    cluster.lose("tm0")
    cluster.settle_without("grant")
    assert cluster.ended is not None
    assert cluster.ended.failure is not None
    assert "but failed: " not in cluster.ended.failure.message, "that is over"


def test_workers_that_fail_to_come_up_again_and_again_are_in_the_exceptions_and_few_times() -> None:
    cluster = Cluster(narrow(pipelines(1)), settings())
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.settle()
    cluster.lose("tm0")
    recorded = len(cluster.of(contract.RecordException))
    for number in range(20):
        worker = TaskManagerId(f"never-{number}")
        cluster.handle(contract.TaskManagerLost(task_manager=worker, reason=f"exited with code {number}"))
    failures = [command.failure for command in cluster.of(contract.RecordException)[recorded:]]
    assert [failure.message.split(";")[0] for failure in failures] == [
        f"{count} worker(s) in a row failed to start" for count in (1, 2, 4, 8, 16)
    ]
    assert failures[2].message.endswith("the latest, never-3: exited with code 3")
    assert {failure.kind for failure in failures} == {"TaskManagerNotStarted"}
    assert cluster.state == "RESTARTING"
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.grant()
    cluster.settle()
    recorded = len(cluster.of(contract.RecordException))
    cluster.handle(contract.TaskManagerLost(task_manager=TaskManagerId("later"), reason="exited"))
    assert len(cluster.of(contract.RecordException)) == recorded, "it waits for none"
    cluster.lose(next(iter(cluster.mail)))
    cluster.handle(contract.TaskManagerLost(task_manager=TaskManagerId("last"), reason="exited"))
    assert "1 worker(s) in a row" in cluster.of(contract.RecordException)[-1].failure.message, (
        "one came up meanwhile"
    )


def test_what_was_lost_with_its_worker_is_asked_for_at_its_former_age() -> None:
    cluster = Cluster(narrow(pipelines(1)), settings(ONCE))
    cluster.handle(contract.Started())
    cluster.grant()
    cluster.settle()
    cluster.lose("tm0")
    (again,) = cluster.wanted.values()
    assert (again.key, again.replaces) == ("default/0:2", "default/0")
    cluster.settle()
    cluster.lose("tm1")
    (third,) = cluster.wanted.values()
    assert (third.key, third.replaces) == ("default/0:3", "default/0:2")


def test_regions_that_wait_for_each_others_slots_do_not_wait_for_ever() -> None:
    """Each has one of two; no other slot ever comes."""
    graph = narrow(pipelines(2, bounded=True))
    edges = tuple(
        structs.replace(
            edge,
            partition=PartitionType.BLOCKING
            if "sink" in graph.vertex(edge.target).name
            else PartitionType.PIPELINED_BOUNDED,
        )
        for edge in graph.edges
    )
    graph = structs.replace(graph, edges=edges)
    graph = grouped(graph, source0="a", map0="b", source1="c", map1="d", sink0="b", sink1="d")
    cluster = Cluster(graph, settings({**ONCE, "restart-strategy.fixed-delay.attempts": "5"}))
    cluster.handle(contract.Started())
    grant(cluster, "a", "one", ANY_PROFILE, strict=True)
    grant(cluster, "c", "two", ANY_PROFILE, strict=True)
    cluster.settle_without("grant")
    assert not cluster.tasks
    cluster.fire(contract.TimerKind.SLOT_REQUEST)
    assert cluster.released == ["a/0"], "the longest waiting job gets it"
    grant(cluster, "d", "one-again", ANY_PROFILE, strict=True)
    cluster.settle_without("grant")
    assert {task.deployment.vertex.name for task in cluster.tasks.values()} | {
        cluster.graph.vertex(attempt.vertex).name for attempt in cluster.finished
    } >= {"source1", "map1"}


def test_a_slot_that_was_used_again_is_idle_from_then_on() -> None:
    graph = two_stages()
    pool = SlotPool(graph, 7_000)
    source = SubtaskId(graph.vertices[0].id, 0)
    (request,) = pool.require([source])
    pool.grant([lease("tm", request.key, ANY_PROFILE, strict=True)])
    none: frozenset[tuple[str, int]] = frozenset()
    assert pool.release_idle(none, 0) == ((), 7_000)
    pool.used([source])
    assert pool.release_idle(none, 6_000) == ((), 7_000), "from 6 s on"
    assert pool.release_idle(none, 13_000) == ((request.key,), None)
