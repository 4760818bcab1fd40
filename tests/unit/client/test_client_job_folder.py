"""The folder in which a cluster stores its jobs belongs to it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, Transient
from unistream.base.ids import LeaderEpoch
from unistream.base.releases import own_release, series
from unistream.client.embedded.job_folder import NAME, OWNER, check_leader, claim, job_folder
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store.job_store import JobStore
from unistream.port.ha import LeaderInfo
from unistream.storage.artifacts import FsArtifactStore


class Cluster:
    """The HA store of one cluster, led again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lead(self, url: str | None) -> None:
        self.store = FolderHaStore(self._folder, claim_folder(self._folder))
        claim(self.store, JobStore(self.store, FsArtifactStore(str(self._folder / "artifacts"))), url)


@pytest.fixture
def ours(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "ours")


def test_each_leader_of_a_cluster_gets_its_folder(tmp_path: Path, ours: Cluster) -> None:
    url = str(tmp_path / "jobs")
    for _ in range(3):
        ours.lead(url)
    assert (tmp_path / "jobs" / OWNER).is_file()


def test_another_cluster_is_refused_and_changes_nothing(tmp_path: Path, ours: Cluster) -> None:
    url = str(tmp_path / "jobs")
    ours.lead(url)
    owner = (tmp_path / "jobs" / OWNER).read_bytes()
    with pytest.raises(ConfigError, match="has the jobs of another cluster"):
        Cluster(tmp_path / "theirs").lead(url)
    assert (tmp_path / "jobs" / OWNER).read_bytes() == owner
    ours.lead(url)


def test_a_leader_that_died_before_it_marked_the_folder_is_followed(tmp_path: Path, ours: Cluster) -> None:
    url = str(tmp_path / "jobs")
    ours.lead(url)
    (tmp_path / "jobs" / OWNER).unlink()  # the pointer comes first
    ours.lead(url)
    assert (tmp_path / "jobs" / OWNER).is_file()


@pytest.mark.parametrize(("first", "second"), [("a", "b"), (None, "b"), ("a", None)])
def test_jobs_that_are_stored_elsewhere_are_not_left_behind(
    tmp_path: Path, ours: Cluster, first: str | None, second: str | None
) -> None:
    before, after = (None if name is None else str(tmp_path / name) for name in (first, second))
    ours.lead(before)
    ours.store.create("jobs/x/job", b"{}")
    with pytest.raises(ConfigError, match="the jobs of this cluster are stored in"):
        ours.lead(after)
    ours.lead(before)
    ours.store.remove("jobs/x")
    ours.lead(after)
    assert after is None or (tmp_path / "b" / OWNER).is_file()


def test_a_folder_that_cannot_be_written_is_tried_again(tmp_path: Path, ours: Cluster) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Transient, match="cannot use"):
        ours.lead(str(tmp_path / "file" / "jobs"))


def test_what_cannot_be_read_is_not_overwritten(tmp_path: Path, ours: Cluster) -> None:
    ours.lead(None)
    entry = ours.store.read(NAME)
    assert entry is not None
    ours.store.replace(NAME, b"?", entry.version)
    with pytest.raises(CorruptSnapshot, match="where the jobs are stored"):
        ours.lead(str(tmp_path / "jobs"))


def test_the_folder_is_named_by_the_cluster(tmp_path: Path) -> None:
    assert job_folder(Configuration({})) is None
    values = {"high-availability.storageDir": str(tmp_path), "high-availability.cluster-id": "orders"}
    assert job_folder(Configuration(values)) == f"file://{tmp_path}/orders"


@pytest.mark.parametrize("jobs", ["", "file:///ours"], ids=["not said", "the same"])
def test_a_standby_may_take_over_from_a_leader_with_the_same_folder(jobs: str) -> None:
    check_leader(None, "file:///ours")
    check_leader(LeaderInfo(epoch=LeaderEpoch(1), cluster="c", jobs=jobs), "file:///ours")


def test_a_standby_with_another_folder_than_the_leader_is_refused() -> None:
    leader = LeaderInfo(epoch=LeaderEpoch(1), cluster="c", rest_url="http://h:1", jobs="file:///theirs")
    with pytest.raises(ConfigError, match=r"\(http://h:1\) stores its jobs in file:///theirs, and high-av"):
        check_leader(leader, "file:///ours")


def test_a_master_of_another_series_does_not_stand_by() -> None:
    """It would lead one day, and could start none of the jobs."""
    for version in (own_release().version, f"{series(own_release().version)}.999"):
        check_leader(LeaderInfo(epoch=LeaderEpoch(1), cluster="c", version=version), None)
    leader = LeaderInfo(epoch=LeaderEpoch(1), cluster="c", rest_url="http://a:1", version="99.1.0")
    with pytest.raises(
        ConfigError, match=r"and the leader of this cluster \(http://a:1\) has unistream 99.1.0"
    ):
        check_leader(leader, None)
