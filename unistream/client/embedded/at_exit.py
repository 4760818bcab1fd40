"""A script that ends while its job runs: the process stays until the job has ended.

The cluster of such a job lives in the process that started it and would end with it, before anything is
written. So the end of the main thread waits for the job; one line on stderr says so.

    the script                                     its jobs
    ends by itself, or by `sys.exit`               are waited for; one that does not finish is one sentence on
                                                   stderr and exit status 1
    ends by Ctrl-C while it waits here             are suspended, exit status 130
    ends by an exception (its status is 1)         are suspended
    is an interpreter or a notebook, or pytest     are suspended: such a process would never end
    has waited for the end, or closed the client   are left alone

A suspended job keeps its checkpoints, so the same script with ``savepoint="latest"`` goes on with them.

This runs before the executors of `concurrent.futures` are shut down: afterwards no cluster can work, and from
Python 3.12 on no thread can be started. The hook for it is the one that `concurrent.futures` uses itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unistream.client.embedded.embedded_cluster import EmbeddedJobClient

OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells do


class _Script:
    """The jobs of one process, and the exit status that they require."""

    def __init__(self) -> None:
        self._jobs: list[EmbeddedJobClient] = []
        self._process: int | None = None
        self._status = 0

    def keep(self, job: EmbeddedJobClient) -> None:
        if self._process != os.getpid():  # a forked child has the list of its parent, but not its threads
            self._process = os.getpid()
            self._jobs.clear()
            threading._register_atexit(self._end)  # type: ignore[attr-defined]
        self._jobs = [known for known in self._jobs if not known.end_was_seen]
        self._jobs.append(job)

    def _end(self) -> None:
        if self._process != os.getpid():
            return
        for job in self._jobs:
            if not job.end_was_seen:
                with contextlib.suppress(KeyboardInterrupt), contextlib.closing(job):  # a second Ctrl-C
                    self._status = _end_of(job) or self._status
        self._jobs.clear()

    def exit_with_status(self) -> None:
        """Once a script has ended, its exit status cannot be changed in another way."""
        if not self._status or self._process != os.getpid():
            return
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self._status)


_script = _Script()
# This module is imported with the environment, so that what the script registers afterwards has run by then.
atexit.register(_script.exit_with_status)


def keep(job: EmbeddedJobClient) -> None:
    """Makes the end of this script wait for `job`, unless a caller has waited or closed it."""
    _script.keep(job)


def _end_of(job: EmbeddedJobClient) -> int:
    """Waits for it, unless it is to be suspended by its close; the exit status."""
    info = job.status()
    name = f"job {info.name!r} ({info.job})"
    why = _why_not_to_wait()
    if why is not None:
        if info.is_terminal:
            return OK
        _say(f"error: {why} while {name} was running, so it is suspended")
        return FAILED
    try:
        if not info.is_terminal:
            _say(f"{name} runs in this process, which ends when the job does; Ctrl-C suspends it")
        result = job.wait()
    except KeyboardInterrupt:
        _say(f"error: interrupted; suspending {name}")
        return INTERRUPTED
    if result.is_success:
        return OK
    reason = f": {result.failure.message}" if result.failure is not None else ""
    _say(f"error: {name} ended as {result.state}{reason}")
    return FAILED


def _why_not_to_wait() -> str | None:
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return "the interpreter ended"
    if "PYTEST_VERSION" in os.environ and "_pytest.config" in sys.modules:
        return "the tests ended"
    if getattr(sys, "last_value", None) is not None:
        return "the script failed"
    return None


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
