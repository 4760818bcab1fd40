"""A worker process: runs the TaskManager that its spec describes, until it is released.

    python -m unistream.worker '<spec as JSON>'      (or the JSON on stdin)

Exit code 0: released; 1: ended for another reason (see the log); 2: could not start; 76: exceeded its
memory limit.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import TaskManagerId
from unistream.port.host import TaskManagerSpec
from unistream.worker.process.ending import Ending
from unistream.worker.process.limits import apply_limits
from unistream.worker.process.reports import OnSilence, unheard
from unistream.worker.process.services import Services, default_services, worker_ports
from unistream.worker.process.task_manager import TaskManager

RELEASED: Final = 0
ENDED: Final = 1
NOT_STARTED: Final = 2

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"
_log = logging.getLogger(__name__)


def run_task_manager(spec: TaskManagerSpec, services: Services | None = None) -> int:
    """Blocks until the TaskManager is released or has to end; the exit code.

    A task that cannot be stopped (user code that never returns) ends the process.

    Raises:
        ConfigError: the spec or its configuration is invalid, or this machine is blocked.
        Unreachable: the master did not answer.
    """
    host = spec.host or socket.gethostname()
    if host in spec.avoid:
        raise ConfigError(f"{host} is blocked for workers: it has lost too many of them recently")
    apply_limits(Configuration(spec.config), spec.slots)
    return _code(_live(spec, services or default_services(), (signal.SIGTERM,)))


def run_standalone(
    spec: TaskManagerSpec, new_id: Callable[[], TaskManagerId], on_silence: OnSilence = unheard
) -> int:
    """A standalone worker: when it has lost its master it cancels its tasks and registers again, under a new
    id, until `taskmanager.registration.timeout`. Returns the exit code.

    It ends when it is released or gets a signal, and when its master has replaced it. `on_silence` is called
    for each attempt to register that is not answered.

    Raises:
        ConfigError: the spec or its configuration is invalid.
        Unreachable: no master was found.
    """
    apply_limits(Configuration(spec.config), spec.slots)
    own = replace(default_services(), on_silence=on_silence)
    while True:
        ending = _live(spec, own, (signal.SIGTERM, signal.SIGINT))
        if ending is not Ending.MASTER_LOST:
            return _code(ending)
        spec = replace(spec, id=new_id())


def _code(ending: Ending) -> int:
    return RELEASED if ending is Ending.RELEASED else ENDED


def _live(spec: TaskManagerSpec, services: Services, signals: tuple[signal.Signals, ...]) -> Ending:
    """One registration, until the worker ends."""
    manager = TaskManager(spec, worker_ports(spec, services))
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            signal.signal(number, lambda got, _frame: manager.release(signal.Signals(got).name))
    try:
        manager.start()
        manager.wait()
        return manager.ending
    finally:
        if not manager.close():
            _log.error("event=task_holds_on task_manager=%s action=exit", spec.id)
            logging.shutdown()
            os._exit(ENDED)


def main(arguments: list[str]) -> int:
    """`python -m unistream.worker`."""
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    try:
        return run_task_manager(_spec(arguments[0] if arguments else sys.stdin.read()))
    except UnistreamError as error:
        print(f"unistream.worker: {error}", file=sys.stderr)
        return NOT_STARTED


def _spec(text: str) -> TaskManagerSpec:
    try:
        return msgspec.json.decode(text, type=TaskManagerSpec)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"a worker needs its spec as JSON: {error}") from error
