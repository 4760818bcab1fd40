"""What our protocols need of S3 and of s3fs, against a real server, some requests of which fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.sinks.case import batch, context, permit, request
from tests.contract.test_contract_checkpoint_storage import JOB, manifest
from tests.s3_proxy import FaultKind, S3Proxy
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Fenced, Unreachable
from unistream.base.ids import CheckpointId
from unistream.base.object_stores import file_system, use_store
from unistream.base.s3_files import S3Files
from unistream.connector.file import FileSink
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.storage import Created
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.location import open_location
from unistream.storage.state_files import FsStateReader, FsStateWriter
from unistream.testing.devtools.object_store import OPEN_BUCKET, make_bucket, options_of

PATIENT = {"s3.connection.timeout": "30 s", "s3.attempts.maximum": "4"}
HASTY = {"s3.connection.timeout": "1 s", "s3.attempts.maximum": "10"}
"""For faults that are seen only because time passes; on a busy machine a good answer may take longer once."""


@pytest.fixture(scope="module")
def proxy(s3_server: str) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server) as proxy:
        yield proxy


@pytest.fixture
def faulty(s3: str, proxy: S3Proxy) -> Iterator[S3Proxy]:
    """The store of this process is behind the proxy."""
    use_store(Configuration({**options_of(proxy.address), **PATIENT}))
    yield proxy
    proxy.heal()
    make_bucket(s3, "unistream")


def wait_for_answers(proxy: S3Proxy, kind: FaultKind) -> None:
    if kind is FaultKind.SILENT:
        use_store(Configuration({**options_of(proxy.address), **HASTY}))


@pytest.fixture
def place() -> str:
    return f"unistream/s3-{uuid4().hex[:12]}"


@pytest.fixture
def files(s3: str) -> Any:
    make_bucket(s3, "unistream")
    return file_system("s3://unistream")[0]


def test_of_several_that_create_one_object_one_does(files: Any, place: str) -> None:
    def create(content: bytes) -> bool:
        try:
            files.pipe_file(f"{place}/one", content, mode="create")
        except FileExistsError:
            return False
        return True

    contents = [b"a", b"b", b"c"]
    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(create, contents))
    assert won.count(True) == 1
    assert files.cat_file(f"{place}/one") == contents[won.index(True)]


def test_there_are_no_folders_and_no_bucket_is_made(files: Any, place: str) -> None:
    files.makedirs(f"{place}/folder")
    files.mkdir(f"{place}/folder")
    assert not files.exists(f"{place}/folder")
    with pytest.raises(FileNotFoundError, match="bucket"):
        files.pipe_file(f"no-{uuid4().hex}/x", b"")


def test_the_size_of_an_object_is_one_request(faulty: S3Proxy, place: str) -> None:
    files: Any = file_system("s3://unistream")[0]
    files.pipe_file(f"{place}/one", b"four")
    del faulty.seen[:]
    assert (files.object_size(f"{place}/one"), files.object_size(f"{place}/two")) == (4, None)
    assert [method for method, _ in faulty.seen] == ["HEAD", "HEAD"]


def test_an_upload_is_visible_when_it_is_completed_and_may_be_completed_by_another(
    files: Any, place: str
) -> None:
    upload = files.begin_upload(f"{place}/big")
    tags = [
        files.upload_part(upload, 1, b"x" * (5 << 20)),
        files.upload_part(upload, 2, b"end"),
    ]
    assert files.upload_part(upload, 2, b"end") == tags[1]
    assert files.has_upload(upload)
    assert [one.id for one in files.uploads(place)] == [upload.id]
    assert files.object_size(upload.path) is None
    another = S3Files(**files.storage_options)
    another.complete_upload(upload, tags)
    assert files.object_size(upload.path) == (5 << 20) + 3
    assert not files.has_upload(upload)
    assert list(files.uploads(place)) == []


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.RESET, FaultKind.HALF])
def test_an_upload_whose_beginning_was_repeated_is_one(faulty: S3Proxy, place: str, kind: FaultKind) -> None:
    files: Any = file_system("s3://unistream")[0]
    fault = faulty.fault(kind, method="POST", path="uploads", times=2)
    upload = files.begin_upload(f"{place}/big")
    assert fault.hits == 2
    assert files.has_upload(upload)
    assert list(files.uploads(place)) == [upload]


def test_an_upload_that_was_aborted_is_gone(files: Any, place: str) -> None:
    upload = files.begin_upload(f"{place}/big")
    tag = files.upload_part(upload, 1, b"x")
    files.abort_upload(upload)
    files.abort_upload(upload)
    assert not files.has_upload(upload)
    with pytest.raises(FileNotFoundError, match="no upload"):
        files.complete_upload(upload, [tag])
    assert files.object_size(upload.path) is None


@pytest.mark.parametrize("kind", [FaultKind.SLOW_DOWN, FaultKind.RESET, FaultKind.LOST, FaultKind.SILENT])
@pytest.mark.parametrize("action", ["read", "size", "names", "write", "upload"])
def test_a_request_that_fails_is_repeated(faulty: S3Proxy, place: str, action: str, kind: FaultKind) -> None:
    wait_for_answers(faulty, kind)
    files: Any = file_system("s3://unistream")[0]
    files.pipe_file(f"{place}/one", b"content")

    def upload() -> object:
        begun = files.begin_upload(f"{place}/two")
        files.complete_upload(begun, [files.upload_part(begun, 1, b"part")])
        return files.cat_file(f"{place}/two")

    actions: dict[str, tuple[Callable[[], object], object]] = {
        "read": (lambda: files.cat_file(f"{place}/one"), b"content"),
        "size": (lambda: files.object_size(f"{place}/one"), 7),
        "names": (lambda: files.ls(place, detail=False), [f"{place}/one"]),
        "write": (lambda: files.pipe_file(f"{place}/two", b"new") and files.cat_file(f"{place}/two"), b"new"),
        "upload": (upload, b"part"),
    }
    act, expected = actions[action]
    fault = faulty.fault(kind)
    assert act() == expected
    assert fault.hits == 1


def test_an_answer_that_breaks_off_is_read_again(faulty: S3Proxy, place: str) -> None:
    files: Any = file_system("s3://unistream")[0]
    files.pipe_file(f"{place}/one", b"content" * 1000)
    fault = faulty.fault(FaultKind.HALF, method="GET")
    assert files.cat_file(f"{place}/one") == b"content" * 1000
    assert fault.hits == 1


def test_a_store_that_stays_busy_is_given_up_in_bounded_time(faulty: S3Proxy, place: str) -> None:
    storage = FsCheckpointStorage(f"s3://{place}", pause=lambda _s: None)
    faulty.fault(FaultKind.SLOW_DOWN, times=1_000)
    with pytest.raises(Unreachable, match=r"cannot list s3://.*reduce your request rate"):
        storage.completed(JOB)


# --- the fence of checkpoints ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.RESET, FaultKind.SILENT])
def test_a_manifest_whose_answer_was_lost_is_ours_and_fences_others(
    faulty: S3Proxy, place: str, kind: FaultKind
) -> None:
    wait_for_answers(faulty, kind)
    storage = FsCheckpointStorage(f"s3://{place}")
    directory = storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    fault = faulty.fault(kind, method="PUT", path="_metadata")
    assert storage.write_manifest(directory, manifest(1)) in (Created.NEW, Created.EXISTS)
    assert fault.hits == 1
    assert storage.write_manifest(directory, manifest(1)) is Created.EXISTS
    with pytest.raises(Fenced, match="written by another leader"):
        storage.write_manifest(directory, manifest(1, at_ms=8))


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.SLOW_DOWN])
@pytest.mark.parametrize("size", [1_000, 30 << 20], ids=["small", "spooled"])
def test_a_state_file_whose_answer_was_lost_is_stored_once(
    faulty: S3Proxy, place: str, kind: FaultKind, size: int
) -> None:
    storage = FsCheckpointStorage(f"s3://{place}")
    directory = storage.directory(JOB, CheckpointId(1), SnapshotKind.CHECKPOINT, None)
    fault = faulty.fault(kind, method="PUT")
    with FsStateWriter(directory).open("keyed") as file:
        file.write(b"x" * size)
    assert fault.hits == 1
    assert FsStateReader(directory).read(file.ref) == b"x" * size


def test_what_a_late_task_has_left_goes_with_its_job_and_complete_checkpoints_stay(
    files: Any, place: str
) -> None:
    storage = FsCheckpointStorage(f"s3://{place}")
    first, second = (storage.directory(JOB, CheckpointId(n), SnapshotKind.CHECKPOINT, None) for n in (1, 2))
    late = FsStateWriter(first)
    storage.discard(first)
    late.write("keyed", b"late")
    kept = FsStateWriter(second).write("keyed", b"kept")
    storage.write_manifest(second, manifest(2, kept))
    storage.forget(JOB)
    left = open_location(f"s3://{place}/{JOB}").files()
    assert sorted(left) == sorted([f"chk-2/{kept.path}", "chk-2/_metadata"])
    assert FsStateReader(second).read(kept) == b"kept"


def test_a_store_without_conditional_writes_is_refused(s3: str, proxy: S3Proxy) -> None:
    make_bucket(s3, OPEN_BUCKET)
    files = S3Files(
        anon=True,
        endpoint_url=f"http://{proxy.address}",
        config_kwargs={"s3": {"addressing_style": "path"}},
        client_kwargs={"region_name": "us-east-1"},
    )
    root = f"s3://{OPEN_BUCKET}/{uuid4().hex}"
    FsCheckpointStorage(root, fs=files).check_writable()
    proxy.ignores_conditions = True
    try:
        with pytest.raises(ConfigError, match=r"ignores the header If-None-Match: \*.* use a store"):
            FsCheckpointStorage(root, fs=files).check_writable()
        folder = f"{root}/files"
        options = {**files.storage_options, "client_kwargs": {"region_name": "us-east-1"}}
        sink = FileSink(folder, filesystem_options=options)
        writer, committer = sink.create_writer(), sink.create_committer()
        assert committer is not None
        writer.open(context(), ())
        writer.write(batch(1))
        writer.flush(end_of_input=True)
        prepared = writer.prepare_commit(CheckpointId(1))
        committer.open(context())
        with pytest.raises(ConfigError, match=r"ignores the header If-None-Match: \*.* use a store"):
            committer.commit(permit(1), request(1, *prepared))
    finally:
        proxy.ignores_conditions = False
    assert [name for name in files.find(root) if "probe" in name or ".parquet" in name] == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"s3.secret-key": "wrong"}, r"cannot store snapshots in s3://", id="a wrong secret"),
        pytest.param({"s3.access-key": "nobody"}, r"cannot store snapshots in s3://", id="an unknown user"),
        pytest.param({"s3.secret-key": "${env:UNISTREAM_NOT_SET}"}, "not set", id="an unset variable"),
    ],
)
def test_wrong_credentials_are_refused_without_showing_them(
    s3: str, place: str, options: dict[str, str], why: str
) -> None:

    def begin() -> None:
        use_store(Configuration({**options_of(s3), **options}))
        FsCheckpointStorage(f"s3://{place}").check_writable()

    try:
        with pytest.raises(ConfigError, match=why) as refused:
            begin()
        assert "wrong" not in str(refused.value)
        assert "unistream-secret" not in str(refused.value)
    finally:
        make_bucket(s3, "unistream")


def test_a_missing_bucket_is_named(files: Any) -> None:
    with pytest.raises(ConfigError, match=r"cannot store snapshots in s3://no-such.*bucket does not exist"):
        FsCheckpointStorage("s3://no-such-bucket/checkpoints").check_writable()
