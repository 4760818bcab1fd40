"""Processes of the local stack: start, recognise again, end. Linux (/proc)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from unistream.base.errors import ConfigError, Unreachable

_SHIM: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("shim.py")))
PORT_MIN, PORT_MAX = 20_000, 32_000  # below the range from which systems take ports of clients
TERM_WAIT_S: Final = 10.0  # a broker flushes and closes its logs in this time
KILL_WAIT_S: Final = 5.0
LOCK_WAIT_S: Final = 300.0  # the first holder may be downloading jars


class ProcessId(msgspec.Struct, frozen=True):
    """A process, and not a later one with the same number: start time in clock ticks since boot."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return process_id(self.pid) == self


def process_id(pid: int) -> ProcessId | None:
    """None: no such process, or it has ended and only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks
    state, start_ticks = fields[0], int(fields[19])
    return None if state in "ZX" else ProcessId(pid, start_ticks)


def start_bound(command: Sequence[str], log: Path, cwd: Path) -> subprocess.Popen[bytes]:
    """Starts a process that ends when the calling *thread* ends: call it from a thread that lives."""
    shim = [*_SHIM, "bind", str(os.getpid()), str(log)]
    return subprocess.Popen([*shim, *command], cwd=cwd, stdin=subprocess.DEVNULL)


def start_detached(command: Sequence[str], log: Path, cwd: Path) -> int:
    """Starts a process that outlives this one; its pid."""
    done = subprocess.run(
        [*_SHIM, "detach", "-", str(log), *command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        timeout=30,
    )
    return int(done.stdout)


def end(process: ProcessId, term_wait_s: float = TERM_WAIT_S) -> None:
    """SIGTERM, then SIGKILL after `term_wait_s`. Does nothing if it has ended; never signals another
    process of that number.

    Raises:
        Unreachable: it is still there after SIGKILL (stuck in the kernel).
    """
    for signum, wait_s in ((signal.SIGTERM, term_wait_s), (signal.SIGKILL, KILL_WAIT_S)):
        if process.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signum)
        if wait_until_ended(process, wait_s):
            return
    raise Unreachable(f"process {process.pid} does not end, even after SIGKILL; look at it with ps")


def wait_until_ended(process: ProcessId, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while process.alive:
        if time.monotonic() > deadline:
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        time.sleep(0.02)
    return True


def free_ports(count: int) -> list[int]:
    """Different loopback ports that are free now."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(1000):
            if len(ports) == count:
                return ports
            port = PORT_MIN + secrets.randbelow(PORT_MAX - PORT_MIN)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    raise ConfigError(f"no free loopback port found between {PORT_MIN} and {PORT_MAX}")


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """One process at a time; given up by the system when its holder dies.

    Raises:
        Unreachable: someone else has held it for LOCK_WAIT_S.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_WAIT_S
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unreachable(f"another process holds {path} for {LOCK_WAIT_S:.0f} s") from None
                time.sleep(0.05)
        yield
