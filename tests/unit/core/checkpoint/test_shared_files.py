"""Which files of `shared` may be removed, as the list of completed snapshots changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from msgspec import structs

from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.core.checkpoint import CompletedSnapshots
from unistream.core.checkpoint.store import SharedFileGone
from unistream.core.contract import ExternalizedCheckpointRetention, RestorePoint, SweepSharedFiles
from unistream.model.file_ref import FileRef
from unistream.model.job_status import JobStatus
from unistream.model.snapshot import (
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind

JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
UID = OperatorUid("op")


def task(names: Iterable[str]) -> TaskSnapshot:
    """Refers to these shared files (of a text: one per letter), and to a file of its own."""
    refs = [FileRef(path=name, size=1, sha256="", shared=True) for name in names]
    files = [NativeFile(name=ref.path, ref=ref, key_groups=(0, 1)) for ref in refs]
    own = NativeFile(name="CURRENT", ref=FileRef(path="own", size=1, sha256=""))
    native = NativeHandle(format="x", key_groups=(0, 1), files=(*files, own), descriptors=b"")
    return TaskSnapshot(operators={UID: OperatorStateHandle(native=(native,))})


def manifest(
    number: int, names: Iterable[str], *, job: JobId = JOB, kind: SnapshotKind = SnapshotKind.CHECKPOINT
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
                gone.append((directory, "".join(unneeded.files) + "*" * (unneeded.sweep is not None)))
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
        pytest.param(
            [["chk-2-b", "chk-3-c"], ["chk-3-c", "chk-3-d"]],
            ("chk-3-c", "chk-3-d"),
            id="what was stored for it",
        ),
        pytest.param([["chk-1-a", "chk-2-b"]], (), id="what the completed one needs stays"),
        pytest.param(
            [["chk-1-z"]], (), id="what was stored for an older one, which may still be there, stays"
        ),
        pytest.param([], (), id="nobody had acknowledged"),
    ],
)
def test_files_of_an_aborted_checkpoint(acked: list[list[str]], files: tuple[str, ...]) -> None:
    store = CompletedSnapshots(1, None)
    store.add("chk-1", manifest(1, ["chk-1-a", "chk-1-z"]))
    store.add("chk-2", manifest(2, ["chk-1-a", "chk-2-b"]))
    for _ in range(2):
        assert store.unneeded_of(CheckpointId(3), [task(names) for names in acked]) == files


def test_a_fenced_master_removes_nothing() -> None:
    store = CompletedSnapshots(1, None)
    store.add("chk-1", manifest(1, "a"))
    store.fenced()
    assert store.add("chk-2", manifest(2, "")) == []
    assert store.unneeded_of(CheckpointId(2), [task(["chk-2-b"])]) == ()
    assert (
        store.discard_at_end(JobStatus.FINISHED, ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
        == []
    )


def test_at_the_end_all_files_go_but_those_of_a_snapshot_that_is_not_ours() -> None:
    store = restored("ab", owned=False)
    store.add("chk-2", manifest(2, "bc"))
    assert store.discard_at_end(
        JobStatus.FINISHED, ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    ) == ["chk-2"]
    assert store.unneeded_with("chk-2").files == ("c",)


# --- what no task has reported --------------------------------------------------------------------------


class TestFilesOfTasksThatDied:
    """A task that dies after it has stored files leaves some that no acknowledgement has named."""

    def test_are_looked_for_when_a_checkpoint_has_completed_since(self) -> None:
        store = CompletedSnapshots(1, None)
        store.add("chk-1", manifest(1, "a"))
        assert store.sweep(CheckpointId(1)) is None, "nobody died"
        store.tasks_died()
        store.add("chk-3", manifest(3, "b"))
        assert store.sweep(CheckpointId(3)) == SweepSharedFiles("chk-3", CheckpointId(3))
        store.add("chk-4", manifest(4, "b"))
        assert store.sweep(CheckpointId(4)) is None, "once is enough"

    @pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
    def test_are_looked_for_at_the_end_also_when_checkpoints_are_kept(
        self, retention: ExternalizedCheckpointRetention
    ) -> None:
        store = CompletedSnapshots(2, None)
        store.add("chk-1", manifest(1, "ab"))
        store.discard_at_end(JobStatus.CANCELED, retention)
        assert store.sweep() == SweepSharedFiles("chk-1", None)

    def test_are_looked_for_at_the_end_when_no_checkpoint_ever_completed(self) -> None:
        store = CompletedSnapshots(1, None)
        assert store.sweep() is None, "nothing was ever stored"
        store.given_up("chk-1")
        assert store.sweep() == SweepSharedFiles("chk-1", None)

    def test_are_left_alone_by_a_master_that_is_none_or_beside_a_checkpoint_that_may_exist(self) -> None:
        store, other = CompletedSnapshots(1, None), CompletedSnapshots(1, None)
        for one in (store, other):
            one.add("chk-1", manifest(1, "a"))
            one.tasks_died()
        store.fenced()
        other.may_exist(manifest(2, "b"))
        assert (store.sweep(), other.sweep(), other.sweep(CheckpointId(3))) == (None, None, None)


def test_files_of_a_checkpoint_that_may_exist_stay() -> None:
    store = CompletedSnapshots(1, None)
    store.add("chk-1", manifest(1, "ab"))
    store.may_exist(manifest(2, ["a", "chk-2-c"]))
    assert store.add("chk-3", manifest(3, "")) == ["chk-1"]
    assert store.unneeded_with("chk-1").files == ("b",)
    assert store.unneeded_of(CheckpointId(2), [task(["chk-2-c", "chk-2-d"])]) == ("chk-2-d",)


# --- copies -------------------------------------------------------------------------------------------


def stored(number: int, content: str) -> FileRef:
    """A copy of a file that was stored for one checkpoint."""
    return FileRef(path=f"chk-{number}-{content}", size=7, sha256=content, shared=True)


def naming(number: int, *refs: FileRef) -> Manifest:
    native = NativeHandle(
        format="x",
        key_groups=(0, 1),
        files=tuple(NativeFile(name=ref.sha256, ref=ref, key_groups=(0, 1)) for ref in refs),
        descriptors=b"",
    )
    whole = manifest(number, "")
    acked = TaskSnapshot(operators={UID: OperatorStateHandle(native=(native,))})
    return structs.replace(whole, vertices=(structs.replace(whole.vertices[0], subtasks=(acked, None)),))


class TestACheckpointThatNamesFilesOfOlderOnes:
    """5 stored a file, 6 stored it once more (the task had not heard of 5 yet), and 7 names that of 5."""

    def test_is_given_the_copy_that_is_kept(self) -> None:
        store = CompletedSnapshots(1, None)
        store.add("chk-5", naming(5, stored(5, "G")))
        store.add("chk-6", naming(6, stored(6, "G"), stored(6, "H")))
        wanted = naming(7, stored(5, "G"), stored(6, "H"), stored(7, "I"))
        assert store.resolved(wanted) == naming(7, stored(6, "G"), stored(6, "H"), stored(7, "I"))

    def test_keeps_what_is_there(self) -> None:
        store = CompletedSnapshots(2, None)
        store.add("chk-5", naming(5, stored(5, "G")))
        store.add("chk-6", naming(6, stored(6, "G")))
        wanted = naming(7, stored(5, "G"), stored(7, "I"))
        assert store.resolved(wanted) is wanted

    def test_is_refused_when_there_is_no_copy(self) -> None:
        store = CompletedSnapshots(1, None)
        store.add("chk-5", naming(5, stored(5, "G")))
        store.add("chk-6", naming(6, stored(6, "H")))
        with pytest.raises(SharedFileGone, match="older checkpoints are missing: chk-5-G"):
            store.resolved(naming(7, stored(5, "G")))
