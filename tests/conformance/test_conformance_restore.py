"""What a restore does, as Flink's tests tell it in words (`restoreBehaviours`); the others are with the
machines that do it: numbers of key groups, and rows in flight."""

from __future__ import annotations

import pytest

from tests.support.conformance.graphs import edge, graph_of, vertex
from tests.support.conformance.recorded_job import RecordedJob, stopped_after_s1_ended
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, SubtaskId, VertexId
from unistream.core.restore import assign_state, with_in_flight
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobEdge, JobGraph, Ship
from unistream.model.in_flight import InFlightHandle, InFlightRun
from unistream.model.key_groups import key_group_range
from unistream.model.snapshot import (
    KeyedHandle,
    Manifest,
    NativeHandle,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind

UID = OperatorUid("v")
KEY_GROUPS = 128


def file(name: str) -> FileRef:
    return FileRef(path=name, size=1, sha256="")


def keyed(subtask: int, parallelism: int) -> TaskSnapshot:
    """A table and a backend's own files, for the key groups of one subtask."""
    first, last = key_group_range(KEY_GROUPS, parallelism, subtask)
    groups = tuple(range(first, last + 1))
    table = KeyedHandle(name="n", file=file(f"table-{subtask}"), key_groups=groups, rows=len(groups))
    native = NativeHandle(
        format="files-1", key_groups=(first, last), files=(), descriptors=f"native-{subtask}".encode()
    )
    return TaskSnapshot(operators={UID: OperatorStateHandle(keyed=(table,), native=(native,))})


def stored(
    name: str, *tasks: TaskSnapshot | None, finished: tuple[int, ...] = (), uids: tuple[str, ...] = ()
) -> VertexSnapshot:
    return VertexSnapshot(
        vertex=VertexId(name),
        name=name,
        operators=tuple(OperatorUid(uid) for uid in uids or (name,)),
        parallelism=len(tasks),
        max_parallelism=KEY_GROUPS,
        subtasks=tasks,
        finished_subtasks=finished,
    )


def manifest(*vertices: VertexSnapshot, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> Manifest:
    return Manifest(
        job=JobId("j"),
        job_name="j",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(1),
        kind=kind,
        timestamp_ms=0,
        vertices=vertices,
    )


def reads(old: int, new: int) -> list[tuple[list[str], list[str]]]:
    """What each of `new` subtasks reads of `old` ones: tables with their key groups, and own files."""
    snapshot = manifest(stored("v", *(keyed(i, old) for i in range(old))))
    restores = assign_state(snapshot, "dir", graph_of([vertex("v", new)], []), allow_non_restored=False)
    found = [restores[SubtaskId(VertexId("v"), i)].operators[UID] for i in range(new)]
    return [
        (
            [
                f"{share.handle.file.path} {share.handle.key_groups[share.start]}"
                f"-{share.handle.key_groups[share.stop - 1]}"
                for share in one.keyed
            ],
            [handle.descriptors.decode() for handle in one.native],
        )
        for one in found
    ]


def test_keyed_state_stays_at_the_same_parallelism() -> None:
    assert reads(2, 2) == [(["table-0 0-63"], ["native-0"]), (["table-1 64-127"], ["native-1"])]


@pytest.mark.parametrize(
    ("old", "new", "then"),
    [
        pytest.param(
            2,
            4,
            [
                (["table-0 0-31"], ["native-0"]),
                (["table-0 32-63"], ["native-0"]),
                (["table-1 64-95"], ["native-1"]),
                (["table-1 96-127"], ["native-1"]),
            ],
            id="out",
        ),
        pytest.param(2, 1, [(["table-0 0-63", "table-1 64-127"], ["native-0", "native-1"])], id="in"),
        pytest.param(
            2,
            3,
            [
                (["table-0 0-42"], ["native-0"]),
                (["table-0 43-63", "table-1 64-85"], ["native-0", "native-1"]),
                (["table-1 86-127"], ["native-1"]),
            ],
            id="across",
        ),
    ],
)
def test_keyed_state_goes_to_all_whose_key_groups_it_has(
    old: int, new: int, then: list[tuple[list[str], list[str]]]
) -> None:
    assert reads(old, new) == then


def test_a_new_operator_starts_empty() -> None:
    snapshot = manifest(stored("v", keyed(0, 1)))
    graph = graph_of(
        [vertex("v", 1, "v", "added"), vertex("behind", 1)], [edge(0, "v", "behind", "POINTWISE")]
    )
    restores = assign_state(snapshot, "dir", graph, allow_non_restored=False)
    assert {subtask.vertex for subtask in restores} == {"v"}, "a new vertex restores from nothing"
    [restore] = restores.values()
    assert set(restore.operators) == {"v"}, "nor does a new operator in an old one"
    assert not restore.finished


@pytest.mark.parametrize("side", ["upstream", "downstream"])
def test_subtasks_without_rows_in_flight_are_restored_too(side: str) -> None:
    run = InFlightRun(edge=EdgeId("e"), producer=0, consumer=0, start=0, stop=9)
    handle = (
        InFlightHandle(file=file("f"), outputs=(run,))
        if side == "upstream"
        else InFlightHandle(file=file("f"), inputs=(run,))
    )
    with_rows, without = TaskSnapshot(in_flight=handle), TaskSnapshot()
    first, second = (with_rows, without) if side == "upstream" else (without, with_rows)
    snapshot = manifest(stored("a", first, TaskSnapshot()), stored("b", second, TaskSnapshot()))
    exchange = JobEdge(
        id=EdgeId("e"), source=VertexId("a"), target=VertexId("b"), ship=Ship.HASH, key_columns=("k",)
    )
    for width in (1, 2, 3):
        graph = JobGraph(name="j", vertices=(vertex("a", width), vertex("b", width)), edges=(exchange,))
        restores = assign_state(snapshot, "dir", graph, allow_non_restored=False)
        found = with_in_flight(restores, snapshot, "dir", graph, allow_non_restored=False)
        assert set(found) == {SubtaskId(VertexId(name), i) for name in "ab" for i in range(width)}
        readers = [subtask for subtask, restore in found.items() if restore.in_flight]
        assert readers, "the rows go somewhere"
        assert {subtask.vertex for subtask in readers} == {"b"}, "to those who had not processed them"
        assert {restore.checkpoint_id for restore in found.values()} == {1}


def test_a_task_without_state_in_the_snapshot_is_not_restored() -> None:
    savepoint, store = stopped_after_s1_ended()
    recorded = RecordedJob(restore=savepoint, store=store, first_checkpoint=5)
    recorded.job.run()
    assert recorded.traces["T3"][0] == "D initializeState(restored=true)", "its source has a position"
    assert recorded.traces["T4"][0] == "E initializeState(restored=false)", "nothing in its task has state"


@pytest.mark.parametrize("kind", list(SnapshotKind))
def test_a_changed_job_is_checked_whatever_it_starts_from(kind: SnapshotKind) -> None:
    finished = stored("v", None, None, finished=(0, 1))
    graph = graph_of([vertex("added", 2), vertex("v", 2)], [edge(0, "added", "v", "ALL_TO_ALL")])
    with pytest.raises(ConfigError, match=r"FULLY_FINISHED_AFTER_NOT_FULLY_FINISHED.*'v'.*'added'"):
        assign_state(manifest(finished, kind=kind), "dir", graph, allow_non_restored=False)
