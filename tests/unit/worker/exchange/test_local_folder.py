"""The folder of a worker for state on the local disk."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unistream.base.errors import ConfigError, Transient
from unistream.worker.exchange import STATE_FOLDER_PREFIX, LocalFolder

KEEPS = """
import sys, time
from pathlib import Path
from unistream.worker.exchange.local_folder import LocalFolder
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
    assert path.name.startswith(STATE_FOLDER_PREFIX)
    (path / "db").mkdir()
    folder.close()
    folder.close()
    assert names(tmp_path) == []
    with pytest.raises(ConfigError, match="TaskManager is shutting down"):
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


def test_it_is_made_anew_when_a_cleaner_has_removed_it(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    shutil.rmtree(folder.path())
    again = folder.path()
    assert names(tmp_path) == [again.name]
    following = LocalFolder(tmp_path)
    following.remove_leftovers()
    assert names(tmp_path) == [again.name], "it is locked as the first one was"
    folder.close()
    assert names(tmp_path) == []


def test_a_root_that_is_gone_as_well_is_no_fault_of_the_configuration(tmp_path: Path) -> None:
    root = tmp_path / "tmp"
    root.mkdir()
    folder = LocalFolder(root)
    folder.path()
    shutil.rmtree(root)
    with pytest.raises(Transient, match=r"io\.tmp\.dirs: .*No such file"):
        folder.path()
    root.mkdir()
    assert folder.path().is_dir()
    folder.close()


def test_too_many_open_files_are_no_fault_of_the_configuration(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    folder = LocalFolder(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(Transient, match=r"io\.tmp\.dirs: .*Too many open files"):
            folder.path()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert folder.path().is_dir()
    folder.close()
