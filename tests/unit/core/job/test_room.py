"""A change of parallelism whose state is sure not to fit into a slot is refused, with the number."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from tests.unit.core.cluster import EVERY_2_S, Cluster, Task, job_graph, settings
from tests.unit.core.running import FIXED
from unistream.base.ids import CheckpointId, JobId, OperatorUid, SubtaskId
from unistream.base.limits import MIB
from unistream.core import contract
from unistream.core.job.room import why_no_room
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobGraph
from unistream.model.keyed_snapshot import StateKind
from unistream.model.resources import ResourceProfile
from unistream.model.snapshot import (
    KeyedHandle,
    KeyedShare,
    OperatorRestore,
    OperatorStateHandle,
    TaskRestore,
    TaskSnapshot,
)

VALUE, TIMERS, TABLE = StateKind.VALUE, StateKind.TIMERS, StateKind.TABLE
ROOM_MB = 10


def table(groups: tuple[int, ...], mib: int, kind: StateKind = VALUE) -> KeyedHandle:
    """`mib` for each key group."""
    size = len(groups) * mib * MIB
    return KeyedHandle(
        name="state",
        file=FileRef(path="state", size=size, sha256=""),
        key_groups=groups,
        rows=1,
        kind=kind,
        offsets=tuple(range(0, size + 1, mib * MIB)),
    )


def restores(graph: JobGraph, kind: StateKind, *mib: int) -> dict[SubtaskId, TaskRestore]:
    """The subtasks of `count` with that much each, of a table that has more."""
    found = {}
    for index, size in enumerate(mib):
        share = KeyedShare(handle=table(tuple(range(size + 5)), 1, kind), start=2, stop=2 + size)
        state = {OperatorUid("count"): OperatorRestore(keyed=(share,))}
        found[SubtaskId(graph.vertices[1].id, index)] = TaskRestore(
            root="", checkpoint_id=CheckpointId(1), job=JobId("job"), operators=state
        )
    return found


@pytest.mark.parametrize(
    ("mib", "kind", "room_mb", "backend", "refused"),
    [
        pytest.param((4, 10), VALUE, ROOM_MB, "hashmap", None, id="each has as much as a slot has"),
        pytest.param(
            (4, 11), VALUE, ROOM_MB, "hashmap", r"subtask 2 .*count.* 11 mb .* 10 mb", id="one more"
        ),
        pytest.param((30, 1), VALUE, ROOM_MB, "hashmap", r"subtask 1 of .* 30 mb", id="much more"),
        pytest.param((30, 1), VALUE, ROOM_MB, "rocksdb", None, id="it would be on a disk"),
        pytest.param((30, 1), TABLE, ROOM_MB, "hashmap", None, id="an operator's own table may spill"),
        pytest.param((30, 1), TIMERS, ROOM_MB, "hashmap", None, id="timers may spill"),
        pytest.param((30, 1), VALUE, 0, "hashmap", None, id="nobody knows how much a slot has"),
    ],
)
def test_what_is_sure_not_to_fit(
    mib: tuple[int, int], kind: StateKind, room_mb: int, backend: str, refused: str | None
) -> None:
    graph = structs.replace(job_graph(), config={"state.backend.type": backend})
    why = why_no_room(graph, restores(graph, kind, *mib), {"default": room_mb})
    assert (why is None) if refused is None else re.search(refused, why or "")


class Heavy(Cluster):
    """Each subtask of `count` stores `mib`; workers have 10 MiB for a slot."""

    mib = 1

    def take(self, task: Task, n: CheckpointId) -> TaskSnapshot:
        snapshot = super().take(task, n)
        if task.deployment.vertex.name != "count":
            return snapshot
        uid = task.deployment.vertex.operators[0].uid
        first = 0 if task.attempt.index == 0 else 64
        state = OperatorStateHandle(keyed=(table(tuple(range(first, first + self.mib)), 1),))
        return structs.replace(snapshot, operators={**snapshot.operators, uid: state})


@pytest.mark.parametrize("known", [True, False], ids=["by the last checkpoint", "by that of the change"])
def test_a_change_that_cannot_fit_is_refused_and_the_job_runs_on(known: bool) -> None:
    profiles = {"default": ResourceProfile(memory_mb=ROOM_MB)}
    cluster = Heavy(structs.replace(job_graph(bounded=False), profiles=profiles), settings(EVERY_2_S))
    cluster.handle(contract.Started())
    cluster.settle()
    cluster.mib = 6
    if known:
        cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
        cluster.settle()
    before = max(manifest.checkpoint_id for manifest in cluster.stored.values())
    count = next(vertex.id for vertex in cluster.graph.vertices if vertex.name == "count")
    cluster.handle(contract.RescaleRequested(request="r", parallelism={count: 1}))
    cluster.settle()
    error = cluster.answers["r"].error or ""
    assert re.search(r"not rescaled: subtask 1 of .*count.* at least 12 mb .* has 10 mb", error), error
    taken = max(manifest.checkpoint_id for manifest in cluster.stored.values()) - before
    assert taken == (0 if known else 1), "none for what is known to be too much"
    assert cluster.state == "RUNNING"
    cluster.handle(contract.RescaleRequested(request="wider", parallelism={count: 3}))
    cluster.settle()
    assert cluster.answers["wider"].error is None


@pytest.mark.parametrize("mib", [6, 2], ids=["it does not fit", "it fits"])
def test_a_job_is_not_narrowed_to_slots_that_cannot_hold_its_state(mib: int) -> None:
    """It waits for a worker, and fails with the number if none comes."""
    profiles = {"default": ResourceProfile(memory_mb=ROOM_MB)}
    graph = structs.replace(job_graph(bounded=False), profiles=profiles)
    cluster = Heavy(graph, settings(EVERY_2_S | FIXED | {"jobmanager.scheduler": "adaptive"}))
    cluster.mib = mib
    cluster.handle(contract.Started())
    cluster.settle()
    cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
    cluster.settle_without("grant")
    cluster.lose(cluster.where[cluster.task("count", 1).attempt])
    cluster.settle_without("grant")
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle_without("grant")
    cluster.fire(contract.Timer(contract.TimerKind.RESOURCES, 1))
    cluster.settle_without("grant")
    if mib == 2:
        assert cluster.state == "RUNNING"
        return
    assert cluster.state == "RESTARTING"
    cluster.fire(contract.Timer(contract.TimerKind.RESOURCES, 0))
    cluster.settle_without("grant")
    assert cluster.ended is not None
    assert cluster.ended.failure is not None
    assert re.search(
        r"there are 1 slot\(s\), which are too few: .*at least 12 mb .* has 10 mb",
        cluster.ended.failure.message,
    )
