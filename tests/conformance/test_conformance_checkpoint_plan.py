"""Plans, failure counting, state redistribution and pointwise edges, as Flink 2.3.0 computed them.

Not run, by design: `requestQueue` (one snapshot is in flight at a time, there is no queue with limits),
`inFlightMappers` (barriers are aligned, there is no in-flight state), and the prose cases, which are unit
tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import (
    CheckpointId,
    EdgeId,
    JobId,
    LineageId,
    OperatorUid,
    SubtaskId,
    VertexId,
)
from unistream.core.checkpoint_failures import FailureCounter, FailureReason
from unistream.core.checkpoint_plan import NotAllRunning, plan_checkpoint
from unistream.core.checkpoint_result import PartialFinishingNotSupported, vertex_snapshot
from unistream.core.execution import ExecutionState
from unistream.core.finished_state import check_finished
from unistream.core.state_assignment import assign_state, list_shares
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.plan import ExecutionPlan, pointwise_consumers, pointwise_producers
from unistream.model.snapshot import (
    FileRef,
    KeyedHandle,
    ListHandle,
    ListMode,
    Manifest,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)

DATA = Path(__file__).parent / "data"
SHIPS = {"ALL_TO_ALL": Ship.REBALANCE, "POINTWISE": Ship.RESCALE}
MODES = {"SPLIT_DISTRIBUTE": ListMode.SPLIT, "UNION": ListMode.UNION, "BROADCAST": ListMode.BROADCAST}


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((DATA / name).read_text())
    return data


CHECKPOINTS = load("checkpoint_plan.json")
STATE = load("state_redistribution.json")
REGIONS = load("regions.json")


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case.get("name", f"case {i}")) for i, case in enumerate(cases)]


def vertex(name: str, parallelism: int, *uids: str, max_parallelism: int = 128) -> JobVertex:
    return JobVertex(
        id=VertexId(name),
        name=name,
        operators=tuple(OperatorInfo(uid=OperatorUid(uid), name=uid) for uid in uids or (name,)),
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        inputs=1,
    )


def edge(number: int, source: str, target: str, pattern: str) -> JobEdge:
    return JobEdge(
        id=EdgeId(str(number)), source=VertexId(source), target=VertexId(target), ship=SHIPS[pattern]
    )


def subtask(name: str) -> SubtaskId:
    head, _, index = name.partition("#")
    return SubtaskId(VertexId(head), int(index))


@pytest.mark.parametrize("case", named(CHECKPOINTS["plans"]))
def test_plan(case: dict[str, Any]) -> None:
    graph = JobGraph(
        name="plan",
        vertices=tuple(vertex(name, parallelism) for name, parallelism in case["vertices"]),
        edges=tuple(edge(i, e["from"], e["to"], e["pattern"]) for i, e in enumerate(case["edges"])),
    )
    plan = ExecutionPlan(graph)
    states = dict.fromkeys(plan.subtasks, ExecutionState.RUNNING)
    states |= {subtask(name): ExecutionState[state] for name, state in case["states"].items()}
    found = plan_checkpoint(plan, states)
    expected = case["expected"]
    if "failureReason" in expected:
        assert expected["failureReason"] == "NOT_ALL_REQUIRED_TASKS_RUNNING"
        assert isinstance(found, NotAllRunning)
        return
    assert not isinstance(found, NotAllRunning)
    assert texts(found.to_trigger) == sorted(expected["tasksToTrigger"])
    assert texts(found.to_wait_for) == sorted(expected["tasksToWaitFor"])
    assert texts(found.to_wait_for) == sorted(expected["tasksToCommitTo"])
    assert texts(found.finished) == sorted(expected["finishedTasks"])
    assert texts(found.fully_finished) == sorted(expected["fullyFinishedVertices"])


def texts(ids: Iterable[object]) -> list[str]:
    return sorted(map(str, ids))


@pytest.mark.parametrize("case", named(CHECKPOINTS["failureManager"]))
def test_failures_in_a_row(case: dict[str, Any]) -> None:
    counter = FailureCounter(case["tolerableFailures"])
    for event in case["events"]:
        if "success" in event:
            counter.succeeded(CheckpointId(event["success"]))
            continue
        failed = counter.failed(
            None if event["id"] == -1 else CheckpointId(event["id"]),
            FailureReason[event["fail"]],
            savepoint=event.get("savepoint", False),
        )
        assert failed is event["failsJob"], event


def test_failure_reasons_are_flinks_and_count_as_there() -> None:
    expected = {c["reason"]: c["countsTowardsTolerableFailures"] for c in CHECKPOINTS["failureReasons"]}
    assert {reason.name: reason.counts for reason in FailureReason} == expected


@pytest.mark.parametrize("pair", REGIONS["pointwiseEdgeMapping"]["mapping"])
def test_pointwise_edges(pair: str) -> None:
    producers, consumers = (int(text) for text in pair.split("->"))
    expected = REGIONS["pointwiseEdgeMapping"]["mapping"][pair]
    assert [list(pointwise_producers(i, producers, consumers)) for i in range(consumers)] == expected
    assert [list(pointwise_consumers(p, producers, consumers)) for p in range(producers)] == [
        [i for i in range(consumers) if p in expected[i]] for p in range(producers)
    ]


def list_handle(owner: str, name: str, state: dict[str, Any]) -> ListHandle:
    offsets = state["offsets"]
    items = tuple(f"{owner}:{offset}".encode() for offset in offsets)
    return ListHandle(name=name, mode=MODES[state["mode"]], count=len(items), inline=items)


def contents(handles: list[dict[str, Any]], rename: dict[str, str]) -> dict[str, list[str]]:
    """State name -> elements, by handle; the order of handles does not matter, that of elements does."""
    found: dict[str, list[tuple[str, list[int]]]] = {}
    for handle in handles:
        for name, state in handle["states"].items():
            found.setdefault(rename.get(name, name), []).append((handle["handle"], state["offsets"]))
    return {
        name: [f"{owner}:{offset}" for owner, offsets in sorted(parts) for offset in offsets]
        for name, parts in found.items()
        if any(offsets for _, offsets in parts)
    }


@pytest.mark.parametrize("case", named(STATE["operatorState"]))
def test_operator_state(case: dict[str, Any]) -> None:
    """Names are renamed so that our order of names is the one that Flink walked."""
    rename = {name: f"{i:02}-{name}" for i, name in enumerate(case.get("listStateNameOrder", []))}
    old = [
        tuple(
            list_handle(handle["handle"], rename.get(name, name), state)
            for handle in handles
            for name, state in handle["states"].items()
        )
        for handles in case["old"]
    ]
    modes = {handle.name: handle.mode for handles in old for handle in handles}
    shares = list_shares(old, case["newParallelism"])
    for index, expected_handles in enumerate(case["new"]):
        expected = contents(expected_handles, rename)
        found = {
            name: sorted_by_owner(
                [
                    (share.handle.inline or ())[k].decode()
                    for share in parts
                    for k in range(share.start, share.stop)
                ]
            )
            for name, parts in (
                (name, list(group))
                for name, group in groupby(
                    sorted(shares[index], key=lambda s: s.handle.name), key=lambda s: s.handle.name
                )
            )
        }
        for name, mode in modes.items():
            if mode is ListMode.BROADCAST:  # equal copies, and Flink may hand out two
                assert bool(found.get(name)) == bool(expected.get(name))
                one_copy = {text.partition(":")[2] for text in expected.get(name, [])}
                assert {text.partition(":")[2] for text in found.get(name, [])} == one_copy
            else:
                assert found.get(name, []) == expected.get(name, []), f"{name} of subtask {index}"


def sorted_by_owner(items: list[str]) -> list[str]:
    return sorted(items, key=lambda item: item.partition(":")[0])


def manifest_of(*vertices: VertexSnapshot) -> Manifest:
    return Manifest(
        job=JobId("job"),
        job_name="job",
        lineage=LineageId("line"),
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.SAVEPOINT,
        timestamp_ms=0,
        vertices=vertices,
    )


@pytest.mark.parametrize(
    "case", STATE["keyedState"], ids=lambda c: f"{c['oldParallelism']} to {c['newParallelism']}"
)
def test_keyed_state(case: dict[str, Any]) -> None:
    """A batch for every key group; the file's name says which old subtask wrote it."""
    maximum, width = case["maxParallelism"], case["oldParallelism"]
    owned = [tuple(g for g in range(maximum) if g * width // maximum == subtask) for subtask in range(width)]
    uid = OperatorUid("keyed")
    old = VertexSnapshot(
        vertex=VertexId("v"),
        name="v",
        operators=(uid,),
        parallelism=width,
        max_parallelism=maximum,
        subtasks=tuple(
            TaskSnapshot(
                operators={
                    uid: OperatorStateHandle(
                        keyed=(
                            KeyedHandle(
                                name="state",
                                file=FileRef(path=str(subtask), size=1, sha256=""),
                                key_groups=groups,
                                rows=len(groups),
                            ),
                        )
                    )
                }
            )
            for subtask, groups in enumerate(owned)
        ),
    )
    graph = JobGraph(
        name="g",
        vertices=(vertex("v", case["newParallelism"], "keyed", max_parallelism=maximum),),
        edges=(),
    )
    restores = assign_state(manifest_of(old), "dir", graph, allow_non_restored=False)
    found = [
        [
            [int(cut.handle.file.path), cut.handle.key_groups[cut.start], cut.handle.key_groups[cut.stop - 1]]
            for cut in restores[SubtaskId(VertexId("v"), index)].operators[uid].keyed
        ]
        for index in range(case["newParallelism"])
    ]
    assert found == case["sourcesOfNewSubtask"]


@pytest.mark.parametrize("case", named(STATE["finishedStateOfCheckpoint"]))
def test_finished_tasks_in_a_checkpoint(case: dict[str, Any]) -> None:
    target = vertex("v", case["parallelism"], "op")
    state = ListHandle(name="list", mode=MODES[case["stateMode"]], count=1, inline=(b"x",))
    ended = {SubtaskId(target.id, i) for i in [*case["finished"], *case["finishedOnRestore"]]}
    acked = {
        SubtaskId(target.id, i): TaskSnapshot(
            operators={OperatorUid("op"): OperatorStateHandle(lists=(state,))}
            if i in case["stateReportedBy"]
            else {},
            finished=i in case["operatorsFinished"],
        )
        for i in range(case["parallelism"])
    }
    expected = case["expected"]
    if "error" in expected:
        with pytest.raises(PartialFinishingNotSupported, match=expected["reason"]):
            vertex_snapshot(target, acked=acked, ended=ended, coordinator=b"c")
        return
    found = vertex_snapshot(target, acked=acked, ended=ended, coordinator=b"c")
    assert found.fully_finished is (expected["operatorState"] == "FULLY_FINISHED")
    assert found.coordinator == (None if found.fully_finished else b"c")
    if not found.fully_finished:
        kinds = ["FINISHED" if t is None else "state" if t.operators else "none" for t in found.subtasks]
        assert kinds == expected["subtasks"]


def snapshot_in_state(name: str, state: str) -> VertexSnapshot | None:
    if state == "NO_STATE":
        return None
    finished = {"ALL_RUNNING": (), "PARTIALLY_FINISHED": (0,), "FULLY_FINISHED": (0, 1)}[state]
    return VertexSnapshot(
        vertex=VertexId(name),
        name=name,
        operators=(OperatorUid(name),),
        parallelism=2,
        max_parallelism=128,
        subtasks=tuple(None if i in finished else TaskSnapshot() for i in range(2)),
        finished_subtasks=finished,
    )


@pytest.mark.parametrize(
    "case", STATE["finishedStateOnRestore"], ids=lambda case: " ".join(map(str, case.values()))
)
def test_finished_state_on_restore(case: dict[str, Any]) -> None:
    if case.get("sameChain"):
        states = {"a": case["operator1State"], "b": case["operator2State"]}
        graph = JobGraph(name="g", vertices=(vertex("chain", 2, "a", "b"),), edges=())
    else:
        states = {"a": case["upstreamState"], "b": case["downstreamState"]}
        graph = JobGraph(
            name="g",
            vertices=(vertex("a", 2), vertex("b", 2)),
            edges=tuple(edge(i, "a", "b", pattern) for i, pattern in enumerate(case["edges"])),
        )
    snapshots = [s for s in (snapshot_in_state(name, state) for name, state in states.items()) if s]
    if case["expected"] == "accepted":
        check_finished(manifest_of(*snapshots), graph)
        return
    with pytest.raises(ConfigError) as refused:
        check_finished(manifest_of(*snapshots), graph)
    assert case["expected"] == "rejected: " + str(refused.value).partition(":")[0]
