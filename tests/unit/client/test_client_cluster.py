"""Clusters that cannot start leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded import EmbeddedCluster


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"high-availability.type": "zookeeper"}, id="several masters"),
        pytest.param({"high-availability.storageDir": "s3://bucket/ha"}, id="jobs elsewhere"),
    ],
)
def test_what_no_cluster_does_yet_is_not_ignored(tmp_path: Path, config: dict[str, str]) -> None:
    [(key, value)] = config.items()
    with pytest.raises(ConfigError, match=f"{key}: {value} is not possible yet"):
        EmbeddedCluster("local", Configuration(config), workdir=tmp_path / "work", rest=False)
    assert list(tmp_path.iterdir()) == []
