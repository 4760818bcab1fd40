"""Commands of the command line as processes, with a home and a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.eventually import WAIT_S
from unistream.client.machine.home import HOME_VARIABLE
from unistream.client.remote.rest_client import Poll


class Terminal:
    """One user's terminal.

    Args:
        folder: Where commands run; their home is in it.
        pipeline: Source of the module `pipeline` there.
        environment: On top of ours.
    """

    def __init__(self, folder: Path, pipeline: str, **environment: str) -> None:
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._environment = {
            **os.environ,
            HOME_VARIABLE: str(folder / "home"),
            "TEST_MARK": self._mark,
            "TMPDIR": str(folder),
            **environment,
        }
        (folder / "pipeline.py").write_text(pipeline)

    @property
    def environment(self) -> dict[str, str]:
        """For commands that are started by other means."""
        return self._environment

    def __call__(
        self, *words: str, code: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "unistream.cli", *words],
            cwd=self._folder,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert code is None or done.returncode == code, done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").stdout)

    def run(self, function: str, target: str, *words: str) -> Any:
        command = ("run", f"pipeline:{function}", "-t", target, "--detached", *words)
        stream = ("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=500 ms")
        return self.json(*command, *stream)

    def processes(self) -> list[psutil.Process]:
        """Those that inherited our environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TEST_MARK") == self._mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return [p for p in found if p.pid != os.getpid()]

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
        poll = Poll(timeout_s)
        while not condition():
            assert poll.next(), f"{what} did not come in {timeout_s} s: {self.processes()}"

    def until_nothing_is_left(self) -> None:
        self.until(lambda: not self.processes(), "the end of all processes")
        assert list((self._folder / "home" / "clusters").glob("*")) == []
