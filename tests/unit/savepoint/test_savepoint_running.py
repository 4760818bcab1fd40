"""Before a savepoint is committed by hand: clusters of this machine that do not say what they run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from unistream.api.finalizing import refuse_if_running
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.machine import home
from unistream.savepoint.reading import Savepoint

NOBODY = "http://127.0.0.1:9"  # the port "discard": nothing listens there


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Savepoint:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    users = pa.table({"user": ["ann"], "value": [3]})
    writer = us.SavepointWriter().with_state("seen", "count", users, keys=["user"])
    return us.read_savepoint(writer.write(tmp_path / "saved"))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Lives until its input ends."""
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        started.wait(WAIT_S)
        assert started.stdin is not None
        started.stdin.close()


def enter(pid: int) -> Path:
    folder = home.home() / "clusters"
    folder.mkdir(exist_ok=True)
    entry = home.ClusterEntry(id="a", url=NOBODY, pid=pid, target="local", started_ms=0)
    path = folder / "a.json"
    path.write_bytes(msgspec.json.encode(entry))
    return path


def test_one_that_lives_and_is_silent_may_be_committing(
    saved: Savepoint, process: subprocess.Popen[bytes]
) -> None:
    enter(process.pid)
    with pytest.raises(ConfigError) as caught:
        refuse_if_running(saved, Configuration(), patience_s=0.2)
    said = str(caught.value)
    assert f"the cluster at {NOBODY} (process {process.pid}) runs and does not answer" in said
    assert "stop it, or repeat this when it answers" in said


def test_one_whose_process_ends_meanwhile_commits_no_more(
    saved: Savepoint, process: subprocess.Popen[bytes]
) -> None:
    path = enter(process.pid)
    process.kill()
    refuse_if_running(saved, Configuration(), patience_s=10)
    assert not path.exists()


def test_one_that_takes_its_entry_away_has_ended(saved: Savepoint, process: subprocess.Popen[bytes]) -> None:
    path = enter(process.pid)
    assert "runs and does not answer" in refusal(saved)
    path.unlink()
    assert refusal(saved) == ""
    assert process.poll() is None


def test_without_any_cluster_nothing_is_in_the_way(saved: Savepoint) -> None:
    assert refusal(saved) == ""


def refusal(saved: Savepoint) -> str:
    """Empty: it may be committed."""
    try:
        refuse_if_running(saved, Configuration(), patience_s=0)
    except ConfigError as error:
        return str(error)
    return ""
