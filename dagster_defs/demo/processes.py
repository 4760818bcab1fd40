"""Child processes of the demo: each with its log, in a group of its own, ended with the demo."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

LOG_TAIL_LINES: Final = 25
WAIT_S: Final = (
    360.0  # for any one step; a healthy run needs a fraction of it, a machine with other work more
)
POLL_S: Final = 0.3


class DemoError(Exception):
    """The demo cannot go on; the text says what happened and where to look."""


class Child:
    """A Python module run as a child process.

    Args:
        module: With its arguments, as after ``python -m``.
        log: File for its output.
        environment: On top of ours.
        grace_s: How long it may take to end by itself after SIGINT.
    """

    def __init__(
        self,
        module: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        grace_s: float = 20.0,
    ) -> None:
        self.name = module[0]
        self.log = log
        self._grace_s = grace_s
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *module],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # a Ctrl-C in the terminal reaches us first, and we end it in order
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def check_alive(self) -> None:
        """Raises DemoError with the end of its log if it has failed."""
        if self.exit_code not in (None, 0):
            raise DemoError(f"{self.name} ended with exit code {self.exit_code}\n{self.tail()}")

    def check_running(self, what: str) -> None:
        """Raises DemoError with the end of its log if it has ended, even in order. `what`: its name."""
        if self.exit_code is not None:
            raise DemoError(f"{what} has ended, with exit code {self.exit_code}\n{self.tail()}")

    def wait(self, timeout_s: float) -> None:
        """Until it has ended with success.

        Raises:
            DemoError: it failed, or takes longer.
        """
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} still runs after {timeout_s:.0f} s\n{self.tail()}") from None
        self.check_alive()

    def tail(self) -> str:
        """The end of its log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(f"  {line}" for line in lines) + f"\n(log: {self.log})"

    def close(self) -> None:
        """Ends it: asked first, then the whole group by force."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it is killed with the rest
                self._process.wait(self._grace_s)
        with contextlib.suppress(ProcessLookupError):  # nobody is left of the group
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=5)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
