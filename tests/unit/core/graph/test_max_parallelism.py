"""A derived number of key groups follows the snapshot, one that was set does not."""

from __future__ import annotations

import pytest

from tests.unit.core.graphs import job_of, line
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid
from unistream.core.graph import adapt_max_parallelism
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobGraph
from unistream.model.snapshot import KeyedHandle, Manifest, OperatorStateHandle, TaskSnapshot, VertexSnapshot
from unistream.model.snapshot_kind import SnapshotKind


def stored(graph: JobGraph, *, key_groups: int, keyed: bool = True) -> Manifest:
    """A snapshot of the first vertex of `graph`; its operator `a` has state."""
    vertex = graph.vertices[0]
    handle = KeyedHandle(name="n", file=FileRef(path="f", size=1, sha256=""), key_groups=(0,), rows=1)
    state = OperatorStateHandle(keyed=(handle,) if keyed else ())
    task = TaskSnapshot(operators={OperatorUid("a-1"): state})
    return Manifest(
        job=JobId("j"),
        job_name="j",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(1),
        kind=SnapshotKind.SAVEPOINT,
        timestamp_ms=0,
        vertices=(
            VertexSnapshot(
                vertex=vertex.id,
                name=vertex.name,
                operators=tuple(operator.uid for operator in vertex.operators),
                parallelism=1,
                max_parallelism=key_groups,
                subtasks=(task,),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("own", "keyed", "expected"),
    [
        pytest.param(None, True, 256, id="derived: that of the snapshot"),
        pytest.param(None, False, 128, id="without keyed state nothing binds it"),
        pytest.param(64, True, 64, id="set: never changed"),
    ],
)
def test_max_parallelism_of_a_restored_job(own: int | None, keyed: bool, expected: int) -> None:
    graph = job_of(line(source={"max_parallelism": own}))
    restored = adapt_max_parallelism(graph, stored(graph, key_groups=256, keyed=keyed))
    assert restored.vertices[0].max_parallelism == expected


def test_more_subtasks_than_key_groups_are_refused() -> None:
    graph = job_of(line(), parallelism=9)
    with pytest.raises(ConfigError, match=r"'source -> a -> b': parallelism 9 is above the 8 key groups"):
        adapt_max_parallelism(graph, stored(graph, key_groups=8))
