"""The folder of a worker for state on the local disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unistream.base.errors import ConfigError
from unistream.worker.local_folder import PREFIX, LocalFolder

KEEPS = """
import sys, time
from pathlib import Path
from unistream.worker.local_folder import LocalFolder
folder = LocalFolder(Path(sys.argv[1]))
(folder.path() / "db").mkdir()
print("there", flush=True)
time.sleep(600)
"""


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_it_is_made_when_it_is_asked_for_and_gone_after_close(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    assert names(tmp_path) == []
    path = folder.path()
    assert path == folder.path()
    assert path.name.startswith(PREFIX)
    (path / "db").mkdir()
    folder.close()
    folder.close()
    assert names(tmp_path) == []
    with pytest.raises(ConfigError, match="TaskManager ends"):
        folder.path()


def test_what_a_killed_worker_left_goes_with_the_next_and_no_other(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KEEPS, str(tmp_path)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"there\n"
        (its,) = names(tmp_path)
        following = LocalFolder(tmp_path)
        following.remove_leftovers()
        assert names(tmp_path) == [its], "it lives"
        os.kill(worker.pid, signal.SIGKILL)
    following.remove_leftovers()
    assert names(tmp_path) == []


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"io\.tmp\.dirs: .*missing"):
        LocalFolder(tmp_path / "missing").path()
