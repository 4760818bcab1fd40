"""A real S3 server of one test, which may be killed, paused and started again on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from tests.eventually import eventually
from unistream.base.closing import Closing
from unistream.testing.devtools import object_store
from unistream.testing.devtools.process import free_ports, start_bound
from unistream.testing.devtools.servers import S3, SERVERS

END_S: Final = 20.0


class S3Server(Closing):
    """It runs when the object is made, and has the same address and data after each start.

    Attributes:
        address: ``host:port``.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._ports = free_ports(object_store.PORTS)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{self._ports[0]}"
        self.start()

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Returns when it serves. It ends with the thread that calls this."""
        command = object_store.command(self._folder, self._ports)
        self._process = start_bound(command, self._folder / "s3.log", self._folder)
        eventually(
            lambda: object_store.serves(self._ports[0]) is None,
            "the S3 server serves",
            SERVERS[S3].ready_timeout_s,
        )

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was killed"
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """As by the loss of power of its machine, except that what it has written to files is kept."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(END_S)

    def away(self, seconds: float) -> None:
        """Killed, and started again later."""
        self.kill()
        time.sleep(seconds)  # how long it is away is what the test is about
        self.start()

    def pause(self, seconds: float) -> None:
        """It keeps its connections, and answers nothing meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)  # the same
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
