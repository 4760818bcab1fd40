"""`make dev` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from unistream.testing.devtools.process import free_ports

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 150.0
STOP_S: Final = 90.0
COMMAND_S: Final = 60.0
TABLES: Final = ("flights_hourly", "flights_cancelled")
# What the config of a run leaves out has the default of the class, not what the code location says.
ATTACHED: Final = "resources: {unistream: {config: {target: remote, mode: attached}}}"


class DevStack:
    """Dagster, a session cluster of local processes and a broker; flights arrive all the time.

    Args:
        folder: New; of the stack.
        flights: Options of `make dev`: from when they are, and how fast they come.
    """

    def __init__(self, folder: Path, *flights: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = folder / "dev.log"
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        options = ("--target", "local", "--port", str(port), *flights)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dagster_defs.dev", *options],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "200"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def has_started(self) -> bool:
        """Whether it has said where its UI is."""
        assert self._process.poll() is None, self.output
        return f"Dagster UI {self.url}" in self.output

    def unistream(self, *words: str) -> str:
        """What the command of a user of this stack prints."""
        [work] = self._folder.glob("unistream-dev-*")
        done = subprocess.run(
            [sys.executable, "-m", "unistream.cli", *words],
            env={**os.environ, "UNISTREAM_HOME": str(work / "unistream"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def job(self, job: str) -> dict[str, Any]:
        """As `unistream list -a` knows it."""
        found = json.loads(self.unistream("list", "-a", "--json"))["jobs"]
        [one] = [entry["job"] for entry in found if entry["job"]["job"] == job]
        return dict(one)

    def close(self) -> None:
        """Ctrl-C, and its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
            raise
        assert "everything that was started has been stopped" in self.output, self.output

    def __enter__(self) -> DevStack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
