"""Worker processes that are forked from one that has loaded their libraries (`unistream.host.fork_server`),
and such that are started each by itself."""

from __future__ import annotations

import functools
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from unistream.host.fork_server import NUMBER, ForkRequest, receive_exactly

LINGER_S: Final = 30.0  # a fork server that nobody uses: the next job of a notebook starts at once
START_S: Final = 120.0  # of a fork server on a machine that is overloaded; otherwise half a second
END_S: Final = 5.0  # it has nothing to do then
READ_WHEN_LOADED: Final = (
    *(
        "LD_",
        "PYTHON",
        "MALLOC_",
        "GLIBC_",
        "LC_",
        "LANG",
        "TZ",
        "HOME",
        "XDG_",
        "TMP",
        "TEMP",
        "VIRTUAL_ENV",
    ),
    *("ARROW_", "OMP_", "OPENBLAS_", "MKL_", "BLIS_", "VECLIB_", "NUMEXPR_", "NUMBA_", "NPY_", "NUMPY_"),
    *("GRPC_", "FSSPEC_", "GOMP_", "KMP_", "COVERAGE_"),
)
"""Beginnings of the names of variables that an interpreter or a library looks at when it is loaded. Workers
for which one of these differs are forked from different servers; every other variable is looked at when it is
used."""
STDERR: Final = 2  # the file descriptor


class WorkerProcess(Protocol):
    """A process that has been started."""

    @property
    def pid(self) -> int: ...

    @property
    def unknown(self) -> str:
        """Why nobody knows how it ended, if `await_end` says so."""

    def await_end(self) -> bool:
        """Waits until it has ended; its pid is not used again before `reap`. False: it is not known how it
        ended, and its pid may be used again; do not reap it."""

    def reap(self) -> int:
        """Takes the exit code of the process; -N if signal N has killed it. Call it once, after
        `await_end`."""


class SpawnedProcess:
    """A process that this one has started, in a group of its own."""

    unknown: Final = "another part of this program took its exit code"

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None, descriptors: Sequence[int]
    ) -> None:
        stdin, stdout, stderr = descriptors
        self._process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, process_group=0
        )
        self.pid: Final = self._process.pid

    def await_end(self) -> bool:
        """See `WorkerProcess`."""
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self._process.wait()  # returns at once
            return False
        return True

    def reap(self) -> int:
        """See `WorkerProcess`."""
        return self._process.wait()


class ForkedProcess:
    """A process that a fork server has made, in a group of its own."""

    unknown: Final = "the process from which it was forked has ended, and so have all its workers"

    def __init__(self, pid: int, connection: socket.socket, over: Callable[[bool], None]) -> None:
        self.pid = pid
        self._connection = connection
        self._over = over
        self._status = 0

    def await_end(self) -> bool:
        """See `WorkerProcess`."""
        try:
            self._status = _number(self._connection)
        except (EOFError, OSError):
            self._close(is_gone=True)
            return False
        return True

    def reap(self) -> int:
        """See `WorkerProcess`."""
        self._close(is_gone=False)
        return os.waitstatus_to_exitcode(self._status)

    def _close(self, *, is_gone: bool) -> None:
        self._connection.close()
        self._over(is_gone)


@functools.cache
def can_fork() -> bool:
    """This system has what a fork server needs: Linux 5.3 or newer, in a container that lets us use it."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def fork(
    python: str, module: str, environment: Mapping[str, str], descriptors: Sequence[int]
) -> ForkedProcess:
    """Runs `module` as ``PYTHON -m MODULE`` would, with that environment, in the working folder of this
    process. `descriptors`: its stdin, stdout and stderr.

    Raises:
        OSError: no process can be made; its text says why.
    """
    server, is_new = _enter(python, module, environment)
    try:
        return server.fork(environment, descriptors)
    except _Gone:
        if is_new:
            raise
    server, _ = _enter(python, module, environment)  # somebody has killed the one that there was
    return server.fork(environment, descriptors)


def warm(python: str, module: str, environment: Mapping[str, str]) -> None:
    """Has the libraries of a worker loaded that is soon wanted; returns at once."""
    if can_fork():
        server, _ = _enter(python, module, environment)
        server.leave()


class _Gone(OSError):
    """The fork server has ended."""


class _ForkServer:
    """A fork server's process, and the thread that has started it: the kernel ends it with that thread.

    It ends `LINGER_S` after it has had its last user, who is counted from `enter`, or the constructor, to
    `leave`.
    """

    def __init__(self, python: str, module: str, environment: Mapping[str, str]) -> None:
        self._command = (python, "-m", "unistream.host.fork_server", str(os.getpid()))
        self._module = module
        self._environment = dict(environment)
        self._changed = threading.Condition()  # guards the two below
        self._users = 1
        self._is_over = False
        self._failure: OSError | None = None
        self._control, self._its_end = socket.socketpair()
        threading.Thread(target=self._run, name="fork-server", daemon=True).start()

    def enter(self) -> bool:
        """One user more; False: it is about to end, or has ended."""
        with self._changed:
            if self._is_over:
                return False
            self._users += 1
            return True

    def leave(self, is_gone: bool = False) -> None:
        """One user less, who has seen whether the process has ended."""
        with self._changed:
            self._users -= 1
            self._is_over = self._is_over or is_gone
            self._changed.notify_all()

    def fork(self, environment: Mapping[str, str], descriptors: Sequence[int]) -> ForkedProcess:
        """See `fork`. Leaves if there is no process; otherwise its end does."""
        request = msgspec.json.encode(ForkRequest(environment=dict(environment), folder=_working_folder()))
        ours, its = socket.socketpair()
        try:
            ours.settimeout(START_S)
            with its:
                socket.send_fds(self._control, [b"f"], [*descriptors, its.fileno()])
            ours.sendall(len(request).to_bytes(NUMBER, "big") + request)
            pid = _made(ours)
            ours.settimeout(None)
            return ForkedProcess(pid, ours, self.leave)
        except (EOFError, ConnectionError) as error:
            self._give_up(ours, is_gone=True)
            raise self._failure or _Gone("the process from which workers are forked has ended") from error
        except BaseException:
            self._give_up(ours, is_gone=False)
            raise

    def _give_up(self, connection: socket.socket, *, is_gone: bool) -> None:
        connection.close()
        self.leave(is_gone=is_gone)

    def _run(self) -> None:
        fd = self._its_end.fileno()
        try:
            process = subprocess.Popen(
                (*self._command, str(fd), self._module),
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
                env=self._environment,
                pass_fds=[fd],
                process_group=0,
            )
        except OSError as error:
            self._failure = error
            self._its_end.close()
            return
        self._its_end.close()
        with self._changed:
            while not self._is_over:
                self._changed.wait_for(lambda: self._users == 0 or self._is_over)
                if not self._is_over:
                    self._is_over = not self._changed.wait_for(lambda: self._users > 0, LINGER_S)
        self._control.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _enter(python: str, module: str, environment: Mapping[str, str]) -> tuple[_ForkServer, bool]:
    """The server of such workers, and whether it is a new one."""
    loaded = sorted(item for item in environment.items() if item[0].startswith(READ_WHEN_LOADED))
    key = (os.getpid(), python, module, tuple(loaded), _inherited())  # a fork of this process has no server
    with _lock:
        server = _servers.get(key)
        if server is not None and server.enter():
            return server, False
        server = _servers[key] = _ForkServer(python, module, environment)
        return server, True


_lock: Final = threading.Lock()
_servers: Final[dict[tuple[object, ...], _ForkServer]] = {}


def _inherited() -> tuple[object, ...]:
    """What a process has from the one that has started it, and this one may have changed since: the mask of
    new files, limits, processors, priority."""
    with open("/proc/self/status") as status:
        mask = next((line for line in status if line.startswith("Umask:")), "")
    limits = [
        resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
    ]
    return mask, tuple(limits), frozenset(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # somebody has removed it
        return ""


def _number(connection: socket.socket) -> int:
    return int.from_bytes(receive_exactly(connection, NUMBER), "big")


def _made(connection: socket.socket) -> int:
    """The pid of the new worker. Raises OSError: there is none."""
    pid = _number(connection)
    if pid == 0:
        number = _number(connection)
        raise OSError(
            number, os.strerror(number) if number else "the request for a process could not be read"
        )
    return pid
