"""Connectors by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.base.errors import ConfigError
from unistream.connector.catalogue import BUILT_IN, committer_of, create_discovery
from unistream.connector.datagen import DatagenSource, Sequential
from unistream.model.graph import SourceInfo


def info(connector: str) -> SourceInfo:
    return SourceInfo(connector=connector, options={}, bounded=True, pull=True)


def test_an_unknown_connector_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError,
        match="'pulsar'; known are datagen, delta, file, hybrid, iceberg, kafka, polling, sql, static",
    ):
        create_discovery(info("pulsar"))


def test_a_name_is_not_a_module() -> None:
    with pytest.raises(ConfigError, match="unknown connector"):
        create_discovery(info("os:system"))


@pytest.mark.parametrize("name", [name for name, one in BUILT_IN.items() if one.discovery])
def test_every_built_in_connector_refuses_options_that_it_does_not_know(name: str) -> None:
    with pytest.raises(ConfigError):
        create_discovery(info(name))


def test_a_connector_is_loaded_when_it_is_asked_for() -> None:
    code = (
        "import sys, unistream.connector.catalogue\n"
        "print(*(m for m in sys.modules if m.startswith('unistream.connector.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=WAIT_S
    )
    assert run.stdout.split() == ["unistream.connector.catalogue"]


def test_a_connector_without_a_source_or_a_committer_says_so() -> None:
    with pytest.raises(ConfigError, match="connector 'print' has no source"):
        create_discovery(info("print"))
    with pytest.raises(ConfigError, match="connector 'print' declares no committer"):
        committer_of("print", [b""])


PLUGIN = """
from unistream.model.messages import Split

def create_discovery(info):
    return Discovery()

class Discovery:
    def discover(self):
        return [Split(id="plugged", data=b"")]

    def close(self):
        pass
"""


def install(folder: Path, entry_points: str) -> None:
    """A distribution as pip would leave it."""
    metadata = folder / "plugged-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[unistream.connectors]\n{entry_points}\n")
    (folder / "plugged_connector.py").write_text(PLUGIN)


def test_installed_packages_add_connectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "plugged = plugged_connector:create_discovery")
    monkeypatch.syspath_prepend(tmp_path)
    assert [split.id for split in create_discovery(info("plugged")).discover()] == ["plugged"]


def test_a_connector_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "broken = plugged_connector:missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match="connector 'broken' cannot be loaded from 'plugged_connector:missing'"
    ):
        create_discovery(info("broken"))


def test_a_package_cannot_replace_a_built_in_connector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "datagen = plugged_connector:create_discovery")
    monkeypatch.syspath_prepend(tmp_path)
    source = DatagenSource({"n": Sequential()}, rows=1)
    assert [split.id for split in create_discovery(source.info()).discover()] == ["datagen-0"]
