"""The process from which a host forks its workers.

`python -m unistream.host.fork_server PARENT_PID SOCKET_FD MODULE` loads what workers need, and then forks one
for each request: it runs MODULE as `python -m MODULE` would, in a process group of its own.
`unistream.host.forked` is the other side.

Over SOCKET comes, for each worker, one byte with four descriptors: the worker's stdin, stdout and stderr, and
a connection for its life. Over the connection go:

    request   what it is to have, JSON behind its length                                   (from the host)
    pid       8 bytes; 0: no process could be made, and an `errno` follows                (from this process)
    status    8 bytes: as `os.waitpid` reports it. The process has ended, and is a zombie (from this process)
    any byte, or the end of the connection: its pid may be used again                     (from the host)

There is one thread, and nothing that uses gRPC: a child forked after that hangs in its first call. The kernel
kills this process when its parent's thread ends, and the workers when this process does (Linux only;
elsewhere hosts start each worker by itself).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.host.child import EXIT_ORPHANED, kill_with_parent
from unistream.host.preloaded import preload

NUMBER: Final = 8  # bytes of a length, a pid and a status
DESCRIPTORS: Final = 4
REQUEST_S: Final = 60.0  # the host has written it before it sends the descriptors


class ForkRequest(msgspec.Struct, frozen=True):
    """What a worker is to have instead of what this process has. `folder`: the working one; "": the same."""

    environment: dict[str, str]
    folder: str


@dataclass(slots=True)
class _Child:
    """A worker that runs, or whose host has not yet taken note of its end."""

    pid: int
    pidfd: int
    connection: socket.socket


class ForkServer:
    """See the module. `run` returns in a worker, with the name of what it runs; this process exits within
    it."""

    def __init__(self, control: socket.socket, module: str) -> None:
        self._control = control
        self._module = module
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, None)

    def run(self) -> str:
        """Serves until the host closes its end; then kills what runs, as the host would."""
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, _Child):
                    self._attend(key.data, key.fileobj)
                elif self._fork():
                    return self._module

    def _fork(self) -> bool:
        """True in the worker."""
        _, fds, _, _ = socket.recv_fds(self._control, 1, DESCRIPTORS)
        if not fds:  # the host's end is closed
            for child in self._children:
                os.killpg(child.pid, signal.SIGKILL)
            os._exit(0)
        connection = socket.socket(fileno=fds.pop())
        server = os.getpid()
        try:
            connection.settimeout(REQUEST_S)
            request = msgspec.json.decode(receive(connection), type=ForkRequest)
            pid = os.fork()
        except (OSError, EOFError) as error:  # nothing is left to make a process of; or the host has ended
            _report(connection, 0)
            _report(connection, getattr(error, "errno", None) or 0)
            connection.close()
            pid = None
        if pid == 0:
            connection.close()
            self._forget()
            _become(request, server, fds)
            return True
        for fd in fds:
            os.close(fd)
        if pid is not None:
            with contextlib.suppress(
                ProcessLookupError, PermissionError
            ):  # it has ended; it runs another program
                os.setpgid(pid, pid)  # before the host knows it, who may kill the group at once
            child = _Child(pid=pid, pidfd=os.pidfd_open(pid), connection=connection)
            self._children.append(child)
            self._selector.register(child.pidfd, selectors.EVENT_READ, child)
            _report(connection, pid)
        return False

    def _attend(self, child: _Child, ready: object) -> None:
        if ready == child.pidfd:
            self._selector.unregister(child.pidfd)
            self._selector.register(child.connection, selectors.EVENT_READ, child)
            ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert ended is not None, "only WNOHANG returns None"
            killed = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            _report(child.connection, ended.si_status if killed else ended.si_status << 8)
            return
        self._selector.unregister(child.connection)
        os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        child.connection.close()
        self._children.remove(child)

    def _forget(self) -> None:
        """Closes in a worker what belongs to the server."""
        self._selector.close()
        self._control.close()
        for child in self._children:
            child.connection.close()
            os.close(child.pidfd)


def receive(connection: socket.socket) -> bytes:
    """A message behind its length. Raises EOFError: the connection has ended."""
    return receive_exactly(connection, int.from_bytes(receive_exactly(connection, NUMBER), "big"))


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Raises EOFError: the connection has ended before that."""
    received = bytearray()
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise EOFError("the other side has closed the connection")
        received += part
    return bytes(received)


def _report(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the host has closed it: `_attend` sees that, too
        connection.sendall(number.to_bytes(NUMBER, "big"))


def _become(request: ForkRequest, server: int, descriptors: list[int]) -> None:
    """Makes this fork what a process would be that was started for the request."""
    os.setpgid(0, 0)
    kill_with_parent()
    if os.getppid() != server:
        os._exit(EXIT_ORPHANED)
    for target, fd in enumerate(descriptors):
        os.dup2(fd, target)
        os.close(fd)
    for name in ("stdin", "stdout", "stderr"):
        _open_again(name)
    os.environ.clear()
    os.environ.update(request.environment)
    if request.folder:
        os.chdir(request.folder)
    sys.path[0] = request.folder  # as `python -m` has it
    tempfile.tempdir = None
    importlib.invalidate_caches()
    _draw_other_numbers()


def _open_again(name: str) -> None:
    """Python has chosen its buffers by what this descriptor was before."""
    old = getattr(sys, name)
    mode, buffering = ("rb" if name == "stdin" else "wb"), (0 if old.write_through else -1)
    new = io.TextIOWrapper(
        os.fdopen(old.fileno(), mode, buffering, closefd=False),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=name == "stderr",
        write_through=old.write_through,  # as PYTHONUNBUFFERED has it
    )
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


def _draw_other_numbers() -> None:
    """Forks would all draw the same ones from numpy; Python's own generator sees to it by itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def main() -> None:
    """`python -m unistream.host.fork_server`."""
    parent, fd, module = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    kill_with_parent()
    if os.getppid() != parent:
        sys.exit(EXIT_ORPHANED)
    preload()
    module = ForkServer(socket.socket(fileno=fd), module).run()
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
