"""Redistribution of state when a job is rescaled, and valid finished states of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from tests.support.conformance.case import Case, Comparison, Json, Shape, SkipCase, entry, name_of
from tests.support.conformance.graphs import edge, graph_of, vertex
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, SubtaskId, VertexId
from unistream.core.checkpoint.result import PartialFinishingNotSupported, vertex_snapshot
from unistream.core.restore.ended_tasks import check_finished
from unistream.core.restore.state_assignment import assign_state, list_shares
from unistream.model.file_ref import FileRef
from unistream.model.graph import Ship
from unistream.model.redistribution import OF_PRODUCERS, Redistribution, redistribution
from unistream.model.snapshot import (
    KeyedHandle,
    ListHandle,
    ListMode,
    ListShare,
    Manifest,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind

MODES: Final = {
    "SPLIT_DISTRIBUTE": ListMode.SPLIT,
    "UNION": ListMode.UNION,
    "BROADCAST": ListMode.BROADCAST,
}
_FINISHED: Final = {"ALL_RUNNING": (), "PARTIALLY_FINISHED": (0,), "FULLY_FINISHED": (0, 1)}


# --- operator state -------------------------------------------------------------------------------


def _operator_state(case: Json) -> Comparison:
    """Mode and elements by new subtask and state. Names are renamed so that our order of names is the one
    that Flink walked."""
    rename = {name: f"{i:02}-{name}" for i, name in enumerate(case.get("listStateNameOrder", []))}
    old = [
        tuple(
            _list_handle(handle["handle"], rename.get(name, name), state)
            for handle in handles
            for name, state in handle["states"].items()
        )
        for handles in case["old"]
    ]
    shares = list_shares(old, case["newParallelism"])
    copies = {(h.name, items_of(h)) for handles in old for h in handles if h.mode is ListMode.BROADCAST}
    actual = [_elements(parts) for parts in shares]
    expected = [_expected_elements(handles, rename) for handles in case["new"]]
    for wanted, found in zip(expected, actual, strict=False):
        _choose_copies(wanted, found, copies)
    return Comparison(expected, actual)


def _list_handle(owner: str, name: str, state: Json) -> ListHandle:
    """Each element says which handle it was in, and where."""
    items = tuple(f"{owner}:{offset}".encode() for offset in state["offsets"])
    return ListHandle(name=name, mode=MODES[state["mode"]], count=len(items), inline=items)


def items_of(handle: ListHandle) -> tuple[str, ...]:
    """All elements of a handle."""
    return tuple(item.decode() for item in handle.inline or ())


def _expected_elements(handles: list[Json], rename: dict[str, str]) -> Json:
    """Name -> mode and the elements of each handle; the order of handles does not matter."""
    parts: dict[str, list[list[str]]] = {}
    for handle in handles:
        for name, state in handle["states"].items():
            if items := [f"{handle['handle']}:{offset}" for offset in state["offsets"]]:
                parts.setdefault(f"{rename.get(name, name)} {state['mode']}", []).append(items)
    return {key: sorted(runs) for key, runs in parts.items()}


def _elements(shares: tuple[ListShare, ...]) -> Json:
    """The same of what we hand out; pieces of one handle are one."""
    parts: dict[str, dict[str, list[str]]] = {}
    names = {mode: name for name, mode in MODES.items()}
    for share in shares:
        owner = items_of(share.handle)[share.start].rpartition(":")[0]
        runs = parts.setdefault(f"{share.handle.name} {names[share.handle.mode]}", {})
        runs.setdefault(owner, []).extend(items_of(share.handle)[share.start : share.stop])
    return {key: sorted(runs.values()) for key, runs in parts.items()}


def _choose_copies(wanted: Json, found: Json, copies: set[tuple[str, tuple[str, ...]]]) -> None:
    """Of several copies of a broadcast state, which must all have been stored, one is as good as another."""
    for key, runs in wanted.items():
        name, _, mode = key.rpartition(" ")
        several = mode == "BROADCAST" and len(runs) > 1
        if several and found.get(key, [None])[0] in runs and {(name, tuple(r)) for r in runs} <= copies:
            wanted[key] = found[key]


# --- keyed state ----------------------------------------------------------------------------------


def _keyed_state(case: Json) -> Comparison:
    """A batch for every key group; the file's name says which old subtask wrote it."""
    maximum, width = case["maxParallelism"], case["oldParallelism"]
    uid = OperatorUid("keyed")
    old = VertexSnapshot(
        vertex=VertexId("v"),
        name="v",
        operators=(uid,),
        parallelism=width,
        max_parallelism=maximum,
        subtasks=tuple(
            TaskSnapshot(operators={uid: OperatorStateHandle(keyed=(_keyed_handle(i, width, maximum),))})
            for i in range(width)
        ),
    )
    graph = graph_of([vertex("v", case["newParallelism"], "keyed", max_parallelism=maximum)], [])
    restores = assign_state(_manifest(old), "dir", graph, allow_non_restored=False)
    actual = [
        [
            [int(cut.handle.file.path), cut.handle.key_groups[cut.start], cut.handle.key_groups[cut.stop - 1]]
            for cut in restores[SubtaskId(VertexId("v"), index)].operators[uid].keyed
        ]
        for index in range(case["newParallelism"])
    ]
    return Comparison(case["sourcesOfNewSubtask"], actual)


def _keyed_handle(subtask: int, parallelism: int, maximum: int) -> KeyedHandle:
    groups = tuple(group for group in range(maximum) if group * parallelism // maximum == subtask)
    file = FileRef(path=str(subtask), size=1, sha256="")
    return KeyedHandle(name="state", file=file, key_groups=groups, rows=len(groups))


def _manifest(*vertices: VertexSnapshot) -> Manifest:
    return Manifest(
        job=JobId("job"),
        job_name="job",
        lineage=LineageId("line"),
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.SAVEPOINT,
        timestamp_ms=0,
        vertices=vertices,
    )


# --- finished tasks -------------------------------------------------------------------------------


def _finished_in_checkpoint(case: Json) -> Comparison:
    target = vertex("v", case["parallelism"], "op")
    state = ListHandle(name="list", mode=MODES[case["stateMode"]], count=1, inline=(b"x",))
    reported = {OperatorUid("op"): OperatorStateHandle(lists=(state,))}
    ended = {SubtaskId(target.id, i) for i in [*case["finished"], *case["finishedOnRestore"]]}
    acked = {
        SubtaskId(target.id, i): TaskSnapshot(
            operators=reported if i in case["stateReportedBy"] else {},
            finished=i in case["operatorsFinished"],
        )
        for i in range(case["parallelism"])
    }
    expected = case["expected"]
    try:
        found = vertex_snapshot(target, acked=acked, ended=ended, coordinator=b"c")
    except PartialFinishingNotSupported as error:
        code = re.search(r"\b[A-Z]+(?:_[A-Z]+)+\b", str(error))
        reason = code[0] if code is not None else str(error)
        return Comparison(expected, {"error": "PartialFinishingNotSupportedByState", "reason": reason})
    assert (found.coordinator is None) is found.fully_finished, "the assigner's state is kept with its tasks"
    kinds = ["FINISHED" if t is None else "state" if t.operators else "none" for t in found.subtasks]
    actual: Json = {"operatorState": "PARTIAL_OR_RUNNING", "subtasks": kinds}
    if found.fully_finished:
        actual = {"operatorState": "FULLY_FINISHED", "subtasks": []}
    return Comparison(expected, {key: actual.get(key) for key in expected})


def _finished_on_restore(case: Json) -> Comparison:
    if case.get("sameChain"):
        states = {"a": case["operator1State"], "b": case["operator2State"]}
        graph = graph_of([vertex("chain", 2, "a", "b")], [])
    else:
        states = {"a": case["upstreamState"], "b": case["downstreamState"]}
        edges = [edge(i, "a", "b", pattern) for i, pattern in enumerate(case["edges"])]
        graph = graph_of([vertex("a", 2), vertex("b", 2)], edges)
    manifest = _manifest(*(_snapshot(name, state) for name, state in states.items() if state != "NO_STATE"))
    try:
        check_finished(manifest, graph)
    except ConfigError as refused:
        return Comparison(case["expected"], "rejected: " + str(refused).partition(":")[0])
    return Comparison(case["expected"], "accepted")


def _snapshot(name: str, state: str) -> VertexSnapshot:
    finished = _FINISHED[state]
    return VertexSnapshot(
        vertex=VertexId(name),
        name=name,
        operators=(OperatorUid(name),),
        parallelism=2,
        max_parallelism=128,
        subtasks=tuple(None if i in finished else TaskSnapshot() for i in range(2)),
        finished_subtasks=finished,
    )


# --- in flight --------------------------------------------------------------------------------------

_EDGES: Final = {
    "keyGroup": Ship.HASH,
    "rebalance": Ship.REBALANCE,
    "globalPartitioner": Ship.GLOBAL,
    "broadcast": Ship.BROADCAST,
    "forward": Ship.FORWARD,
    "rescale": Ship.RESCALE,
}


def _in_flight(_name: str, section: Json, _whole: Any) -> Iterator[Case]:
    """All vectors, and which of them each kind of edge uses."""
    for vector in section["vectors"]:
        yield Case(name_of(vector, 0), partial(_mapper, vector))
    for kind, said in section.get("perPartitioner", {}).items():
        yield Case(f"edges: {kind}", partial(_edge_mapper, kind, said))


def _mapper(vector: Json) -> Comparison:
    how = Redistribution(vector["mapper"])
    old, new = vector["oldParallelism"], vector["newParallelism"]
    actual = [list(how.old_subtasks(i, old=old, new=new)) for i in range(new)]
    expected = [vector["oldSubtasksOfNewSubtask"], vector["ambiguous"]]
    return Comparison(expected, [actual, how.is_ambiguous])


def _edge_mapper(kind: str, said: str) -> Comparison:
    """``downstream RANGE``, ``UNSUPPORTED (why)``, ``ARBITRARY (= ROUND_ROBIN)``"""
    found = re.fullmatch(r"(?:downstream )?(\w+)(?: \((?:= (\w+)|no in-flight rescale)\))?", said)
    if kind == "upstreamDefault":
        expected = found and [found[1], found[2] or found[1]]
        return Comparison(expected, [OF_PRODUCERS.value, _same_as(OF_PRODUCERS, found and found[2])])
    if kind not in _EDGES:
        raise SkipCase("there is no edge of this kind here")
    return Comparison(found and found[1], redistribution(_EDGES[kind]).value)


def _same_as(how: Redistribution, other: str | None) -> str:
    """`other` if both deal out alike at all small parallelisms."""
    if other not in {member.value for member in Redistribution}:
        return how.value
    second = Redistribution(other)
    sizes = [(old, new, i) for old in range(1, 8) for new in range(1, 8) for i in range(new)]
    alike = all(
        list(how.old_subtasks(i, old=old, new=new)) == list(second.old_subtasks(i, old=old, new=new))
        for old, new, i in sizes
    )
    return second.value if alike else how.value


SHAPES: Final[tuple[Shape, ...]] = (
    Shape("inFlightMappers", frozenset(), _in_flight),
    entry("operatorState", "old", "new", "newParallelism", play=_operator_state),
    entry("keyedState", "maxParallelism", "sourcesOfNewSubtask", play=_keyed_state),
    entry("finishedStateOfCheckpoint", "parallelism", "stateMode", "expected", play=_finished_in_checkpoint),
    entry("finishedStateOnRestore", "expected", play=_finished_on_restore),
)
