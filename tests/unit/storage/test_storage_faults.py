"""Storage faults: rows 12 to 15 of the fault matrix, and paths that lead elsewhere."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import fsspec
import msgspec
import pytest

from tests.fault_fs import Fault, FaultFileSystem, FaultKind, PowerCut
from tests.unit.storage.keyed_manifests import JOB, manifest
from unistream.base.durable_files import temporary_of
from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    Fenced,
    OutcomeUnknown,
    Transient,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import CheckpointId, JobId
from unistream.model.file_ref import FileRef
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.storage import Created
from unistream.storage.durable_local import DurableLocalFileSystem, NotWritten
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.location import READ_ATTEMPTS, StoragePath, open_location
from unistream.storage.state_files import FsStateReader, FsStateWriter


def no_pause(_seconds: float) -> None:
    return


@pytest.fixture(params=["local", "memory"])
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FsCheckpointStorage, FaultFileSystem]:
    inner = DurableLocalFileSystem() if request.param == "local" else fsspec.filesystem("memory")
    root = str(tmp_path / "root") if request.param == "local" else f"memory://{uuid4().hex}"
    fs = FaultFileSystem(inner)
    return FsCheckpointStorage(root, fs=fs, pause=no_pause), fs


Faulty = tuple[FsCheckpointStorage, FaultFileSystem]


def begin(storage: FsCheckpointStorage, n: int = 1) -> str:
    return storage.directory(JOB, CheckpointId(n), SnapshotKind.CHECKPOINT, None)


def on_manifest(kind: FaultKind, operation: str = "pipe_file", times: int = 1) -> Fault:
    return Fault(kind=kind, operation=operation, path="_metadata", times=times)


# --- row 12: the outcome of a create is unknown ---------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        pytest.param(on_manifest(FaultKind.APPLY_THEN_RAISE), Created.EXISTS, id="it had happened"),
        pytest.param(on_manifest(FaultKind.RAISE_BEFORE), Created.NEW, id="it had not happened"),
    ],
)
def test_a_create_that_timed_out_is_asked_about(faulty: Faulty, fault: Fault, outcome: Created) -> None:
    storage, fs = faulty
    directory = begin(storage)
    fs.inject(fault)
    assert storage.write_manifest(directory, manifest(1)) is outcome
    assert storage.read_manifest(directory) == manifest(1)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([on_manifest(FaultKind.RAISE_BEFORE, times=2)], id="the store is silent"),
        pytest.param(
            [
                on_manifest(FaultKind.APPLY_THEN_RAISE),
                on_manifest(FaultKind.RAISE_BEFORE, "cat_file", READ_ATTEMPTS),
            ],
            id="it had happened but cannot be read back",
        ),
    ],
)
def test_a_create_whose_outcome_stays_unknown_deletes_nothing(faulty: Faulty, faults: list[Fault]) -> None:
    storage, fs = faulty
    directory = begin(storage)
    fs.inject(*faults)
    with pytest.raises(OutcomeUnknown, match="may or may not have been written"):
        storage.write_manifest(directory, manifest(1))
    assert not [call for call in fs.calls if call[0].startswith("rm")]


def test_another_leader_may_win_while_the_outcome_is_unknown(faulty: Faulty) -> None:
    storage, fs = faulty
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1, at_ms=8))
    fs.inject(on_manifest(FaultKind.RAISE_BEFORE))
    with pytest.raises(Fenced):
        storage.write_manifest(directory, manifest(1))
    assert storage.read_manifest(directory) == manifest(1, at_ms=8)


# --- row 13: reads that fail or lie ---------------------------------------------------------------


@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE, FaultKind.BIT_FLIP])
@pytest.mark.parametrize("operation", ["pipe_file", "cat_file"])
@pytest.mark.parametrize("read", ["read", "open_range"])
def test_damaged_state_is_never_returned(faulty: Faulty, kind: FaultKind, operation: str, read: str) -> None:
    storage, fs = faulty
    directory = begin(storage)
    fs.inject(Fault(kind=kind, operation=operation, path="state-"))
    ref = FsStateWriter(directory, fs=fs).write("count", bytes(1000))
    with pytest.raises(CorruptSnapshot, match=r"state-count-.*(truncated|checksum)"):
        getattr(FsStateReader(directory, fs=fs), read)(ref)


def test_damaged_local_state_is_never_mapped(tmp_path: Path) -> None:
    storage = FsCheckpointStorage(str(tmp_path))
    directory = begin(storage)
    ref = FsStateWriter(directory).write("count", bytes(1000))
    file = Path(directory.removeprefix("file://")) / ref.path
    file.chmod(0o644)
    file.write_bytes(bytes(999) + b"\x01")
    with pytest.raises(CorruptSnapshot, match="checksum"):
        FsStateReader(directory).open_range(ref)
    file.write_bytes(bytes(500))
    with pytest.raises(CorruptSnapshot, match="instead of 1000 B"):
        FsStateReader(directory).open_range(ref)
    storage.write_manifest(directory, manifest(1, ref))
    with pytest.raises(CorruptSnapshot, match="instead of 1000 B: it is truncated"):
        storage.read_manifest(directory)


@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE, FaultKind.BIT_FLIP])
def test_a_damaged_manifest_names_its_file(faulty: Faulty, kind: FaultKind) -> None:
    storage, fs = faulty
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    fs.inject(on_manifest(kind, "cat_file"))
    with pytest.raises(CorruptSnapshot, match=f"{directory}/_metadata"):
        storage.read_manifest(directory)


@pytest.mark.parametrize("length", range(0, 620, 31))
def test_every_truncation_of_a_manifest_is_found(tmp_path: Path, length: int) -> None:
    storage = FsCheckpointStorage(str(tmp_path))
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    file = Path(directory.removeprefix("file://")) / "_metadata"
    content = file.read_bytes()
    assert length < len(content)
    file.write_bytes(content[:length])
    with pytest.raises(CorruptSnapshot, match="_metadata: not a manifest, or a truncated one"):
        storage.read_manifest(directory)
    with pytest.raises(CorruptSnapshot, match="_metadata"):
        storage.completed(JOB)


def test_a_throttled_read_is_repeated_a_bounded_number_of_times() -> None:
    fs = FaultFileSystem(fsspec.filesystem("memory"))
    fs.pipe_file("/throttled/x", b"content")
    pauses: list[float] = []
    location = open_location("memory://throttled", fs, pauses.append).below("x")
    throttled = OSError("503 Slow Down")
    fs.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="cat_file", times=2, error=throttled))
    assert location.read() == b"content"
    assert pauses == [0.1, 0.4]
    fs.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="cat_file", times=99, error=throttled))
    with pytest.raises(Unreachable, match="503 Slow Down"):
        location.read()
    assert len(pauses) == 4


def test_a_file_that_disappears_after_it_was_listed_is_an_error(faulty: Faulty) -> None:
    storage, fs = faulty
    directory = begin(storage)
    ref = FsStateWriter(directory, fs=fs).write("count", b"x")
    fs.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="cat_file", error=FileNotFoundError("gone")))
    with pytest.raises(CorruptSnapshot, match="is missing"):
        FsStateReader(directory, fs=fs).read(ref)


@pytest.mark.parametrize(
    "inner", [DurableLocalFileSystem(), fsspec.filesystem("memory")], ids=["local", "memory"]
)
def test_a_checkpoint_that_its_job_removes_while_it_is_read_is_not_there(
    tmp_path: Path, inner: fsspec.AbstractFileSystem
) -> None:
    fs = FaultFileSystem(
        inner, lambda _operation: FsCheckpointStorage(str(root), fs=inner).discard(directory)
    )
    root = tmp_path if isinstance(inner, DurableLocalFileSystem) else f"memory://{uuid4().hex}"
    storage = FsCheckpointStorage(str(root), fs=fs)
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    fs.inject(on_manifest(FaultKind.SLOW, "cat_file"))
    with pytest.raises(ConfigError, match=f"there is no checkpoint or savepoint at {directory}"):
        storage.read_manifest(directory)


def test_a_slow_store_is_only_slow() -> None:
    waited: list[str] = []
    fs = FaultFileSystem(fsspec.filesystem("memory"), waited.append)
    storage = FsCheckpointStorage(f"memory://{uuid4().hex}", fs=fs)
    fs.inject(on_manifest(FaultKind.SLOW))
    assert storage.write_manifest(begin(storage), manifest(1)) is Created.NEW
    assert waited == ["pipe_file"]


# --- row 14: the disk is full ---------------------------------------------------------------------


def full(_handle: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_no_partial_file_and_is_no_unknown_outcome(tmp_path: Path) -> None:
    directory = begin(FsCheckpointStorage(str(tmp_path)))
    fs = DurableLocalFileSystem(fsync=full)
    with pytest.raises(Transient, match="No space left"):
        FsStateWriter(directory, fs=fs).write("count", bytes(100_000))
    with pytest.raises(Transient, match="No space left"):
        FsCheckpointStorage(str(tmp_path), fs=fs).write_manifest(directory, manifest(1))
    assert os.listdir(directory.removeprefix("file://")) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file in the way")
    with pytest.raises((Transient, Unreachable), match=f"{tmp_path}/root"):
        begin(FsCheckpointStorage(str(tmp_path / "root")))


def test_a_failed_removal_can_be_repeated_and_leaves_no_snapshot(faulty: Faulty) -> None:
    storage, fs = faulty
    directory = begin(storage)
    ref = FsStateWriter(directory, fs=fs).write("count", b"x")
    storage.write_manifest(directory, manifest(1, ref))
    fs.inject(Fault(kind=FaultKind.RAISE_BEFORE, operation="rm", error=OSError("busy")))
    with pytest.raises(Transient, match="busy"):
        storage.discard(directory)
    assert storage.completed(JOB) == []
    storage.discard(directory)
    assert not fs.exists(directory)


# --- row 15: power is cut -------------------------------------------------------------------------


def test_what_was_said_to_be_durable_survives_a_power_cut(tmp_path: Path) -> None:
    power = PowerCut(tmp_path)
    fs = DurableLocalFileSystem(fsync=power.fsync)
    storage = FsCheckpointStorage(str(tmp_path / "a" / "b"), fs=fs)
    first = begin(storage, 1)
    ref = FsStateWriter(first, fs=fs).write("count", b"first")
    storage.write_manifest(first, manifest(1, ref))
    second = begin(storage, 2)
    later = FsStateWriter(second, fs=fs).write("count", b"second")
    power.cut()
    assert [s.manifest for s in storage.completed(JOB)] == [manifest(1, ref)]
    assert FsStateReader(first).read(ref) == b"first"
    assert FsStateReader(second).read(later) == b"second"


def test_a_removed_manifest_does_not_come_back_after_a_power_cut(tmp_path: Path) -> None:
    power = PowerCut(tmp_path)
    storage = FsCheckpointStorage(str(tmp_path / "root"), fs=DurableLocalFileSystem(fsync=power.fsync))
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    storage.discard(directory)
    power.cut()
    assert storage.completed(JOB) == []


def test_the_power_cut_does_drop_what_was_not_synced(tmp_path: Path) -> None:
    power = PowerCut(tmp_path)
    (tmp_path / "no-sync").write_bytes(b"content")
    plain = DurableLocalFileSystem(fsync=lambda _handle: None)
    plain.pipe_file(str(tmp_path / "not-really"), b"content")
    power.cut()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", range(1, 4))
def test_a_manifest_is_whole_or_absent_whenever_a_sync_fails(tmp_path: Path, failing: int) -> None:
    directory = begin(FsCheckpointStorage(str(tmp_path)))
    calls: list[int] = []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) == failing:
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(handle)

    storage = FsCheckpointStorage(str(tmp_path), fs=DurableLocalFileSystem(fsync=fsync))
    try:
        created = storage.write_manifest(directory, manifest(1))
    except Transient:
        assert FsCheckpointStorage(str(tmp_path)).completed(JOB) == []
    else:
        assert created in Created
        assert storage.read_manifest(directory) == manifest(1)


def test_a_reader_never_sees_a_name_before_the_content(tmp_path: Path) -> None:
    target = tmp_path / "x"
    seen: list[bool] = []

    def fsync(handle: int) -> None:
        seen.append(target.exists())
        os.fsync(handle)

    fs = DurableLocalFileSystem(fsync=fsync)
    fs.pipe_file(str(target), b"one")
    assert seen == [False, True]  # synced before it had its name; then the directory
    with pytest.raises(FileExistsError):
        fs.pipe_file(str(target), b"two")
    assert target.read_bytes() == b"one"
    fs.pipe_file(str(target), b"three", mode="overwrite")
    assert target.read_bytes() == b"three"
    assert os.listdir(tmp_path) == ["x"]
    with pytest.raises(NotWritten):
        fs.pipe_file(str(tmp_path / "absent" / "x"), b"")


# --- any one fault at any one step ----------------------------------------------------------------


def two_checkpoints(storage: FsCheckpointStorage, fs: object, done: list[str]) -> None:
    """What a job does to its storage; `done` holds what was acknowledged."""
    for n in (1, 2):
        directory = begin(storage, n)
        refs = [FsStateWriter(directory, fs=fs).write("count", b"%d" % n * size) for size in (10, 1000)]
        storage.write_manifest(directory, manifest(n, *refs))
        done.append(f"completed {n}")
    done.append("discarding 1")
    storage.discard(storage.completed(JOB)[0].directory)
    done.append("discarded 1")


def assert_recovers(storage: FsCheckpointStorage, done: list[str]) -> None:
    """All that is listed is whole; what was acknowledged and not discarded is listed (I7, I8)."""
    listed = storage.completed(JOB)
    for snapshot in listed:
        reader = FsStateReader(snapshot.directory)
        for ref in referenced_files(snapshot.manifest):
            assert reader.read(ref)
    numbers = {int(snapshot.manifest.checkpoint_id) for snapshot in listed}
    assert ("completed 1" in done and "discarding 1" not in done) <= (1 in numbers)
    assert ("completed 2" in done) <= (2 in numbers)
    assert ("discarded 1" in done) <= (1 not in numbers)


@pytest.mark.parametrize("kind", [FaultKind.RAISE_BEFORE, FaultKind.APPLY_THEN_RAISE])
@pytest.mark.parametrize("step", range(60))
def test_after_any_one_fault_the_storage_is_consistent(tmp_path: Path, step: int, kind: FaultKind) -> None:
    fs = FaultFileSystem(DurableLocalFileSystem())
    fs.inject(Fault(kind=kind, operation="", skip=step))
    done: list[str] = []
    with suppress(UnistreamError):
        two_checkpoints(FsCheckpointStorage(str(tmp_path), fs=fs, pause=no_pause), fs, done)
    assert_recovers(FsCheckpointStorage(str(tmp_path)), done)


def test_the_steps_above_cover_every_operation(tmp_path: Path) -> None:
    fs = FaultFileSystem(DurableLocalFileSystem())
    two_checkpoints(FsCheckpointStorage(str(tmp_path), fs=fs), fs, [])
    assert 20 < len(fs.calls) <= 60


class PowerIsOut(BaseException):
    """Nothing runs any more, no `except` and (as far as the disk is concerned) no `finally`."""


SYNCS_OF_TWO_CHECKPOINTS = 17


@pytest.mark.parametrize("sync", range(1, SYNCS_OF_TWO_CHECKPOINTS + 1))
@pytest.mark.parametrize("before", [True, False], ids=["before the sync", "after the sync"])
def test_power_may_be_cut_at_every_sync(tmp_path: Path, sync: int, before: bool) -> None:
    power = PowerCut(tmp_path)
    count = 0

    def fsync(handle: int) -> None:
        nonlocal count
        count += 1
        if count > sync or (count == sync and before):
            raise PowerIsOut
        power.fsync(handle)
        if count == sync:
            raise PowerIsOut

    fs = DurableLocalFileSystem(fsync=fsync)
    done: list[str] = []
    with pytest.raises(PowerIsOut):
        two_checkpoints(FsCheckpointStorage(str(tmp_path / "root"), fs=fs), fs, done)
    power.cut()
    assert_recovers(FsCheckpointStorage(str(tmp_path / "root")), done)


def test_a_manifest_that_exists_is_durable_also_when_its_writer_died_early(tmp_path: Path) -> None:
    power = PowerCut(tmp_path)
    root = str(tmp_path / "root")
    directory = begin(FsCheckpointStorage(root, fs=DurableLocalFileSystem(fsync=power.fsync)))
    syncs = iter([power.fsync])

    def dies_before_the_directory_is_synced(handle: int) -> None:
        sync = next(syncs, None)
        if sync is None:
            raise PowerIsOut
        sync(handle)

    dying = DurableLocalFileSystem(fsync=dies_before_the_directory_is_synced)
    with pytest.raises(PowerIsOut):
        FsCheckpointStorage(root, fs=dying).write_manifest(directory, manifest(1))
    standby = FsCheckpointStorage(root, fs=DurableLocalFileSystem(fsync=power.fsync))
    assert standby.write_manifest(directory, manifest(1)) is Created.EXISTS
    power.cut()
    assert [snapshot.manifest for snapshot in standby.completed(JOB)] == [manifest(1)]


def test_two_checkpoints_sync_as_often_as_the_test_above_assumes(tmp_path: Path) -> None:
    count = 0

    def fsync(handle: int) -> None:
        nonlocal count
        count += 1
        os.fsync(handle)

    fs = DurableLocalFileSystem(fsync=fsync)
    two_checkpoints(FsCheckpointStorage(str(tmp_path / "root"), fs=fs), fs, [])
    assert count == SYNCS_OF_TWO_CHECKPOINTS


# --- paths that lead elsewhere --------------------------------------------------------------------

ESCAPES = [
    "..", "../x", "x/..", "x/../y", "../../../../etc/passwd", "./x", ".", "x/./y", "", "/", "//", "x//y",
    "x/",
    "/x", "/etc/passwd", "\\x", "..\\x", "x\\..\\y", "C:\\x", "C:/x", "c:x", "\\\\host\\share", "x\0", "\0",
    "x\0/../y", "%2e%2e/x", "%2e%2e%2fx", "..%2fx", "%252e%252e%252fx", "..%5cx", "%00", "x%00y", "..%c0%afx",
    "．．/x", "‥/x", "x／y", "~", "~/x", "~root/x", "$HOME/x", "${HOME}", "`id`", "$(id)", "x;y", "x|y",
    "x&y",
    "x\ny", "x\ry", "x\ty", " x", "x ", "x y", "...", "..../x", "x..", "x..y", ".hidden", "-\u202e", "file:///x",
    "memory://x", "s3://b/x", "http://h/x", "x?y", "x#y", "x*", "[x]", "x:y", "x@y", "'x'", '"x"', "<x>",
    "a" * 256,
    "a/" * 600 + "a",
]  # fmt: skip


@pytest.mark.parametrize("text", ESCAPES)
def test_nothing_but_plain_relative_paths_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="not a relative storage path"):
        StoragePath(text)


@pytest.mark.parametrize(
    "text", ["x", "state-count-0a1b", "_metadata", "a/b/c", "v1.2", "-x", "0", "a" * 255]
)
def test_plain_relative_paths_are_accepted(text: str) -> None:
    assert StoragePath(text).text == text


@pytest.mark.parametrize("text", ESCAPES)
def test_a_manifest_cannot_point_out_of_its_directory(tmp_path: Path, text: str) -> None:
    storage = FsCheckpointStorage(str(tmp_path / "root"))
    (tmp_path / "x").write_bytes(b"")
    directory = begin(storage)
    ref = FileRef(path=text, size=0, sha256="")
    storage.write_manifest(directory, manifest(1, ref))
    with pytest.raises(CorruptSnapshot, match="outside"):
        storage.read_manifest(directory)
    with pytest.raises(CorruptSnapshot, match="outside"):
        FsStateReader(directory).read(ref)


def link_file(directory: Path, outside: Path) -> str:
    (directory / "state-link").symlink_to(outside / "secret")
    return "state-link"


def link_folder(directory: Path, outside: Path) -> str:
    (directory / "folder").symlink_to(outside)
    return "folder/secret"


@pytest.mark.parametrize("make", [link_file, link_folder])
def test_a_link_in_a_savepoint_cannot_lead_out_of_it(
    tmp_path: Path, make: Callable[[Path, Path], str]
) -> None:
    storage = FsCheckpointStorage(str(tmp_path / "root"))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    directory = begin(storage)
    path = make(Path(directory.removeprefix("file://")), tmp_path / "outside")
    ref = FsStateWriter(directory).write("count", b"secret")
    linked = msgspec.structs.replace(ref, path=path)
    for read in (FsStateReader(directory).read, FsStateReader(directory).open_range):
        with pytest.raises(CorruptSnapshot, match="link that leads out"):
            read(linked)


@pytest.mark.parametrize(
    "path",
    [
        "{tmp}",
        "{tmp}/precious",
        "{root}",
        "{root}/{job}",
        "{root}/{job}/chk-1/..",
        "{root}/{job}/chk-1/../../../precious",
        "{root}/../precious",
        "{root}/{job}/chk-x",
        "{root}/{job}/chk--1",
        "{root}/{job}/chk-01",
        "{root}/link/chk-1",
        "file://{root}/{job}/chk-1/../..",
        "{tmp}/savepoint-012345-0123456789ab",
        "/",
        "",
        "~",
        "memory://x/{job}/chk-1",
        "s3://bucket/chk-1",
    ],
)
def test_discard_removes_nothing_that_it_does_not_own(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    storage = FsCheckpointStorage(str(root))
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    for name in ("precious/chk-1", "savepoint-012345-0123456789ab"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "_metadata").write_bytes(b"precious")
    (root / "link").symlink_to(tmp_path / "precious")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError):
        storage.discard(path.format(tmp=tmp_path, root=root, job=JOB))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    storage = FsCheckpointStorage(str(tmp_path))
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    moved = Path(directory.removeprefix("file://"))
    moved.rename(moved.with_name("chk-9"))
    with pytest.raises(CorruptSnapshot, match="holds checkpoint 1 of job"):
        storage.completed(JOB)


@pytest.mark.parametrize("job", ["", "..", "a/b", "/etc", "a\0b"])
def test_a_job_id_is_one_plain_name(tmp_path: Path, job: str) -> None:
    storage = FsCheckpointStorage(str(tmp_path))
    with pytest.raises(ConfigError):
        storage.directory(JobId(job), CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    with pytest.raises(ConfigError):
        storage.completed(JobId(job))


@pytest.mark.parametrize("removes", ["forget", "the next discard"])
def test_what_a_removal_that_was_killed_has_left_goes_with_the_next(tmp_path: Path, removes: str) -> None:
    storage = FsCheckpointStorage(str(tmp_path))
    directory = begin(storage)
    folder = tmp_path / JOB
    left = temporary_of(folder / "chk-7")
    left.mkdir()
    (left / "state").write_bytes(b"of a checkpoint that was being removed")
    other = temporary_of(folder / "notes")
    other.mkdir()
    if removes == "forget":
        storage.forget(JOB)
    else:
        storage.discard(directory)
    assert not left.exists()
    assert other.exists(), "it is not of this storage"


def test_forget_removes_only_an_empty_folder(tmp_path: Path) -> None:
    storage = FsCheckpointStorage(str(tmp_path))
    directory = begin(storage)
    storage.write_manifest(directory, manifest(1))
    (tmp_path / JOB / "chk-2").mkdir()
    storage.forget(JOB)
    assert [path.name for path in (tmp_path / JOB).iterdir()] == ["chk-1"]
    storage.discard(directory)
    left = tmp_path / JOB / "shared" / "chk-1-somebody-needs-it"
    left.parent.mkdir()
    left.write_bytes(b"")
    storage.forget(JOB)
    assert left.exists()
    left.unlink()
    storage.forget(JOB)
    assert not (tmp_path / JOB).exists()
    storage.forget(JOB)
