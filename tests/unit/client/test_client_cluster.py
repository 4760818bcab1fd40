"""Clusters that cannot start leave nothing behind, and one without its history starts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.postgres import PostgresServer
from tests.walked import walked
from unistream.base.awake_clock import AwakeClock
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, holds_snapshot
from unistream.metadata.store import SqlMetadataStore

SEVERAL = {"high-availability.type": "zookeeper"}
NOBODY = {**SEVERAL, "high-availability.zookeeper.quorum": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("config", "session", "error", "text"),
    [
        pytest.param(
            SEVERAL,
            True,
            ConfigError,
            "zookeeper needs high-availability.storageDir, the URL of a folder that all masters",
            id="no folder for the jobs",
        ),
        pytest.param(
            {**SEVERAL, "high-availability.storageDir": "ha"},
            True,
            ConfigError,
            "high-availability.zookeeper.quorum",
            id="no servers",
        ),
        pytest.param(
            {**NOBODY, "high-availability.storageDir": "ha"},
            False,
            ConfigError,
            "zookeeper is for clusters that outlive their jobs",
            id="a cluster for one job",
        ),
        pytest.param(
            {"high-availability.storageDir": "ftp://host/ha"},
            True,
            ConfigError,
            "'ftp' is not one of",
            id="no storage",
        ),
        pytest.param(
            {
                **NOBODY,
                "high-availability.storageDir": "ha",
                "high-availability.zookeeper.client.connection-timeout": "300 ms",
            },
            True,
            Unreachable,
            "ZooKeeper",
            id="no ZooKeeper",
        ),
    ],
)
def test_a_cluster_whose_jobs_could_not_be_kept_does_not_start(
    tmp_path: Path, config: dict[str, str], session: bool, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        EmbeddedCluster(
            "local", Configuration(config), workdir=tmp_path / "work", rest=False, session=session
        )
    left = [path for path in walked(tmp_path) if path.is_file() and path.name != "master.lock"]
    assert left == []


def test_a_master_starts_while_its_database_is_away_and_writes_its_history_once_it_answers(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    config = Configuration({"metadata.url": url})
    with ExitStack() as away:
        postgres.stop()
        away.callback(postgres.start)
        with EmbeddedCluster("local", config, workdir=tmp_path / "work", rest=False) as cluster:
            [note] = cluster.dispatcher.metadata_health().sentences()
            assert note.startswith("the metadata database has not answered since ")
            assert "jobs go on" in note
            assert isinstance(cluster.dispatcher._services.clock, AwakeClock)
            away.close()
            eventually(
                lambda: cluster.dispatcher.metadata_health().sentences() == [],
                "it is written, into tables that nobody had made",
            )
    store = SqlMetadataStore(url)
    try:
        assert [(epoch.epoch, epoch.reason) for epoch in store.epochs()] == [(1, "closed")]
    finally:
        store.close()
        postgres.drop_database(url)


def test_a_database_file_that_can_never_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").mkdir()
    config = Configuration({"metadata.url": f"sqlite:///{tmp_path / 'metadata.db'}"})
    with pytest.raises(ConfigError, match=r"metadata\.url: .*metadata\.db cannot be used: unable to open"):
        EmbeddedCluster("local", config, workdir=tmp_path / "work", rest=False)


def test_what_may_be_a_snapshot_is_not_removed(tmp_path: Path) -> None:
    kept, empty, other = tmp_path / "kept", tmp_path / "empty", tmp_path / "a file"
    (kept / "chk-1").mkdir(parents=True)
    (kept / "chk-1" / "_metadata").touch()
    (empty / "chk-1").mkdir(parents=True)
    other.touch()
    folders = (kept, empty, other, tmp_path / "gone")
    assert [holds_snapshot(folder) for folder in folders] == [True, False, True, False]
