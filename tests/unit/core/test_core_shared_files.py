"""Which files of `shared` may be removed, as the list of completed snapshots changes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.core.checkpoint_store import CompletedSnapshots
from unistream.core.job import JobStatus
from unistream.core.job_settings import RestorePoint, Retention
from unistream.model.elements import SnapshotKind
from unistream.model.snapshot import (
    FileRef,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)

JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
UID = OperatorUid("op")


def task(names: str) -> TaskSnapshot:
    """Refers to one shared file per letter, and to a file of its own."""
    refs = [FileRef(path=name, size=1, sha256="", shared=True) for name in names]
    files = [NativeFile(name=ref.path, ref=ref, key_groups=(0, 1)) for ref in refs]
    own = NativeFile(name="CURRENT", ref=FileRef(path="own", size=1, sha256=""))
    native = NativeHandle(format="x", key_groups=(0, 1), files=(*files, own), descriptors=b"")
    return TaskSnapshot(operators={UID: OperatorStateHandle(native=(native,))})


def manifest(
    number: int, names: str, *, job: JobId = JOB, kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> Manifest:
    vertex = VertexSnapshot(
        vertex=VertexId("ab" * 16),
        name="op",
        operators=(UID,),
        parallelism=1,
        max_parallelism=2,
        subtasks=(task(names),),
    )
    return Manifest(
        job=job,
        job_name="job",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(number),
        kind=kind,
        timestamp_ms=1,
        vertices=(vertex,),
    )


@dataclass
class Story:
    """Checkpoints complete one after the other; what may go is noted."""

    store: CompletedSnapshots

    def complete(self, *completed: tuple[int, str]) -> list[tuple[str, str]]:
        """(directory, letters of the files that go with it), in order."""
        gone = []
        for number, names in completed:
            for directory in self.store.add(f"chk-{number}", manifest(number, names)):
                unneeded = self.store.unneeded_with(directory)
                gone.append((directory, "".join(unneeded.files) + "*" * unneeded.sweep))
        return gone


@pytest.mark.parametrize(
    ("retained", "completed", "gone"),
    [
        pytest.param(1, [(1, "ab")], [], id="one"),
        pytest.param(1, [(1, "ab"), (2, "bc")], [("chk-1", "a")], id="what the next one needs stays"),
        pytest.param(
            1, [(1, "ab"), (2, "ab"), (3, "c")], [("chk-1", ""), ("chk-2", "ab")], id="goes with the last"
        ),
        pytest.param(2, [(1, "a"), (2, "b"), (3, "a")], [("chk-1", "")], id="named again by a newer one"),
        pytest.param(1, [(1, "a"), (3, "")], [("chk-1", "a")], id="a gap in the numbers"),
    ],
)
def test_files_go_when_the_last_checkpoint_that_names_them_goes(
    retained: int, completed: list[tuple[int, str]], gone: list[tuple[str, str]]
) -> None:
    assert Story(CompletedSnapshots(retained, None)).complete(*completed) == gone


def restored(names: str, *, owned: bool, job: JobId = JOB) -> CompletedSnapshots:
    point = RestorePoint(directory="chk-1", manifest=manifest(1, names, job=job), owned=owned)
    return CompletedSnapshots(1, point)


@pytest.mark.parametrize(
    ("store", "gone"),
    [
        pytest.param(restored("ab", owned=True), [("chk-1", "a")], id="recovered: our own"),
        pytest.param(restored("ab", owned=False, job=OTHER), [], id="not claimed: never"),
        pytest.param(
            restored("ab", owned=True, job=OTHER), [("chk-1", "*")], id="claimed: the storage looks"
        ),
        pytest.param(restored("", owned=True, job=OTHER), [("chk-1", "")], id="claimed, nothing shared"),
    ],
)
def test_a_restored_snapshot(store: CompletedSnapshots, gone: list[tuple[str, str]]) -> None:
    assert Story(store).complete((2, "bc")) == gone


def test_what_is_told_once_is_not_told_again() -> None:
    store = CompletedSnapshots(1, None)
    store.add("chk-1", manifest(1, "a"))
    assert store.add("chk-2", manifest(2, "")) == ["chk-1"]
    assert store.unneeded_with("chk-1").files == ("a",)
    assert store.unneeded_with("chk-1").files == ()
    assert store.unneeded_with("never").files == ()


@pytest.mark.parametrize(
    ("acked", "files"),
    [
        pytest.param(["bc", "cd"], ("c", "d"), id="what only the aborted one stored"),
        pytest.param(["ab"], (), id="what the completed one needs stays"),
        pytest.param([], (), id="nobody had acknowledged"),
    ],
)
def test_files_of_an_aborted_checkpoint(acked: list[str], files: tuple[str, ...]) -> None:
    store = CompletedSnapshots(1, None)
    store.add("chk-1", manifest(1, "ab"))
    for _ in range(2):
        assert store.unneeded_of([task(names) for names in acked]) == files


def test_a_fenced_master_removes_nothing() -> None:
    store = CompletedSnapshots(1, None)
    store.add("chk-1", manifest(1, "a"))
    store.fenced()
    assert store.add("chk-2", manifest(2, "")) == []
    assert store.unneeded_of([task("b")]) == ()
    assert store.discard_at_end(JobStatus.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS) == []


def test_at_the_end_all_files_go_but_those_of_a_snapshot_that_is_not_ours() -> None:
    store = restored("ab", owned=False)
    store.add("chk-2", manifest(2, "bc"))
    assert store.discard_at_end(JobStatus.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS) == ["chk-2"]
    assert store.unneeded_with("chk-2").files == ("c",)


def test_at_the_end_what_nobody_told_of_is_looked_for_with_the_last_one() -> None:
    """A task that dies after it has stored files leaves some that no acknowledgement has named."""
    store = CompletedSnapshots(2, None)
    store.add("chk-1", manifest(1, "ab"))
    store.add("chk-2", manifest(2, "bc"))
    assert store.discard_at_end(JobStatus.FINISHED, Retention.NO_EXTERNALIZED_CHECKPOINTS) == [
        "chk-1",
        "chk-2",
    ]
    assert [store.unneeded_with(directory).sweep for directory in ("chk-1", "chk-2")] == [False, True]
