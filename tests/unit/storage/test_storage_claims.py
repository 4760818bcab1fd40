"""Snapshots of others that a job claims: what goes with them, and what stays."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import fsspec
import pytest
from fsspec import AbstractFileSystem

from tests.fault_fs import Fault, FaultFileSystem, FaultKind
from tests.unit.storage.keyed_manifests import JOB, manifest
from unistream.base.errors import ConfigError, Transient
from unistream.base.ids import CheckpointId
from unistream.model.snapshot_kind import SnapshotKind
from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.fs import FsCheckpointStorage
from unistream.storage.state_files import FsStateWriter


class Place:
    """A store, where others have made savepoints."""

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        self.fs = FaultFileSystem(fs)
        self.root = root
        self.maker = FsCheckpointStorage(f"{root}/other", fs=self.fs, pause=lambda _s: None)

    def savepoint(self, n: int) -> str:
        """One with two files of state, one of them in folders."""
        directory = self.maker.directory(JOB, CheckpointId(n), SnapshotKind.SAVEPOINT, f"{self.root}/saved")
        writer = FsStateWriter(directory, fs=self.fs)
        refs = [writer.write("count", b"plain"), writer.write("count/value/part.arrow", b"in folders")]
        assert refs[1].path.count("/") == 2
        self.maker.write_manifest(directory, manifest(n, *refs, kind=SnapshotKind.SAVEPOINT))
        return directory

    def claiming(self, directory: str) -> FsCheckpointStorage:
        storage = FsCheckpointStorage(f"{self.root}/own", fs=self.fs, pause=lambda _s: None)
        storage.claim(directory)
        return storage

    def put(self, directory: str, name: str) -> str:
        path = f"{self.fs._strip_protocol(directory)}/{name}"
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(path, b"the user's")
        return path

    def files(self, directory: str) -> list[str]:
        self.fs.invalidate_cache()
        return sorted(self.fs.find(self.fs._strip_protocol(directory)))


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(DurableLocalFileSystem(), str(tmp_path))
    return Place(fsspec.filesystem("memory"), f"memory://{uuid4().hex}")


def test_all_of_a_claimed_savepoint_goes_and_nothing_of_another(place: Place) -> None:
    claimed, other = place.savepoint(1), place.savepoint(2)
    others = place.files(other)
    assert len(others) == 3
    storage = place.claiming(claimed)
    with pytest.raises(ConfigError, match="refusing to remove"):
        storage.discard(other)
    storage.discard(claimed)
    assert not place.fs.exists(claimed)
    assert place.files(other) == others


@pytest.mark.parametrize("name", ["README.md", "count/value/notes.txt", "count/notes.txt", "mine/x.txt"])
def test_what_the_user_has_put_beside_stays(place: Place, name: str) -> None:
    claimed = place.savepoint(1)
    users = place.put(claimed, name)
    place.claiming(claimed).discard(claimed)
    assert place.files(claimed) == [users]


@pytest.mark.parametrize("kind", [FaultKind.RAISE_BEFORE, FaultKind.APPLY_THEN_RAISE])
@pytest.mark.parametrize("removed", range(3))
def test_a_removal_that_failed_is_repeated(place: Place, removed: int, kind: FaultKind) -> None:
    """At each file, the manifest before the others; what is half removed is no savepoint."""
    claimed = place.savepoint(1)
    users = place.put(claimed, "count/notes.txt")
    storage = place.claiming(claimed)
    place.fs.inject(Fault(kind=kind, operation="rm_file", skip=removed))
    with pytest.raises(Transient, match="cannot remove"):
        storage.discard(claimed)
    if removed or kind is FaultKind.APPLY_THEN_RAISE:
        with pytest.raises(ConfigError, match="_metadata"):
            storage.read_manifest(claimed)
    storage.discard(claimed)
    assert place.files(claimed) == [users]
    with pytest.raises(ConfigError, match="refusing to remove"):  # it is nobody's now
        storage.discard(claimed)


def test_what_holds_no_snapshot_cannot_be_claimed(place: Place) -> None:
    claimed = place.savepoint(1)
    place.maker.discard(claimed)
    users = place.put(claimed, "notes.txt")
    storage = FsCheckpointStorage(f"{place.root}/own", fs=place.fs)
    with pytest.raises(ConfigError):
        storage.claim(claimed)
    with pytest.raises(ConfigError, match="refusing to remove"):
        storage.discard(claimed)
    assert place.files(claimed) == [users]
