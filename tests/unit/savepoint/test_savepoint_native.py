"""A native savepoint, or a checkpoint, in files of a backend's own: what can be known of it, and what not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import unistream as us
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.snapshot import (
    ListHandle,
    ListMode,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.savepoint.inspection import inspection
from unistream.savepoint.query import query
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.state_files import FsStateWriter

JOB = JobId("0123456789abcdef0123456789abcdef")
COUNTS, SOURCE = OperatorUid("counts"), OperatorUid("users")
CANONICAL = "take a savepoint (of the job )?in the canonical format"


@pytest.fixture
def native(tmp_path: Path) -> us.Savepoint:
    """Of one vertex: a source with a list, and an operator whose keyed state is in a file of "other-1"."""
    storage = FsCheckpointStorage(str(tmp_path / "root"))
    directory = storage.directory(JOB, CheckpointId(3), SnapshotKind.SAVEPOINT, str(tmp_path))
    ref = FsStateWriter(directory).write("rows", b"rows of a backend")
    files = (NativeFile(name="rows", ref=ref, key_groups=(0, 127)),)
    stored = NativeHandle(format="other-1", key_groups=(0, 127), files=files, descriptors=b"")
    splits = ListHandle(name="offsets", mode=ListMode.SPLIT, count=1, inline=(b"7",))
    task = TaskSnapshot(
        operators={
            SOURCE: OperatorStateHandle(lists=(splits,)),
            COUNTS: OperatorStateHandle(native=(stored,)),
        }
    )
    manifest = Manifest(
        job=JOB,
        job_name="counts",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(3),
        kind=SnapshotKind.SAVEPOINT,
        timestamp_ms=1,
        savepoint_format=SavepointFormat.NATIVE,
        vertices=(
            VertexSnapshot(
                vertex=VertexId("ab" * 16),
                name="users -> counts",
                operators=(SOURCE, COUNTS),
                parallelism=1,
                max_parallelism=128,
                subtasks=(task,),
            ),
        ),
    )
    storage.write_manifest(directory, manifest)
    return us.read_savepoint(directory)


def test_what_it_holds_is_told(native: us.Savepoint) -> None:
    assert native.format is SavepointFormat.NATIVE
    assert inspection(native, 5).savepoint_format == "native"
    [state] = native.operator("counts").states
    assert (state.name, state.kind, state.rows, state.files) == ("other-1", "native", None, 1)
    assert native.table_names == [("users", "offsets")]
    assert native.items("users", "offsets") == [(0, b"7")]


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda s: s.table("counts", "other-1"), id="its files"),
        pytest.param(lambda s: s.table("counts", "seen"), id="a state that may be in them"),
        pytest.param(lambda s: query(s, 'FROM "counts/seen"'), id="a query"),
        pytest.param(us.SavepointWriter.change, id="a change"),
    ],
)
def test_who_wants_tables_is_told_to_take_a_canonical_one(
    native: us.Savepoint, read: Callable[[us.Savepoint], object]
) -> None:
    with pytest.raises(ConfigError, match=CANONICAL) as refusal:
        read(native)
    assert "'counts'" in str(refusal.value)


def test_tables_beside_the_files_are_read_and_others_are_not_there(native: us.Savepoint) -> None:
    assert query(native, 'SELECT subtask FROM "users/offsets"').to_pylist() == [{"subtask": 0}]
    with pytest.raises(NotFound, match="no state 'seen'; it has 'offsets'"):
        native.table("users", "seen")
