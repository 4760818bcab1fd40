"""A worker process: becomes the TaskManager that its spec describes, until it is released.

    python -m unistream.worker '<spec as JSON>'      (or the JSON on stdin)

Exit code 0: released; 1: it ended for another reason (the log says which); 2: it could not start; 76: it
held more memory than it may.
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

    A task that cannot be stopped (user code that never returns) takes the process with it.

    Raises:
        ConfigError: the spec or its configuration cannot work, or this machine is one to avoid.
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
    """A worker that came by itself: when it has lost its master it ends its tasks and registers anew, under
    a new id, for as long as `taskmanager.registration.timeout` allows. The exit code.

    It ends when a signal or its master tells it to, and when its master has given it up meanwhile.
    `on_silence` is told of each attempt to register that nobody answers.

    Raises:
        ConfigError: the spec or its configuration cannot work.
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
    """One registration from its beginning to its end."""
    manager = TaskManager(spec, worker_ports(spec, services))
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            signal.signal(number, lambda got, _frame: manager.release(signal.Signals(got).name))
    try:
        manager.start()
        manager.wait()
        ending = manager.ending
    finally:
        if not manager.close():
            _log.error("event=task_holds_on task_manager=%s action=exit", spec.id)
            logging.shutdown()
            os._exit(ENDED)
    return ending


def main(arguments: list[str]) -> int:
    """`python -m unistream.worker`."""
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    text = arguments[0] if arguments else sys.stdin.read()
    try:
        spec = _spec(text)
        return run_task_manager(spec)
    except UnistreamError as error:
        print(f"unistream.worker: {error}", file=sys.stderr)
        return NOT_STARTED


def _spec(text: str) -> TaskManagerSpec:
    try:
        return msgspec.json.decode(text, type=TaskManagerSpec)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"a worker needs its spec as JSON: {error}") from error
