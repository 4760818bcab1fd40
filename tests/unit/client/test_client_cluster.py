"""Clusters that cannot start leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.client.embedded import EmbeddedCluster

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
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "master.lock"]
    assert left == []
