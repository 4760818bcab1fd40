"""However a `unistream run` ends, soon nothing of it is left: no process, no socket, no entry.

The command is a process of its own with a folder for temporary files of its own. What belongs to it is known
by a variable of its environment, which every process that it starts inherits, whatever its parent is now.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine.home import HOME_VARIABLE
from unistream.client.remote.rest_client import Poll
from unistream.net.folder import PrivateFolder
from unistream.worker.exchange import SPILL_FOLDER_PREFIX as SPILL_FOLDERS
from unistream.worker.exchange import STATE_FOLDER_PREFIX as LOCAL_FOLDERS

PIPELINE = """
import unistream as us

COLUMNS = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, 9)}

def endless(env):
    source = us.DatagenSource(COLUMNS, rows=None, bounded=False, rows_per_second=2000, splits=2)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    same = rows.key_by("key").process(Same(), returns=source.schema).uid("same")
    same.sink_to(us.DeltaSink("table")).uid("table")

class Same(us.KeyedProcessFunction):
    def process_element(self, row, context, out):
        out.emit(row)
"""


class Run:
    """`unistream run` of an endless pipeline that writes a table."""

    def __init__(self, folder: Path, temporary: Path, target: str) -> None:
        self._folder = folder
        self._temporary = temporary
        (folder / "cleaned_pipeline.py").write_text(PIPELINE)
        self._home = folder / "home"
        self._err = folder / "err"
        with self._err.open("wb") as err:
            self.process = subprocess.Popen(
                self._command("run", "cleaned_pipeline:endless", "-t", target, "-p", "2", *self._options()),
                cwd=folder,
                env=self._environment(),
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,  # as in a terminal of its own
            )

    def list_jobs(self) -> list[object]:
        done = subprocess.run(
            self._command("list", "--json"),
            cwd=self._folder,
            env=self._environment(),
            capture_output=True,
            timeout=WAIT_S,
            check=True,
        )
        jobs: list[object] = json.loads(done.stdout)["jobs"]
        return jobs

    @property
    def errors(self) -> str:
        return self._err.read_text()

    @property
    def entries(self) -> list[Path]:
        return list((self._home / "clusters").glob("*"))

    @property
    def temporary_folders(self) -> list[str]:
        return sorted(path.name for path in self._temporary.glob("*unistream-*"))

    def processes(self) -> list[psutil.Process]:
        """All that carry its mark, the command's own included."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(HOME_VARIABLE) == str(self._home):
                    found.append(process)
        return found

    def await_rows(self) -> None:
        """Until its table holds a commit: all workers are up, and at work."""
        poll = Poll(WAIT_S)
        while poll.next():
            assert self.process.poll() is None, self.errors
            if (self._folder / "table" / "_delta_log" / f"{1:020}.json").exists():
                return
        raise AssertionError(f"it did not write within {WAIT_S} s: {self.errors}")

    def await_children(self) -> None:
        """Until it has begun to start others."""
        poll = Poll(WAIT_S)
        while poll.next():
            assert self.process.poll() is None, self.errors
            if psutil.Process(self.process.pid).children():
                return
        raise AssertionError(f"it started no process within {WAIT_S} s: {self.errors}")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(WAIT_S)

    def assert_no_process_is_left(self) -> None:
        _, alive = psutil.wait_procs(self.processes(), timeout=WAIT_S)
        left = [" ".join(process.cmdline())[:200] for process in alive if process.is_running()]
        assert left == []
        assert self.processes() == []

    def kill(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        self.process.wait(WAIT_S)

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "unistream.cli.main", *words]

    def _options(self) -> list[str]:
        values = [
            "execution.runtime-mode=STREAMING",
            "execution.checkpointing.interval=250ms",
            "state.backend.type=rocksdb",  # state on the disk
        ]
        return [word for value in values for word in ("-D", value)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, HOME_VARIABLE: str(self._home), "TMPDIR": str(self._temporary)}


Start = Callable[[str], Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []
    temporary = Path(tempfile.mkdtemp(prefix="us-"))  # short: the path of a socket has at most 107 bytes

    def start(target: str) -> Run:
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(Run(folder, temporary, target))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()
    shutil.rmtree(temporary)


TARGETS = ["local", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_cleans_up_behind_it(start: Start, target: str, number: signal.Signals) -> None:
    run = start(target)
    run.await_rows()
    assert run.temporary_folders, "workers listen on sockets there"
    run.send(number)
    assert run.wait() == 130, run.errors
    run.assert_no_process_is_left()
    assert run.entries == []
    assert run.temporary_folders == []
    assert "Traceback" not in run.errors


@pytest.mark.parametrize("target", TARGETS)
def test_a_killed_run_leaves_only_files_that_the_next_one_removes(start: Start, target: str) -> None:
    run = start(target)
    run.await_rows()
    run.send(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    run.assert_no_process_is_left()
    assert run.list_jobs() == []
    assert run.entries == [], "an entry whose process is gone is removed by who looks"
    left = set(run.temporary_folders)
    assert any(name.startswith("unistream-state-") for name in left), "nobody was there to remove them"
    following = start(target)
    following.await_rows()
    assert not left & set(following.temporary_folders)


def test_a_run_that_is_killed_while_it_starts_leaves_no_process(start: Start) -> None:
    run = start("local")
    run.await_children()
    run.send(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    run.assert_no_process_is_left()


def test_who_cannot_wait_and_interrupts_twice_leaves_no_process_either(start: Start) -> None:
    run = start("local")
    run.await_rows()
    run.send(signal.SIGINT)
    poll = Poll(WAIT_S)
    while poll.next() and "suspending job" not in run.errors:
        assert run.process.poll() is None, run.errors
    run.send(signal.SIGINT)
    assert run.wait() != 0
    run.assert_no_process_is_left()


def test_a_cluster_that_ends_removes_what_its_killed_workers_kept(tmp_path: Path) -> None:
    """Where no worker was started after them, nobody else would; what a living one has stays."""
    roots = [tmp_path / "one", tmp_path / "two"]
    kept = []
    for root in roots:
        root.mkdir()
        for prefix in (SPILL_FOLDERS, LOCAL_FOLDERS):
            kept.append(PrivateFolder(root, prefix))
            (kept[-1].path / "rows").write_bytes(b"of one that lives")
            dead = root / f"{prefix}of-the-dead"
            dead.mkdir()
            (dead / "lock").touch()
            (dead / "rows").write_bytes(b"of one that was killed")
    config = Configuration({"io.tmp.dirs": ",".join(map(str, roots))})
    with EmbeddedCluster("local", config, workdir=tmp_path / "work", rest=False):
        assert sum(len(list(root.iterdir())) for root in roots) == 8
    left = sorted(path for root in roots for path in root.iterdir())
    assert left == sorted(folder.path for folder in kept)
    for folder in kept:
        assert (folder.path / "rows").exists()
        folder.close()
