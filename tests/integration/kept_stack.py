"""`make dev`, or `make demo KEEP=1`, in a process of its own: its output, its UI, its files, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.dagster_ui import Ui
from unistream.testing.devtools.process import free_ports

ROOT: Final = Path(__file__).resolve().parents[2]
DEV: Final = dict.fromkeys(("starting a session cluster", "starting Dagster's UI", "Dagster UI http"), WAIT_S)
"""What `make dev` says in turn, and for how long each is waited for."""
DEMO: Final = {"Dagster UI http": 360.0}  # behind its comparison
STOP_S: Final = 120.0  # its children get 25 s each to end, and the broker 30 s


class Stack:
    """A command that stays until Ctrl-C, its UI, and its files below `folder`."""

    def __init__(self, folder: Path, ui: Ui, log: Path) -> None:
        self.ui = ui
        self._folder = folder
        self._log = log

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def table(self, name: str) -> pa.Table:
        [path] = self._folder.glob(f"unistream-*/lake/{name}")
        with duckdb.connect() as connection:
            files = [str(path / file) for file in DeltaTable(str(path)).file_uris()]
            return connection.read_parquet(files, hive_partitioning=True).arrow().read_all()

    def await_that(self, what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
        eventually(condition, what, timeout_s, 0.5)

    def materialized(self, *assets: str, limit_s: float = WAIT_S) -> str:
        """The run, which has succeeded."""
        run = self.ui.materialize(*assets)
        self.await_that("the run ends", lambda: self.ui.has_ended(run), limit_s)
        assert self.ui.status(run) == "SUCCESS", (assets, self.log())
        return run


@contextmanager
def stack(
    folder: Path, mark: str, module: str, *options: str, steps: Mapping[str, float], ends_itself: bool = False
) -> Iterator[Stack]:
    """Until the block ends; then by Ctrl-C.

    Args:
        folder: For its files and its log.
        mark: Of its processes.
        module: With its options.
        options: Of the module.
        steps: What it says in turn, and the limit of each wait.
        ends_itself: No Ctrl-C is needed: something that it needs has ended.
    """
    [port], log = free_ports(1), folder / "stack.log"
    environment = {**os.environ, "TEST_MARK": mark, "TMPDIR": str(folder), "COLUMNS": "200"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *options, "--port", str(port)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    found = Stack(folder, Ui(port, "dagster_defs.definitions"), log)
    try:
        for step, limit_s in steps.items():
            found.await_that(
                step, lambda step=step: step in found.log() or process.poll() is not None, limit_s
            )
            assert process.poll() is None, found.log()
        assert found.ui.is_up, "its address was given"
        yield found
    finally:
        if not ends_itself:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        finally:
            print(found.log(), *(one.read_text() for one in folder.glob("unistream-*/*.log")), sep="\n")
    assert process.returncode == (1 if ends_itself else 130)
