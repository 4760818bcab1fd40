"""What every `ArtifactStore` promises; each adapter runs all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_fs import PausedBeforeNaming
from unistream.base.durable_files import temporary_of
from unistream.base.errors import CorruptSnapshot, Transient
from unistream.base.ids import LeaderEpoch
from unistream.port.storage import ArtifactStore
from unistream.storage.artifacts import FsArtifactStore
from unistream.testing.sim.ha import Pointers, SimArtifacts
from unistream.testing.sim.world import World

ONE, TWO = LeaderEpoch(1), LeaderEpoch(2)
SHA256 = hashlib.sha256(b"code").hexdigest()


@pytest.fixture(params=["local", "memory", "s3", "of the simulation"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "local":
        return FsArtifactStore(str(tmp_path / "artifacts"))
    if request.param == "memory":
        return FsArtifactStore(f"memory://{uuid4().hex}")
    if request.param == "s3":
        request.getfixturevalue("s3")
        return FsArtifactStore(f"s3://unistream/artifacts-{uuid4().hex}")
    return SimArtifacts(Pointers(World(0)))


def test_an_artifact_is_named_by_its_content_and_by_who_has_stored_it(store: ArtifactStore) -> None:
    assert store.names() == []
    assert store.put(b"code", ONE) == f"{SHA256}-1"
    assert store.put(b"code", ONE) == f"{SHA256}-1"
    assert store.names() == [f"{SHA256}-1"]
    assert store.get(f"{SHA256}-1") == b"code"


def test_what_an_earlier_leader_removes_is_nothing_that_a_later_one_has_stored(store: ArtifactStore) -> None:
    old, new = store.put(b"code", ONE), store.put(b"code", TWO)
    assert set(store.names()) == {old, new}
    store.remove(old)
    assert store.names() == [new]
    assert store.get(new) == b"code"


def test_a_store_without_unfinished_writes_keeps_what_is_there(store: ArtifactStore) -> None:
    name = store.put(b"code", ONE)
    store.remove_unfinished(TWO)
    assert store.names() == [name]


@pytest.mark.parametrize(("epoch", "stays"), [(1, False), (2, False), (3, True), (None, True)])
def test_what_a_killed_put_has_left_is_removed_unless_a_later_leader_is_at_it(
    tmp_path: Path, epoch: int | None, stays: bool
) -> None:
    name = "notes.txt" if epoch is None else f"{SHA256}-{epoch}"
    left = temporary_of(tmp_path / name)
    left.write_bytes(b"half of the co")
    store = FsArtifactStore(str(tmp_path))
    assert store.names() == []
    store.remove_unfinished(TWO)
    assert left.exists() == stays


def test_a_put_that_goes_on_after_it_was_removed_says_so_and_can_be_repeated(tmp_path: Path) -> None:
    """A leader that stood still between writing and naming."""
    later = FsArtifactStore(str(tmp_path))
    fs = PausedBeforeNaming(lambda: later.remove_unfinished(TWO))
    with pytest.raises(Transient, match="cannot store the job's code"):
        FsArtifactStore(str(tmp_path), fs=fs).put(b"code", ONE)
    assert later.names() == []
    assert later.put(b"code", ONE) == f"{SHA256}-1"


def test_what_is_removed_is_missing(store: ArtifactStore) -> None:
    name = store.put(b"code", ONE)
    for _ in range(2):
        store.remove(name)
    with pytest.raises(CorruptSnapshot, match=f"{name} is missing"):
        store.get(name)
    assert store.put(b"code", ONE) == name
    assert store.get(name) == b"code"
