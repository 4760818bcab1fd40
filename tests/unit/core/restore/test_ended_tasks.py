"""A task that had called `finish` in a snapshot does not call it again, if no row is left for it.

A vertex is written by its subtasks in the snapshot: r reads rows, f had called `finish` and waits for its
last commit, E had ended. `+` in front: its chain has an operator that the snapshot does not know.
"""

from __future__ import annotations

import pytest

from unistream.base.ids import CheckpointId, EdgeId, JobId, LineageId, OperatorUid, SubtaskId, VertexId
from unistream.core.restore import assign_state
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.snapshot import Manifest, TaskSnapshot, VertexSnapshot
from unistream.model.snapshot_kind import SnapshotKind

NOTHING = ""


def restored(stored: dict[str, str], widths: dict[str, int], ships: dict[str, Ship]) -> dict[str, str]:
    """Each vertex by its new subtasks: f processes nothing, E runs no user code, r runs."""
    graph = JobGraph(
        name="job",
        vertices=tuple(_vertex(name, width, "+" in stored.get(name, "")) for name, width in widths.items()),
        edges=tuple(
            JobEdge(id=EdgeId(pair), source=VertexId(pair[0]), target=VertexId(pair[1]), ship=ship)
            for pair, ship in ships.items()
        ),
    )
    manifest = Manifest(
        job=JobId("job"),
        job_name="job",
        lineage=LineageId("line"),
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.SAVEPOINT,
        timestamp_ms=0,
        vertices=tuple(_snapshot(name, tasks.strip("+")) for name, tasks in stored.items() if tasks),
    )
    found = assign_state(manifest, "dir", graph, allow_non_restored=True)
    return {
        name: "".join(_letter(found.get(SubtaskId(VertexId(name), i))) for i in range(width))
        for name, width in widths.items()
    }


def _vertex(name: str, width: int, grown: bool) -> JobVertex:
    operators = [OperatorInfo(uid=OperatorUid(name), name=name)]
    operators += [OperatorInfo(uid=OperatorUid(f"new {name}"), name="new")] if grown else []
    return JobVertex(
        id=VertexId(name), name=name, operators=tuple(operators), parallelism=width, max_parallelism=8
    )


def _snapshot(name: str, tasks: str) -> VertexSnapshot:
    return VertexSnapshot(
        vertex=VertexId(name),
        name=name,
        operators=(OperatorUid(name),),
        parallelism=len(tasks),
        max_parallelism=8,
        subtasks=tuple(None if task == "E" else TaskSnapshot(finished=task == "f") for task in tasks),
        finished_subtasks=tuple(i for i, task in enumerate(tasks) if task == "E"),
    )


def _letter(restore: object) -> str:
    if restore is None or not (restore.finished or restore.data_ended):
        return "r"
    assert not (restore.finished and restore.data_ended)
    return "E" if restore.finished else "f"


@pytest.mark.parametrize(
    ("stored", "widths", "expected"),
    [
        pytest.param("ff", 2, "ff", id="all had called finish"),
        pytest.param("ff", 3, "fff", id="… and there are more of them now"),
        pytest.param("ff", 1, "f", id="… or fewer"),
        pytest.param("fE", 2, "ff", id="one had ended, the other called finish"),
        pytest.param("fE", 3, "fff", id="… at another parallelism"),
        pytest.param("EE", 3, "EEE", id="all had ended"),
        pytest.param("fr", 2, "fr", id="one still reads: each goes on from where it was"),
        pytest.param("Er", 2, "fr", id="… also one that had ended"),
        pytest.param("fr", 3, "rrr", id="… at another parallelism all of them read"),
        pytest.param("Err", 2, "rr", id="… fewer of them too"),
        pytest.param("rr", 2, "rr", id="all read"),
        pytest.param("+ff", 2, "rr", id="its chain has a new operator, which has seen nothing"),
        pytest.param(NOTHING, 2, "rr", id="it is new"),
    ],
)
def test_of_one_vertex(stored: str, widths: int, expected: str) -> None:
    assert restored({"a": stored}, {"a": widths}, {})["a"] == expected


ALL, PAIRS = Ship.REBALANCE, Ship.FORWARD


@pytest.mark.parametrize(
    ("stored", "widths", "ships", "expected"),
    [
        pytest.param(("ff", "ff"), (2, 3), {"ab": ALL}, "fff", id="all before it had called finish"),
        pytest.param(("EE", "fE"), (2, 2), {"ab": ALL}, "ff", id="all before it had ended"),
        pytest.param(
            ("fr", "ff"), (2, 2), {"ab": ALL}, "rr", id="one of its producers reads (at least once)"
        ),
        pytest.param(("fr", "fr"), (2, 2), {"ab": PAIRS}, "fr", id="pairs: each follows its own producer"),
        pytest.param(("rf", "fr"), (2, 2), {"ab": PAIRS}, "rr", id="… which reads in one pair"),
        pytest.param(("ffr", "ff"), (2, 2), {"ab": ALL}, "rr", id="its producers are fewer now, and read"),
        pytest.param(
            ("fff", "ff"), (2, 2), {"ab": ALL}, "ff", id="its producers are fewer now, without rows"
        ),
        pytest.param((NOTHING, "ff"), (2, 2), {"ab": ALL}, "rr", id="a new producer has rows for it"),
        pytest.param(("ff", "rf"), (2, 2), {"ab": ALL}, "rf", id="it has rows in flight for one of them"),
    ],
)
def test_of_a_vertex_behind_another(
    stored: tuple[str, str], widths: tuple[int, int], ships: dict[str, Ship], expected: str
) -> None:
    found = restored(dict(zip("ab", stored, strict=True)), dict(zip("ab", widths, strict=True)), ships)
    assert found["b"] == expected


def test_one_input_of_two_still_has_rows() -> None:
    stored, widths = {"a": "ff", "b": "rr", "c": "ff"}, {"a": 2, "b": 2, "c": 2}
    assert restored(stored, widths, {"ac": ALL, "bc": ALL})["c"] == "rr"
    assert restored(stored | {"b": "ff"}, widths, {"ac": ALL, "bc": ALL})["c"] == "ff"
