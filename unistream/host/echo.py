"""Shows the output of workers on this machine on the terminal of the process that runs the job: whole lines,
in order for each worker. It is written to the worker's log, too."""

from __future__ import annotations

import array
import fcntl
import logging
import os
import select
import termios
import threading
import time
from collections.abc import Callable
from typing import IO, Final

CHUNK_BYTES: Final = 65_536  # what a pipe holds
SETTLE_S: Final = 5.0  # a terminal that is this slow gets its rows after the result
SETTLE_POLL_S: Final = 0.01

_log = logging.getLogger("unistream.host")

Show = Callable[[str], None]
"""Takes whole lines."""


class Echo:
    """The terminal, shared by all workers. `show` is called by one thread at a time."""

    def __init__(self, show: Show) -> None:
        self._show: Show | None = show
        self._lock = threading.Lock()
        self._pipes: set[EchoPipe] = set()

    def pipe(self, log: IO[bytes] | None) -> EchoPipe:
        """A new one for a worker whose log is `log`."""
        pipe = EchoPipe(self.show, log, self._pipes.discard)
        self._pipes.add(pipe)
        return pipe

    def show(self, lines: str) -> None:
        """Stops writing to a terminal that was closed; the job continues."""
        with self._lock:
            if self._show is None:
                return
            try:
                self._show(lines)
            except (OSError, ValueError) as error:  # ValueError: a file that was closed
                self._show = None
                _log.warning("event=printed_rows_not_shown reason=%r", error)

    def settle(self) -> None:
        """Returns when all output until now is shown, at the latest after SETTLE_S."""
        deadline_s = time.monotonic() + SETTLE_S
        for pipe in list(self._pipes):
            while not pipe.is_empty and time.monotonic() < deadline_s:
                time.sleep(SETTLE_POLL_S)


class EchoPipe:
    """The output of one worker. Its thread ends with the last process that can write to it."""

    def __init__(self, show: Show, log: IO[bytes] | None, over: Callable[[EchoPipe], None]) -> None:
        self._reader, self.writer = os.pipe()
        self._show = show
        self._log = None if log is None else os.dup(log.fileno())
        self._over = over
        self._lock = threading.Lock()
        self._open = True
        self._rest = b""
        self._thread = threading.Thread(target=self._run, name="worker-output", daemon=True)

    def start(self) -> None:
        """Called when the worker has the pipe's other end."""
        os.close(self.writer)
        self._thread.start()

    def abandon(self) -> None:
        """Called if the worker could not be started."""
        os.close(self.writer)
        self._end()

    def join(self, timeout_s: float) -> None:
        """Waits until all is shown."""
        self._thread.join(timeout_s)

    @property
    def is_empty(self) -> bool:
        """All output is shown."""
        with self._lock:
            if not self._open:
                return True
            waiting = array.array("i", [0])
            fcntl.ioctl(self._reader, termios.FIONREAD, waiting)
            return waiting[0] == 0

    def _run(self) -> None:
        while True:
            select.select([self._reader], [], [])
            with self._lock:
                chunk = os.read(self._reader, CHUNK_BYTES)
                self._take(chunk)
            if not chunk:
                self._end()
                return

    def _take(self, chunk: bytes) -> None:
        """Shows whole lines; at the end also an incomplete one."""
        if self._log is not None:
            os.write(self._log, chunk)
        lines, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if not chunk:
            lines, newline, self._rest = self._rest, b"\n" if self._rest else b"", b""
        if newline:
            self._show((lines + newline).decode(errors="replace"))

    def _end(self) -> None:
        with self._lock:
            self._open = False
            os.close(self._reader)
            if self._log is not None:
                os.close(self._log)
        self._over(self)
