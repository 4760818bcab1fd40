"""What integration tests share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.crash_runs import Crashes
from tests.integration.marked import marked
from unistream.base.config import Configuration
from unistream.cli.main import main
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import RestClient

if TYPE_CHECKING:
    from tests.integration.dagster_location import Location


@pytest.fixture
def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    """Kills at named places; nothing is armed yet."""
    return Crashes(tmp_path, monkeypatch)


@pytest.fixture
def mark() -> Iterator[str]:
    """A value of TEST_MARK that every process of a command inherits; none of them may be left."""
    value = uuid.uuid4().hex
    yield value
    assert marked(value) == []


@pytest.fixture
def replay_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines of `replayed_rows` are found, and write below `tmp_path`, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command in this process; its JSON, or its output and its errors."""

    def run(*words: str, code: int = 0) -> Any:
        capfd.readouterr()
        assert main(list(words)) == code, capfd.readouterr()
        out, err = capfd.readouterr()
        return json.loads(out) if "--json" in words else (out, err)

    return run


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestClient]:
    """A session cluster of the test's own, which "remote" finds."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with (
        EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as running,
        RestClient(running.rest_url) as client,
    ):
        yield client


@pytest.fixture
def locate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Location]]:
    """Makes code locations with the given settings, in processes of their own."""
    from tests.integration.dagster_location import Location

    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))  # where we look for clusters
    made: list[Location] = []

    def locate(**settings: str) -> Location:
        made.append(Location(tmp_path, **settings))
        return made[-1]

    yield locate
    for location in made:
        location.close()
