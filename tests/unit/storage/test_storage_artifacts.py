"""Content-addressed artifacts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from tests.fault_fs import Fault, FaultFileSystem, FaultKind
from unistream.base.errors import ConfigError, CorruptSnapshot, OutcomeUnknown, Transient
from unistream.base.ids import LeaderEpoch
from unistream.storage import artifacts
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.durable_local import DurableLocalFileSystem

EPOCH = LeaderEpoch(7)


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "artifacts") if request.param == "local" else f"memory://{uuid4().hex}"


def test_an_artifact_is_there_for_a_store_that_is_opened_later(root: str) -> None:
    name = FsArtifactStore(root).put(b"code", EPOCH)
    assert FsArtifactStore(root).get(name) == b"code"


@pytest.mark.parametrize(
    "name",
    ["", "..", "../" + "a" * 61, "A" * 64, "a" * 63, "a" * 65, "g" * 64]
    + ["a" * 64 + rest for rest in ("-", "-0", "-01", "--1", "-x", "-1/..", "-1\n", "-1-1")],
)
def test_only_a_checksum_and_an_epoch_are_a_name(root: str, name: str) -> None:
    with pytest.raises(ConfigError, match="not the name of an artifact"):
        FsArtifactStore(root).get(name)


def test_other_files_are_no_artifacts(tmp_path: Path) -> None:
    store = FsArtifactStore(str(tmp_path))
    name = store.put(b"code", EPOCH)
    earlier = hashlib.sha256(b"of an earlier version").hexdigest()
    for other in (earlier, f"{name}x", f".{name}"):
        (tmp_path / other).write_bytes(b"of an earlier version")
    assert set(store.names()) == {name, earlier}
    assert store.get(earlier) == b"of an earlier version"


def test_an_artifact_that_is_missing_is_named(root: str) -> None:
    with pytest.raises(CorruptSnapshot, match="a" * 64 + " is missing"):
        FsArtifactStore(root).get("a" * 64)


@pytest.mark.parametrize("operation", ["pipe_file", "cat_file"])
@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE, FaultKind.BIT_FLIP])
def test_a_damaged_artifact_is_never_returned(kind: FaultKind, operation: str) -> None:
    fs = FaultFileSystem(fsspec.filesystem("memory"))
    store = FsArtifactStore(f"memory://{uuid4().hex}", fs=fs)
    fs.inject(Fault(kind=kind, operation=operation))
    name = store.put(b"code", EPOCH)
    with pytest.raises(CorruptSnapshot, match="checksum"):
        store.get(name)


def test_a_damaged_artifact_is_not_taken_for_the_same(tmp_path: Path) -> None:
    store = FsArtifactStore(str(tmp_path))
    name = store.put(b"code", EPOCH)
    (tmp_path / name).write_bytes(b"evil")
    with pytest.raises(CorruptSnapshot, match="checksum"):
        store.put(b"code", EPOCH)


def test_an_artifact_has_a_limit(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "ARTIFACT_BYTES_MAX", 3)
    assert FsArtifactStore(root).put(b"123", EPOCH)
    with pytest.raises(ConfigError, match="4 B, limit 3 B"):
        FsArtifactStore(root).put(b"1234", EPOCH)


def test_a_store_that_fails_says_whether_it_may_have_happened(tmp_path: Path) -> None:
    def refuse(_handle: int) -> None:
        raise OSError("full")

    fs = DurableLocalFileSystem()
    FsArtifactStore(str(tmp_path), fs=fs).put(b"makes the folder", EPOCH)
    with pytest.raises(Transient, match="full"):
        FsArtifactStore(str(tmp_path), fs=DurableLocalFileSystem(fsync=refuse)).put(b"code", EPOCH)
    faulty = FaultFileSystem(fs)
    faulty.inject(Fault(kind=FaultKind.APPLY_THEN_RAISE, operation="pipe_file"))
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        FsArtifactStore(str(tmp_path), fs=faulty).put(b"code", EPOCH)
