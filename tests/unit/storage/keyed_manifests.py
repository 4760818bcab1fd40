"""Manifests of a job with one keyed operator, for the tests of what is stored next to them."""

from __future__ import annotations

from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.file_ref import FileRef
from unistream.model.snapshot import (
    KeyedHandle,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind

JOB = JobId("0123456789abcdef0123456789abcdef")
UID = OperatorUid("count")


def manifest(
    n: int,
    *refs: FileRef,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    at_ms: int = 7,
    is_native: bool = False,
) -> Manifest:
    """Of checkpoint `n`, whose state is in `refs`: a table each, or all files of one backend."""
    vertex = VertexSnapshot(
        vertex=VertexId("ab" * 16),
        name="count",
        operators=(UID,),
        parallelism=1,
        max_parallelism=128,
        subtasks=(TaskSnapshot(operators={UID: _native(refs) if is_native else _tables(refs)}),),
    )
    return Manifest(
        job=JOB,
        job_name="counts",
        lineage=LineageId("lineage"),
        checkpoint_id=CheckpointId(n),
        kind=kind,
        timestamp_ms=at_ms,
        vertices=(vertex,),
    )


def _tables(refs: tuple[FileRef, ...]) -> OperatorStateHandle:
    return OperatorStateHandle(
        keyed=tuple(
            KeyedHandle(name=f"s{i}", file=ref, key_groups=(0,), rows=1) for i, ref in enumerate(refs)
        )
    )


def _native(refs: tuple[FileRef, ...]) -> OperatorStateHandle:
    files = tuple(NativeFile(name=f"{i}.sst", ref=ref, key_groups=(0, 1)) for i, ref in enumerate(refs))
    return OperatorStateHandle(
        native=(NativeHandle(format="x", key_groups=(0, 1), files=files, descriptors=b""),)
    )
