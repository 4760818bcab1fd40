"""The simulated storage removes shared files by the rules of the real one, and the backend of the simulation
shares them as it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pytest

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.model.file_ref import FileRef
from unistream.model.keyed_snapshot import RestoredFiles
from unistream.model.snapshot import (
    KEY_GROUP_COLUMN,
    KeyedShare,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorRestore,
    OperatorSnapshot,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.storage import CheckpointStorage, StateWriter
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.state_files import FsStateWriter
from unistream.testing.sim.checkers import VisibleOutputs, Writes
from unistream.testing.sim.sst import SstState
from unistream.testing.sim.store import MasterStorage, SimStore
from unistream.testing.sim.world import Violation, World

JOB, UID = JobId("0123456789abcdef0123456789abcdef"), OperatorUid("count")
SCHEMA = pa.schema([(KEY_GROUP_COLUMN, pa.uint16()), ("k", pa.int64()), ("value", pa.int64())])
LOCAL = Path("000001.sst")


def manifest(number: int, *refs: FileRef) -> Manifest:
    files = tuple(NativeFile(name=ref.path, ref=ref, key_groups=(0, 1)) for ref in refs)
    native = NativeHandle(format="x", key_groups=(0, 1), files=files, descriptors=b"")
    return manifest_of(number, OperatorStateHandle(native=(native,)))


def manifest_of(number: int, handle: OperatorStateHandle) -> Manifest:
    vertex = VertexSnapshot(
        vertex=VertexId("ab" * 16),
        name="count",
        operators=(UID,),
        parallelism=1,
        max_parallelism=2,
        subtasks=(TaskSnapshot(operators={UID: handle}),),
    )
    return Manifest(
        job=JOB,
        job_name="job",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(number),
        kind=SnapshotKind.CHECKPOINT,
        timestamp_ms=1,
        vertices=(vertex,),
    )


class Side(Protocol):
    """A storage, real or simulated."""

    storage: CheckpointStorage

    def writer(self, directory: str) -> StateWriter: ...

    def shared(self) -> set[str]:
        """Names in the folder that the job's checkpoints share."""

    def local(self) -> Path:
        """A local file to upload."""


class Real:
    def __init__(self, folder: Path) -> None:
        self.storage: CheckpointStorage = FsCheckpointStorage(str(folder / "root"))
        self._folder = folder
        self.local().write_bytes(b"rows")

    def writer(self, directory: str) -> StateWriter:
        return FsStateWriter(directory)

    def shared(self) -> set[str]:
        folder = self._folder / "root" / JOB / "shared"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def local(self) -> Path:
        return self._folder / LOCAL


class Simulated:
    def __init__(self, _folder: Path) -> None:
        self.world = World(0)
        self.store = SimStore(self.world)
        self.store.removal_ms = 1.0
        witness = Writes(self.store, VisibleOutputs(self.world, {}))
        self.storage: CheckpointStorage = MasterStorage(self.store, LeaderEpoch(0), witness)
        self.world.disk[LOCAL] = b"rows"

    def writer(self, directory: str) -> StateWriter:
        return self.store.writer(directory)

    def shared(self) -> set[str]:
        return set(self.store.shared.shared_of(f"sim://{JOB}/chk-1"))

    def local(self) -> Path:
        return LOCAL


class Job:
    """Checkpoints 1 to 4 of one job."""

    def __init__(self, side: Side) -> None:
        self.storage = side.storage
        self.shared = side.shared
        self._side = side
        self.at = {
            n: side.storage.directory(JOB, CheckpointId(n), SnapshotKind.CHECKPOINT, None)
            for n in (1, 2, 3, 4)
        }

    def upload(self, number: int) -> FileRef:
        return self._side.writer(self.at[number]).copy(LOCAL.name, self._side.local(), shared=True)

    def complete(self, number: int, *refs: FileRef) -> None:
        self.storage.write_manifest(self.at[number], manifest(number, *refs))


@pytest.fixture(params=[Real, Simulated], ids=["real", "simulated"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    make: Callable[[Path], Side] = request.param
    return Job(make(tmp_path))


def test_shared_files_say_for_which_checkpoint_they_were_stored(job: Job) -> None:
    one, other = job.upload(1), job.upload(2)
    assert (one.shared, one.stored_for, other.stored_for) == (True, 1, 2)
    assert job.shared() == {one.path, other.path}


def test_files_go_with_their_directory_and_again_is_fine(job: Job) -> None:
    old, kept = job.upload(1), job.upload(1)
    job.complete(1, old, kept)
    job.complete(2, kept)
    for _ in range(2):
        job.storage.discard(job.at[1], [old.path])
    assert job.shared() == {kept.path}


def test_what_an_older_checkpoint_names_stays_and_nothing_else_does(job: Job) -> None:
    one, two, aborted = job.upload(1), job.upload(2), job.upload(3)
    job.complete(1, one)
    job.complete(2, one, two)
    job.storage.discard(job.at[3], [aborted.path])
    assert job.shared() == {one.path, two.path}
    job.complete(4)
    job.storage.discard(job.at[2], [one.path, two.path])
    assert job.shared() == {one.path}


def test_files_of_a_late_acknowledgement_go(job: Job) -> None:
    late, kept = job.upload(1), job.upload(2)
    job.complete(2, kept)
    job.storage.discard_shared(JOB, [late.path, kept.path])
    assert job.shared() == {kept.path}


@pytest.mark.parametrize(("before", "left"), [(CheckpointId(2), {1, 2}), (None, {1})])
def test_a_sweep_removes_what_nobody_names(job: Job, before: CheckpointId | None, left: set[int]) -> None:
    """File 0 was stored for checkpoint 1 and named by nobody; 1 is named; 2 is of one that is under way."""
    files = [job.upload(1), job.upload(1), job.upload(3)]
    job.complete(1, files[1])
    job.complete(2)
    removed = job.storage.clean_shared(job.at[2], before)
    assert job.shared() == {files[n].path for n in left}
    assert removed == len(files) - len(left)


# --- the judges ---------------------------------------------------------------------------------------


def test_removing_what_a_checkpoint_names_is_a_violation(tmp_path: Path) -> None:
    job = Job(Simulated(tmp_path))
    ref = job.upload(1)
    job.complete(1)
    job.complete(2, ref)
    with pytest.raises(Violation, match=rf"^I8: .*{ref.path} is removed, but .*/chk-2 refers to it$"):
        job.storage.discard(job.at[1], [ref.path])


def test_a_manifest_that_names_what_has_gone_is_a_violation(tmp_path: Path) -> None:
    job = Job(Simulated(tmp_path))
    ref = job.upload(1)
    job.storage.discard_shared(JOB, [ref.path])
    with pytest.raises(Violation, match=rf"^I7: .*/chk-2 refers to {ref.path}, which is not there$"):
        job.complete(2, ref)


def test_a_manifest_with_another_checksum_is_a_violation(tmp_path: Path) -> None:
    job = Job(Simulated(tmp_path))
    ref = job.upload(1)
    wrong = FileRef(path=ref.path, size=ref.size, sha256="0" * 64, shared=True)
    with pytest.raises(Violation, match=r"^I7: .*another content$"):
        job.complete(1, wrong)


# --- the backend --------------------------------------------------------------------------------------


class Task:
    """A task that counts, on a simulated storage."""

    def __init__(self, side: Simulated, *, merge_at: int = 3, key_groups: tuple[int, int] = (0, 1)) -> None:
        self._side = side
        self.state = SstState(
            disk=side.world.disk,
            folder=Path(f"attempt-{key_groups}"),
            schema=SCHEMA,
            key_groups=key_groups,
            max_parallelism=2,
            merge_at=merge_at,
        )

    def snapshot(self, number: int, *, native: bool = True) -> OperatorStateHandle:
        side, snapshot = self._side, self.state.snapshot(CheckpointId(number))
        directory = side.storage.directory(JOB, CheckpointId(number), SnapshotKind.CHECKPOINT, None)
        written, _ = write_task_snapshot(
            {UID: OperatorSnapshot(state=snapshot)}, side.writer(directory), finished=False, native=native
        )
        return written.operators[UID]


def shared_of(handle: OperatorStateHandle) -> list[int | None]:
    """For which checkpoints the files of a snapshot were stored."""
    return [file.ref.stored_for for native in handle.native for file in native.files if file.ref.shared]


def test_a_snapshot_stores_what_has_changed_and_refers_to_what_a_complete_one_has_stored(
    tmp_path: Path,
) -> None:
    task, stored = Task(Simulated(tmp_path)), []
    for number in range(1, 6):
        task.state.put(number, 1)
        stored.append(shared_of(task.snapshot(number)))
        if number != 2:  # it is never heard of
            task.state.notify_complete(CheckpointId(number))
    assert stored == [[1], [1, 2], [1, 3, 3], [4], [4, 5]], "the fourth one has merged"


def test_local_links_are_gone_when_they_are_released(tmp_path: Path) -> None:
    side = Simulated(tmp_path)
    before = dict(side.world.disk)
    task = Task(side)
    task.state.put(7, 1)
    task.snapshot(1)
    assert side.world.disk == before


@pytest.mark.parametrize("native", [True, False])
def test_every_new_subtask_finds_the_counts_of_its_own_keys(tmp_path: Path, native: bool) -> None:
    side = Simulated(tmp_path)
    task = Task(side)
    for number, key in enumerate((1, 2, 3, 4, 5, 1, 2), 1):
        task.state.put(key, 10 * number)
        handle = task.snapshot(number, native=native)
    directory = f"sim://{JOB}/chk-7"
    restore = OperatorRestore(
        native=handle.native,
        keyed=tuple(KeyedShare(handle=table, start=0, stop=len(table.key_groups)) for table in handle.keyed),
    )
    counts = []
    for group in (0, 1):
        folder = tmp_path / str(group)
        folder.mkdir()
        found = read_operator_state(restore, CheckpointId(7), side.store.reader(directory), folder)
        assert all(isinstance(part, RestoredFiles) is native for part in found.state)
        half = Task(side, key_groups=(group, group))
        half.state.restore(found.state)
        counts.append({key: half.state.get(key) for key in range(1, 6) if half.state.get(key)})
        assert list(folder.iterdir()) == [], "what was fetched is removed"
    assert counts[0] | counts[1] == {1: 60, 2: 70, 3: 30, 4: 40, 5: 50}
    assert not counts[0].keys() & counts[1].keys()
