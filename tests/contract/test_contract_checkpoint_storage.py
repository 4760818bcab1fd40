"""What every checkpoint storage promises; each adapter runs all of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import fsspec
import msgspec
import pyarrow as pa
import pytest

from tests.fault_fs import FaultFileSystem
from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced, Transient, UnistreamError
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.base.object_stores import file_system
from unistream.model.file_ref import FileRef
from unistream.model.snapshot import (
    KeyedHandle,
    ListHandle,
    ListMode,
    Manifest,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.storage import CheckpointStorage, Created, StateReader, StateWriter
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.location import open_location
from unistream.storage.state_files import FsStateReader, FsStateWriter

JOB = JobId("0123456789abcdef0123456789abcdef")
OTHER_JOB = JobId("f" * 32)


@dataclass(frozen=True)
class Adapter:
    """A storage at `root`, and how to make its readers and writers."""

    root: str
    storage: CheckpointStorage
    writer: Callable[[str], StateWriter]
    reader: Callable[[str], StateReader]
    remove: Callable[[str], None]
    """Deletes one file behind the storage's back."""
    move: Callable[[str, str], str]
    """Moves a directory to a new place of that name; returns its URL."""


def _local(root: str) -> Adapter:
    def move(directory: str, name: str) -> str:
        target = Path(root.removeprefix("file://")).parent / name
        shutil.move(directory.removeprefix("file://"), target)
        return str(target)

    return Adapter(
        root=root,
        storage=FsCheckpointStorage(root),
        writer=FsStateWriter,
        reader=FsStateReader,
        remove=lambda url: Path(url.removeprefix("file://")).unlink(),
        move=move,
    )


def plain_path(tmp_path: Path) -> Adapter:
    return _local(str(tmp_path / "with space" / "root"))


def file_url(tmp_path: Path) -> Adapter:
    return _local(f"file://{tmp_path}/root")


def memory(tmp_path: Path) -> Adapter:
    base = f"memory://{tmp_path.name}-{tmp_path.parent.name}"
    fs = fsspec.filesystem("memory")

    def move(directory: str, name: str) -> str:
        target = f"{base}-{name}"
        for path in fs.find(directory):  # as people do: there is no folder to be renamed
            fs.mv(path, f"{target}/{fs.unstrip_protocol(path).removeprefix(f'{directory}/')}")
        return target

    return Adapter(
        root=base,
        storage=FsCheckpointStorage(base),
        writer=FsStateWriter,
        reader=FsStateReader,
        remove=fs.rm_file,
        move=move,
    )


def wrapped_memory(tmp_path: Path) -> Adapter:
    """The fault injector without a fault behaves as what it wraps."""
    plain = memory(tmp_path)
    fs = FaultFileSystem(fsspec.filesystem("memory"))
    return Adapter(
        root=plain.root,
        storage=FsCheckpointStorage(plain.root, fs=fs),
        writer=lambda url: FsStateWriter(url, fs=fs),
        reader=lambda url: FsStateReader(url, fs=fs),
        remove=plain.remove,
        move=plain.move,
    )


def object_store(tmp_path: Path) -> Adapter:
    """The server that the fixture `s3` has started."""
    base = f"s3://unistream/contract/{tmp_path.parent.name}-{tmp_path.name}"
    fs = open_location(base).fs

    def move(directory: str, name: str) -> str:
        target = f"{base}-{name}"
        for path in fs.find(directory):  # as people do: there is no folder to be renamed
            fs.mv(path, f"{target}/{fs.unstrip_protocol(path).removeprefix(f'{directory}/')}")
        return target

    return Adapter(
        root=base,
        storage=FsCheckpointStorage(base),
        writer=FsStateWriter,
        reader=FsStateReader,
        remove=fs.rm_file,
        move=move,
    )


ADAPTERS = [plain_path, file_url, memory, wrapped_memory, object_store]


@pytest.fixture(params=ADAPTERS, ids=lambda make: make.__name__)
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
    if request.param is object_store:
        request.getfixturevalue("s3")
    yield request.param(tmp_path)
    fsspec.filesystem("memory").store.clear()


def manifest(
    n: int, *files: FileRef, job: JobId = JOB, kind: SnapshotKind = SnapshotKind.CHECKPOINT, at_ms: int = 7
) -> Manifest:
    keyed = tuple(KeyedHandle(name=f"s{i}", file=ref, key_groups=(0,), rows=1) for i, ref in enumerate(files))
    in_file = tuple(
        ListHandle(name=f"l{i}", mode=ListMode.SPLIT, count=1, file=ref) for i, ref in enumerate(files)
    )
    state = OperatorStateHandle(keyed=keyed, lists=in_file)
    vertex = VertexSnapshot(
        vertex=VertexId("ab" * 16),
        name="count",
        operators=(OperatorUid("count"),),
        parallelism=2,
        max_parallelism=128,
        subtasks=(TaskSnapshot(operators={OperatorUid("count"): state}), None),
        finished_subtasks=(1,),
        coordinator=b"\x00\xff",
    )
    return Manifest(
        job=job,
        job_name="counts",
        lineage=LineageId("lineage"),
        checkpoint_id=CheckpointId(n),
        kind=kind,
        timestamp_ms=at_ms,
        vertices=(vertex,),
    )


def checkpoint(adapter: Adapter, n: int, content: bytes = b"state", job: JobId = JOB) -> tuple[str, FileRef]:
    """A completed checkpoint with one state file."""
    directory = adapter.storage.directory(job, CheckpointId(n), SnapshotKind.CHECKPOINT, None)
    ref = adapter.writer(directory).write("count", content)
    assert adapter.storage.write_manifest(directory, manifest(n, ref, job=job)) is Created.NEW
    return directory, ref


def test_a_manifest_reads_back_as_it_was_written(adapter: Adapter) -> None:
    directory, ref = checkpoint(adapter, 3)
    assert adapter.storage.read_manifest(directory) == manifest(3, ref)


def test_one_that_can_be_written_says_so_and_keeps_nothing_of_it(adapter: Adapter) -> None:
    adapter.storage.check_writable()
    directory, ref = checkpoint(adapter, 3)
    adapter.storage.check_writable()
    [stored] = adapter.storage.completed(JOB)
    assert (stored.directory, stored.manifest) == (directory, manifest(3, ref))
    fs, path = file_system(adapter.root)
    inside = {str(name).rpartition("/")[2] for name in fs.find(path)}
    assert inside == {"_metadata", ref.path}


def test_create_never_overwrites(adapter: Adapter) -> None:
    directory, ref = checkpoint(adapter, 3)
    assert adapter.storage.write_manifest(directory, manifest(3, ref)) is Created.EXISTS
    with pytest.raises(Fenced, match="another leader"):
        adapter.storage.write_manifest(directory, manifest(3, ref, at_ms=8))
    assert adapter.storage.read_manifest(directory) == manifest(3, ref)


def test_of_many_leaders_exactly_one_writes_the_manifest(adapter: Adapter) -> None:
    directory = adapter.storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)

    def lead(leader: int) -> str:
        try:
            return adapter.storage.write_manifest(directory, manifest(1, at_ms=leader)).value
        except Fenced:
            return "fenced"

    with ThreadPoolExecutor(8) as pool:
        outcomes = sorted(pool.map(lead, range(16)))
    assert outcomes == ["fenced"] * 15 + ["new"]


def test_completed_lists_snapshots_with_a_manifest_oldest_first(adapter: Adapter) -> None:
    for n in (10, 2, 9):
        checkpoint(adapter, n)
    checkpoint(adapter, 4, job=OTHER_JOB)
    unfinished = adapter.storage.directory(JOB, CheckpointId(11), SnapshotKind.CHECKPOINT, None)
    adapter.writer(unfinished).write("count", b"half")
    assert [s.manifest.checkpoint_id for s in adapter.storage.completed(JOB)] == [2, 9, 10]
    assert adapter.storage.completed(JobId("a" * 32)) == []
    begun = [directory.rpartition("/")[2] for directory in adapter.storage.directories(JOB)]
    assert sorted(begun) == ["chk-10", "chk-11", "chk-2", "chk-9"], "complete or not"
    assert adapter.storage.directories(JobId("a" * 32)) == []


def test_directories_follow_the_documented_layout(adapter: Adapter) -> None:
    taken = adapter.storage.directory(JOB, CheckpointId(12), SnapshotKind.CHECKPOINT, None)
    assert taken.endswith(f"/{JOB}/chk-12")
    target = adapter.root + "-savepoints"
    first = adapter.storage.directory(JOB, CheckpointId(13), SnapshotKind.SUSPEND, target)
    second = adapter.storage.directory(JOB, CheckpointId(13), SnapshotKind.SAVEPOINT, target)
    assert "-savepoints/savepoint-012345-" in first
    assert first != second


def test_the_directory_of_a_failed_attempt_is_used_again(adapter: Adapter) -> None:
    first = adapter.storage.directory(JOB, CheckpointId(5), SnapshotKind.CHECKPOINT, None)
    adapter.writer(first).write("count", b"of the failed attempt")
    assert adapter.storage.directory(JOB, CheckpointId(5), SnapshotKind.CHECKPOINT, None) == first


def test_a_completed_checkpoint_is_never_begun_again(adapter: Adapter) -> None:
    checkpoint(adapter, 5)
    with pytest.raises(Fenced, match="checkpoint 5 of job"):
        adapter.storage.directory(JOB, CheckpointId(5), SnapshotKind.CHECKPOINT, None)


def test_a_savepoint_can_be_moved(adapter: Adapter) -> None:
    directory = adapter.storage.directory(JOB, CheckpointId(1), SnapshotKind.SAVEPOINT, adapter.root + "-sp")
    ref = adapter.writer(directory).write("count", b"moved")
    written = manifest(1, ref, kind=SnapshotKind.SAVEPOINT)
    adapter.storage.write_manifest(directory, written)
    elsewhere = adapter.move(directory, "elsewhere")
    assert adapter.storage.read_manifest(elsewhere) == written
    assert adapter.reader(elsewhere).read(ref) == b"moved"


def test_discard_removes_everything_and_may_be_repeated(adapter: Adapter) -> None:
    directory, ref = checkpoint(adapter, 3)
    kept, _ = checkpoint(adapter, 4)
    adapter.storage.discard(directory)
    adapter.storage.discard(directory)
    with pytest.raises(ConfigError):
        adapter.storage.read_manifest(directory)
    with pytest.raises(CorruptSnapshot, match="missing"):
        adapter.reader(directory).read(ref)
    assert [s.directory for s in adapter.storage.completed(JOB)] == [kept]


def test_an_unfinished_savepoint_of_this_storage_can_be_discarded(adapter: Adapter) -> None:
    directory = adapter.storage.directory(JOB, CheckpointId(1), SnapshotKind.SAVEPOINT, adapter.root + "-sp")
    ref = adapter.writer(directory).write("count", b"x")
    adapter.storage.discard(directory)
    with pytest.raises(CorruptSnapshot):
        adapter.reader(directory).read(ref)


@pytest.mark.parametrize(
    "content", [b"", b"x", bytes(range(256)) * 4096, b"z" * (5 << 20)], ids=["empty", "one", "1 MiB", "5 MiB"]
)
def test_state_files_read_back(adapter: Adapter, content: bytes) -> None:
    directory = adapter.storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    ref = adapter.writer(directory).write("keyed/../../etc", memoryview(content))
    assert ref.size == len(content)
    assert "/" not in ref.path
    assert adapter.reader(directory).read(ref) == content
    with adapter.reader(directory).open_range(ref) as file:
        assert file.read() == content


def test_an_arrow_file_is_read_through_a_range(adapter: Adapter) -> None:
    directory = adapter.storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    table = pa.table({"__key_group": pa.array([1, 2], pa.uint16()), "value": ["a", "b"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    ref = adapter.writer(directory).write("keyed", memoryview(sink.getvalue()))
    with adapter.reader(directory).open_range(ref) as file:
        assert pa.ipc.open_file(file).read_all() == table


def test_the_same_hint_gives_a_new_file_each_time(adapter: Adapter) -> None:
    directory = adapter.storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    writer = adapter.writer(directory)
    with ThreadPoolExecutor(4) as pool:
        refs = list(pool.map(lambda i: writer.write("count", b"%d" % i), range(32)))
    assert len({ref.path for ref in refs}) == 32
    assert [adapter.reader(directory).read(ref) for ref in refs] == [b"%d" % i for i in range(32)]


@pytest.mark.parametrize("read", ["read", "open_range"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"size": 4}, "instead of 4 B", id="another size"),
        pytest.param({"sha256": "0" * 64}, "checksum", id="another checksum"),
        pytest.param({"path": "state-gone"}, "missing", id="another name"),
        pytest.param({"path": "../chk-4/state"}, "outside", id="another directory"),
        pytest.param({"path": "/etc/passwd"}, "outside", id="absolute"),
    ],
)
def test_a_ref_that_does_not_match_is_corrupt(
    adapter: Adapter, change: dict[str, object], why: str, read: str
) -> None:
    directory, ref = checkpoint(adapter, 3)
    with pytest.raises(CorruptSnapshot, match=why):
        getattr(adapter.reader(directory), read)(msgspec.structs.replace(ref, **change))


def test_a_missing_state_file_is_found_when_the_manifest_is_read(adapter: Adapter) -> None:
    directory, ref = checkpoint(adapter, 3)
    adapter.remove(f"{directory}/{ref.path}")
    with pytest.raises(CorruptSnapshot, match=rf"{ref.path} is missing"):
        adapter.storage.read_manifest(directory)
    with pytest.raises(CorruptSnapshot):
        adapter.storage.completed(JOB)  # never skipped: an older one would repeat committed output


@pytest.mark.parametrize(
    ("path", "error", "why"),
    [
        pytest.param("{root}/nothing-here", ConfigError, "does not exist", id="no such directory"),
        pytest.param("{root}", ConfigError, "no _metadata", id="not a snapshot"),
        pytest.param("{root}/{job}", ConfigError, "contains chk-3: name one of these", id="one too high"),
        pytest.param("{chk}/_metadata", ConfigError, "name the directory", id="the manifest itself"),
        pytest.param("{chk}/{file}", ConfigError, "is a file", id="a state file"),
        pytest.param("", ConfigError, "not a storage path", id="empty"),
        pytest.param("{root}\0", ConfigError, "not a storage path", id="NUL"),
        pytest.param("http://example.com/sp", ConfigError, "'http' is not one of", id="scheme"),
        pytest.param("zip::memory://a", ConfigError, "not a storage path", id="chained"),
    ],
)
def test_a_wrong_savepoint_path_is_explained(
    adapter: Adapter, path: str, error: type[UnistreamError], why: str
) -> None:
    directory, ref = checkpoint(adapter, 3)
    with pytest.raises(error, match=why):
        adapter.storage.read_manifest(path.format(root=adapter.root, job=JOB, chk=directory, file=ref.path))


def test_a_late_writer_of_a_discarded_checkpoint_leaves_nothing_in_completed(adapter: Adapter) -> None:
    directory, _ = checkpoint(adapter, 3)
    adapter.storage.discard(directory)
    with suppress(Transient):  # stores with real directories refuse it
        adapter.writer(directory).write("late", b"x")
    assert adapter.storage.completed(JOB) == []


# --- the savepoint of a bootstrap -----------------------------------------------------------------------


def test_a_bootstrap_names_its_very_directory_and_a_second_savepoint_is_refused(adapter: Adapter) -> None:
    wanted = f"{adapter.root}/start"
    directory = adapter.storage.begin_savepoint(wanted)
    assert adapter.storage.begin_savepoint(wanted) == directory, "what died before may be begun again"
    ref = adapter.writer(directory).write("bootstrap-one/count/part.arrow", b"state")
    adapter.storage.write_manifest(directory, manifest(1, ref, kind=SnapshotKind.SAVEPOINT))
    with pytest.raises(ConfigError, match="has a savepoint already"):
        adapter.storage.begin_savepoint(wanted)
    assert adapter.reader(directory).read(ref) == b"state"


def test_what_bootstraps_have_left_is_removed_and_nothing_else(adapter: Adapter) -> None:
    directory = adapter.storage.begin_savepoint(f"{adapter.root}/start")
    writer = adapter.writer(directory)
    lost = [writer.write(f"bootstrap-{run}/count/part.arrow", b"lost") for run in ("one", "two")]
    ref = writer.write("bootstrap-two/count/part.arrow", b"state")
    notes = writer.write("notes/of/mine.arrow", b"added by hand")
    complete = manifest(1, ref, kind=SnapshotKind.SAVEPOINT)
    adapter.storage.write_manifest(directory, complete)
    for _ in range(2):
        adapter.storage.tidy_savepoint(directory, complete)
    assert adapter.storage.read_manifest(directory) == complete
    assert [adapter.reader(directory).read(kept) for kept in (ref, notes)] == [b"state", b"added by hand"]
    for one in lost:
        with pytest.raises(CorruptSnapshot, match="missing"):
            adapter.reader(directory).read(one)


def test_a_directory_with_files_of_others_is_no_place_for_a_bootstrap(adapter: Adapter) -> None:
    directory = adapter.storage.begin_savepoint(f"{adapter.root}/start")
    adapter.writer(directory).write("notes/of/mine.arrow", b"")
    with pytest.raises(ConfigError, match="has other files, such as 'notes'"):
        adapter.storage.begin_savepoint(directory)
