"""Servers of one service, each a child process with a number, that can be killed and frozen one by one."""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from typing import Final, Self

from unistream.base.closing import Closing

KILLED_S: Final = 240.0  # until the system has removed a process that was killed


class ServerGroup(Closing, ABC):
    """Starts all of them on entry, and ends them on exit, whatever happens."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    @abstractmethod
    def everybody(self) -> range:
        """The numbers of all servers."""

    @abstractmethod
    def start(self, *numbers: int) -> None:
        """Starts those servers that do not run; returns when they serve."""

    def __enter__(self) -> Self:
        try:
            self.start(*self.everybody)
        except BaseException:
            self.close()
            raise
        return self

    def kill(self, *numbers: int) -> None:
        """Kills servers, without a farewell to clients and to other servers."""
        for number in numbers:
            child = self._running.pop(number)
            child.kill()
            child.wait(timeout=KILLED_S)

    def freeze(self, *numbers: int) -> None:
        """They keep their connections, and answer nothing."""
        for number in numbers:
            self._running[number].send_signal(signal.SIGSTOP)

    def thaw(self, *numbers: int) -> None:
        for number in numbers:
            self._running[number].send_signal(signal.SIGCONT)
