"""A small program that becomes a server (exec).

    python -I -S stack_shim.py bind PARENT_PID LOG COMMAND...    dies with its parent (Linux)
    python -I -S stack_shim.py detach - LOG COMMAND...           prints its pid, outlives its parent

It runs alone, by path, hence the standard library only. Both modes get a session (and so a process
group) of their own: Ctrl-C in a terminal reaches our cleanup and not the server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def _die_with(parent: int) -> None:
    """The kernel ends us when the thread that started us ends."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before prctl was in force
        sys.exit(1)


def _detach() -> None:
    """The child continues; the first process prints the child's pid and ends, so that init reaps it."""
    child = os.fork()
    if child:
        print(child, flush=True)
        os._exit(0)


def main(arguments: list[str]) -> None:
    """Becomes the wanted command: bound to its parent, or detached from it."""
    mode, parent, log, *command = arguments
    if mode == "bind":
        _die_with(int(parent))
    else:
        _detach()
    os.setsid()
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    source = os.open(os.devnull, os.O_RDONLY)
    os.dup2(source, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        os.execvp(command[0], command)  # noqa: S606  (a list of our own, no shell)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
