"""Workers as processes of this machine, which end with this one.

Each has a thread of its own that starts it, waits for its end and reports it: an end is detected at once.
Where the system lets us, a worker is forked from a process that has loaded its libraries
(`unistream.host.forked`); elsewhere it is a child of this process, and the kernel's parent-death signal,
which follows the starting thread, is sent only when this process ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import IO, Final

import msgspec

from unistream.base import durable_files
from unistream.base.config import Configuration
from unistream.base.ids import TaskManagerId
from unistream.base.secrets import SEALING_VARIABLE
from unistream.core.memory import thread_environment
from unistream.host.echo import Echo, EchoPipe
from unistream.host.forked import STDERR, SpawnedProcess, WorkerProcess, can_fork, fork, warm
from unistream.host.logs import log_path
from unistream.host.roster import Roster
from unistream.port.host import EXIT_OUT_OF_MEMORY, LostListener, TaskManagerSpec

WORKER_MODULE: Final = "unistream.worker"
STOP_GRACE_S: Final = 3.0  # between SIGTERM and SIGKILL
REAP_S: Final = 5.0  # a killed process ends much faster unless it hangs in the kernel

_LOG: Final = logging.getLogger("unistream.host")


class LocalProcessHost:
    """Runs each TaskManager as ``python -m unistream.worker`` in a process group of its own.

    The spec goes to it as JSON on stdin; stdout and stderr go to `log_path(spec)`, and stdout to `echo`, too.

    Args:
        on_lost: Called once for each started worker, on that worker's thread.
        python: The interpreter.
        env: The environment of the workers; None: that of this process when each is started.
        module: What is run as the worker.
        echo: Shows the output of workers.
        forks: Workers are forked from a process that has loaded their libraries; None: where this system can.
    """

    def __init__(
        self,
        on_lost: LostListener,
        *,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        module: str = WORKER_MODULE,
        echo: Echo | None = None,
        forks: bool | None = None,
    ) -> None:
        self._echo = echo
        self._start = _Start(python, module, env, can_fork() if forks is None else forks)
        self._workers: Roster[_LocalWorker] = Roster(on_lost)

    def start(self, spec: TaskManagerSpec) -> None:
        """Returns at once.

        Raises:
            ConfigError: this id was used before.
            Unreachable: the host is closed.
        """
        self._workers.add(
            spec.id, lambda: _LocalWorker(spec, self._start, self._workers.ended, self._echo)
        ).begin()

    def stop(self, task_manager: TaskManagerId) -> None:
        """SIGTERM now, SIGKILL after STOP_GRACE_S; returns at once."""
        worker = self._workers.get(task_manager)
        if worker is not None:
            worker.stop()

    def close(self) -> None:
        """Ends all workers and waits for them, at most STOP_GRACE_S + REAP_S."""
        self._workers.close()
        workers = self._workers.all()
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(STOP_GRACE_S + REAP_S)


class _Start:
    """How the workers of a host are started."""

    def __init__(self, python: str, module: str, env: Mapping[str, str] | None, forks: bool) -> None:
        self._python = python
        self._module = module
        self._env = None if env is None else dict(env)
        self._forks = forks

    def process(self, spec: TaskManagerSpec, stdout: int, stderr: int) -> WorkerProcess:
        """A worker, which has its spec on stdin. Raises OSError: no process can be made."""
        environment = _environment(self._env, Configuration(spec.config))
        stdin, spec_in = os.pipe()
        try:
            descriptors = (stdin, stdout, stderr)
            if self._forks:
                process: WorkerProcess = fork(self._python, self._module, environment, descriptors)
            else:
                command = (self._python, "-m", "unistream.host.child", str(os.getpid()), self._module)
                process = SpawnedProcess(command, environment, descriptors)
        except BaseException:
            os.close(spec_in)
            raise
        finally:
            os.close(stdin)
        with (
            contextlib.suppress(BrokenPipeError),
            open(spec_in, "wb") as pipe,
        ):  # broken: it has ended already
            pipe.write(msgspec.json.encode(spec))
        return process


def warm_up(config: Configuration) -> None:
    """Has the libraries of a worker loaded that is soon wanted with `config`; returns at once."""
    warm(sys.executable, WORKER_MODULE, _environment(None, config))


def _environment(env: Mapping[str, str] | None, config: Configuration) -> dict[str, str]:
    made = {**(os.environ if env is None else env), **thread_environment(config)}
    made.pop(SEALING_VARIABLE, None)
    return made


class _LocalWorker:
    """One process and the thread that waits for it."""

    def __init__(
        self, spec: TaskManagerSpec, start: _Start, on_lost: LostListener, echo: Echo | None
    ) -> None:
        self._spec = spec
        self._start = start
        self._echo = echo
        self._printed: EchoPipe | None = None
        self._on_lost = on_lost
        self._lock = threading.Lock()  # guards the three below; held for every signal that is sent
        self._process: WorkerProcess | None = None
        self._ended = False
        self._stopping = False
        self._killer: threading.Timer | None = None
        self._thread = threading.Thread(target=self._run, name=f"worker-{spec.id}", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        if self._thread is threading.current_thread():
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _LOG.error("event=worker_not_reaped task_manager=%s", self._spec.id)

    def stop(self) -> None:
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            if self._process is None or self._ended:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
            self._killer = threading.Timer(STOP_GRACE_S, self._kill)
            self._killer.daemon = True
            self._killer.start()

    def _run(self) -> None:
        reason = self._live()
        _LOG.info("event=worker_ended task_manager=%s reason=%r", self._spec.id, reason)
        try:
            self._on_lost(self._spec.id, reason)
        except Exception:  # not our code; this thread must still end properly
            _LOG.exception("event=lost_listener_failed task_manager=%s", self._spec.id)

    def _live(self) -> str:
        """Runs the process to its end; returns how it ended."""
        try:
            process = self._start_unless_stopped()
        except OSError as error:
            return f"no process could be started: {error}"
        if process is None:
            return "it was stopped before it was started"
        if not process.await_end():
            with self._lock:
                self._ended = True
            return f"process {process.pid} has ended; {process.unknown}"
        # Until it is reaped the kernel does not reuse its pid, so that the group (processes left by user
        # code) can be killed safely.
        self._kill()
        with self._lock:
            self._ended = True
            code = process.reap()
        if self._killer is not None:
            self._killer.cancel()
        if self._printed is not None:
            self._printed.join(REAP_S)
        return self._in_words(process.pid, code)

    def _start_unless_stopped(self) -> WorkerProcess | None:
        """Starts the process, unless the worker is being stopped. It does not hold the lock: on a machine
        that is overloaded it takes long, and `stop` does not wait."""
        with self._lock:
            if self._stopping:
                return None
        with contextlib.ExitStack() as stack:
            path = log_path(self._spec)
            stderr = STDERR
            log: IO[bytes] | None = None
            if path is not None:
                durable_files.make_folders(path.parent)
                log = stack.enter_context(open(path, "ab", opener=durable_files.private))
                stderr = log.fileno()
            printed = None if self._echo is None else self._echo.pipe(log)
            try:
                process = self._start.process(
                    self._spec, stderr if printed is None else printed.writer, stderr
                )
            except OSError:
                if printed is not None:
                    printed.abandon()
                raise
            if printed is not None:
                printed.start()
            self._printed = printed
        with self._lock:
            self._process = process
            is_stopped = self._stopping
        if is_stopped:
            self._kill()
        return process

    def _kill(self) -> None:
        with self._lock:
            if self._process is not None and not self._ended:
                with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: only a zombie is left
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _in_words(self, pid: int, code: int) -> str:
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        if code == EXIT_OUT_OF_MEMORY:
            how = "ended itself: it exceeded its memory limit (its log says by how much)"
        stopped = " after it was requested to stop" if self._stopping else ""
        path = log_path(self._spec)
        log = f"; its log is {path}" if path is not None else ""
        return f"process {pid} {how}{stopped}{log}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
