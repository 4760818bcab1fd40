from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from tests.fault_fs import Fault, FaultFileSystem, FaultKind
from tests.unit.storage.keyed_manifests import JOB, manifest
from unistream.base.errors import ConfigError, CorruptSnapshot, Transient
from unistream.base.ids import CheckpointId
from unistream.model.file_ref import FileRef
from unistream.model.snapshot_kind import SnapshotKind
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.location import open_location
from unistream.storage.state_files import FsStateReader, FsStateWriter


class Job:
    """A storage with one job, whose checkpoints share files."""

    def __init__(self, root: str, local: Path) -> None:
        self.fs = FaultFileSystem(fsspec.filesystem("memory")) if root.startswith("memory:") else None
        self.storage = FsCheckpointStorage(root, fs=self.fs)
        self.local = local
        self.local.write_bytes(b"rows" * 1000)

    def directory(self, number: int) -> str:
        return self.storage.directory(JOB, CheckpointId(number), SnapshotKind.CHECKPOINT, None)

    def upload(self, directory: str) -> FileRef:
        return FsStateWriter(directory, fs=self.fs).copy("000012.sst", self.local, shared=True)

    def checkpoint(self, number: int, *refs: FileRef) -> str:
        directory = self.directory(number)
        self.storage.write_manifest(directory, manifest(number, *refs, is_native=True))
        return directory

    def is_there(self, directory: str, ref: FileRef) -> bool:
        try:
            return FsStateReader(directory, fs=self.fs).read(ref) == self.local.read_bytes()
        except CorruptSnapshot:
            return False


@pytest.fixture(params=["local", "memory"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    root = str(tmp_path / "root") if request.param == "local" else f"memory://{tmp_path.name}"
    return Job(root, tmp_path / "000012.sst")


def test_a_shared_file_lies_beside_the_checkpoints_and_outlives_the_one_that_stored_it(job: Job) -> None:
    ref = job.upload(job.directory(1))
    assert ref.shared
    first = job.checkpoint(1, ref)
    second = job.checkpoint(2, ref)
    job.storage.discard(first)
    assert [snapshot.manifest for snapshot in job.storage.completed(JOB)] == [
        manifest(2, ref, is_native=True)
    ]
    assert job.is_there(second, ref)


def test_a_shared_file_that_is_missing_is_named_when_the_manifest_is_read(job: Job) -> None:
    ref = job.upload(job.directory(1))
    directory = job.checkpoint(1, ref)
    missing = open_location(directory.replace("chk-1", "shared"), job.fs).below(ref.path)
    missing.fs.rm_file(missing.path)
    with pytest.raises(CorruptSnapshot, match=f"shared/{ref.path} is missing"):
        job.storage.read_manifest(directory)


def test_files_that_nothing_needs_go_with_the_directory_and_again_is_fine(job: Job) -> None:
    one, other = (job.upload(job.directory(1)) for _ in range(2))
    first, second = job.checkpoint(1, one, other), job.checkpoint(2, other)
    for _ in range(2):
        job.storage.discard(first, [one.path])
    assert not job.is_there(second, one)
    assert job.is_there(second, other)


def test_what_a_checkpoint_names_that_is_there_stays_whoever_asks(job: Job) -> None:
    named, late = (job.upload(job.directory(1)) for _ in range(2))
    first = job.checkpoint(1, named)
    for _ in range(2):
        job.storage.discard_shared(JOB, [named.path, late.path])
    assert (job.is_there(first, named), job.is_there(first, late)) == (True, False)


def test_files_stay_while_an_older_checkpoint_could_not_be_removed(job: Job) -> None:
    ref = job.upload(job.directory(1))
    first, second = job.checkpoint(1, ref), job.checkpoint(2, ref)
    job.storage.discard(second, [ref.path])
    assert job.is_there(first, ref)
    job.storage.discard(first)
    assert job.storage.clean_shared(first) == 1
    assert not job.is_there(first, ref)


def test_a_checkpoint_that_nobody_knows_of_keeps_its_own_files_only(job: Job) -> None:
    """Whether 1 was written is unknown, so it stays for ever; what is newer must not stay with it."""
    one, newer = job.upload(job.directory(1)), job.upload(job.directory(2))
    unknown = job.checkpoint(1, one)
    second, third = job.checkpoint(2, one, newer), job.checkpoint(3)
    job.storage.discard(second, [one.path, newer.path])
    assert job.is_there(unknown, one)
    assert not job.is_there(third, newer)


def test_files_of_a_checkpoint_that_was_given_up_go_although_older_ones_are_kept(job: Job) -> None:
    kept, own = job.upload(job.directory(1)), job.upload(job.directory(2))
    first = job.checkpoint(1, kept)
    job.storage.discard(job.directory(2), [own.path])
    assert job.is_there(first, kept)
    assert not job.is_there(first, own)


def test_files_stay_if_an_older_checkpoint_cannot_be_read(job: Job) -> None:
    ref = job.upload(job.directory(1))
    first, second = job.checkpoint(1, ref), job.checkpoint(2, ref)
    fs = job.fs or fsspec.filesystem("file")
    fs.pipe_file(f"{first.removeprefix('file://')}/_metadata", b"{}", mode="overwrite")
    with pytest.raises(CorruptSnapshot):
        job.storage.discard(second, [ref.path])
    assert job.is_there(first, ref)


def test_a_failure_between_the_directory_and_its_files_leaves_orphans_that_are_found(tmp_path: Path) -> None:
    job = Job(f"memory://{tmp_path.name}-killed", tmp_path / "000012.sst")
    assert job.fs is not None
    ref = job.upload(job.directory(1))
    first = job.checkpoint(1, ref)
    job.fs.inject(
        Fault(kind=FaultKind.RAISE_BEFORE, operation="rm_file", path="shared", error=OSError("busy"))
    )
    with pytest.raises(Transient, match="busy"):
        job.storage.discard(first, [ref.path])
    assert job.storage.completed(JOB) == []
    assert job.is_there(first, ref)
    assert job.storage.clean_shared(first) == 1


def test_cleaning_keeps_what_is_named_and_removes_what_writers_left(job: Job) -> None:
    directory = job.directory(1)
    kept, orphan = job.upload(directory), job.upload(directory)
    job.checkpoint(1, kept)
    if job.fs is None:
        shared = Path(directory.removeprefix("file://")).parent / "shared"
        (shared / f".{orphan.path}.0123.tmp").write_bytes(b"half")
    assert job.storage.clean_shared(directory) == (2 if job.fs is None else 1)
    assert job.is_there(directory, kept)
    assert not job.is_there(directory, orphan)
    assert job.storage.clean_shared(directory) == 0


def test_cleaning_while_tasks_store_leaves_alone_what_they_store(job: Job) -> None:
    """Checkpoint 2 is complete, 3 is under way; 1 was given up, and nothing was reported of it."""
    given_up, complete, under_way = (job.directory(number) for number in (1, 2, 3))
    orphan, old, new = job.upload(given_up), job.upload(complete), job.upload(under_way)
    hidden = Path(complete.removeprefix("file://")).parent / "shared" / f".{orphan.path}.0123.tmp"
    if job.fs is None:
        hidden.write_bytes(b"half")
    job.checkpoint(2)
    assert job.storage.clean_shared(complete, CheckpointId(2)) == (2 if job.fs is None else 1)
    there = [job.is_there(complete, ref) for ref in (orphan, old, new)]
    assert there == [False, True, True]
    assert not hidden.exists()


def test_cleaning_beside_a_directory_that_has_gone(job: Job) -> None:
    gone, directory = job.directory(1), job.directory(2)
    orphan = job.upload(gone)
    job.storage.discard(gone)
    job.checkpoint(2)
    assert job.storage.clean_shared(gone) == 1
    assert not job.is_there(directory, orphan)


def test_files_with_names_of_before_are_never_taken_for_older_ones(job: Job) -> None:
    directory = job.checkpoint(9)
    fs = job.fs or fsspec.filesystem("file")
    folder = f"{directory.removeprefix('file://').rpartition('/')[0]}/shared"
    fs.makedirs(folder, exist_ok=True)
    fs.pipe_file(f"{folder}/state-000012-sst-0123", b"rows")
    assert job.storage.clean_shared(directory, CheckpointId(9)) == 0
    assert job.storage.clean_shared(directory) == 1


def test_cleaning_removes_nothing_if_a_manifest_cannot_be_read(job: Job) -> None:
    orphan = job.upload(job.directory(1))
    directory = job.checkpoint(1)
    fs = job.fs or fsspec.filesystem("file")
    fs.pipe_file(f"{directory.removeprefix('file://')}/_metadata", b"{}", mode="overwrite")
    with pytest.raises(CorruptSnapshot):
        job.storage.clean_shared(directory)
    assert job.is_there(directory, orphan)


def test_a_late_writer_of_an_aborted_checkpoint_stores_nothing(tmp_path: Path) -> None:
    job = Job(str(tmp_path / "root"), tmp_path / "000012.sst")
    directory = job.directory(1)
    job.storage.discard(directory)
    with pytest.raises(Transient, match="aborted"):
        job.upload(directory)


def test_a_savepoint_shares_nothing(job: Job) -> None:
    directory = job.storage.directory(JOB, CheckpointId(1), SnapshotKind.SAVEPOINT, None)
    with pytest.raises(ConfigError, match="has no shared files"):
        job.upload(directory)
    lying = FileRef(path="x", size=1, sha256="", shared=True)
    with pytest.raises(CorruptSnapshot, match="cannot be a shared file"):
        FsStateReader(directory, fs=job.fs).read(lying)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda job, name: job.storage.discard_shared(JOB, [name]), id="discard"),
        pytest.param(
            lambda job, name: FsStateReader(job.directory(1), fs=job.fs).read(
                FileRef(path=name, size=1, sha256="", shared=True)
            ),
            id="read",
        ),
    ],
)
@pytest.mark.parametrize("name", ["../chk-1/_metadata", "a/../../x", "", "/etc/passwd"])
def test_a_name_that_leads_elsewhere_is_refused(
    job: Job, call: Callable[[Job, str], None], name: str
) -> None:
    with pytest.raises((ConfigError, CorruptSnapshot)):
        call(job, name)


def test_a_large_file_is_copied_and_fetched_with_its_checksum(job: Job, tmp_path: Path) -> None:
    job.local.write_bytes(b"0123456789" * 2_000_000)
    directory = job.directory(1)
    ref = job.upload(directory)
    FsStateReader(directory, fs=job.fs).fetch(ref, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == job.local.read_bytes()
    wrong = FileRef(path=ref.path, size=ref.size, sha256="0" * 64, shared=True)
    with pytest.raises(CorruptSnapshot, match="checksum"):
        FsStateReader(directory, fs=job.fs).fetch(wrong, tmp_path / "again")
