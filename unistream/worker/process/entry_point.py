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
from functools import partial
from typing import Final

import msgspec

from unistream.base.awake_clock import AwakeClock
from unistream.base.breakpoints import refuse_breakpoints
from unistream.base.config import REGISTRATION_TIMEOUT, Configuration
from unistream.base.errors import UNDECODABLE, ConfigError, UnistreamError, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.base.object_stores import use_store
from unistream.base.releases import Release, own_release, refusal
from unistream.port.ha import LeaderInfo, LeaderRetrieval
from unistream.port.host import TaskManagerSpec
from unistream.worker.process.ending import Ending
from unistream.worker.process.leader_watch import LeaderWatch, await_leader
from unistream.worker.process.limits import apply_limits
from unistream.worker.process.reports import OnSilence, unheard
from unistream.worker.process.services import Services, default_services, worker_ports
from unistream.worker.process.task_manager import TaskManager

RELEASED: Final = 0
ENDED: Final = 1
NOT_STARTED: Final = 2
STANDALONE_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"
_log = logging.getLogger(__name__)


def run_task_manager(spec: TaskManagerSpec) -> int:
    """Blocks until the TaskManager is released or has to end; the exit code.

    A task that cannot be stopped (user code that never returns) ends the process.

    Raises:
        ConfigError: the spec or its configuration is invalid, or this machine is blocked, or has another
            version than the master.
        Unreachable: the master did not answer.
    """
    host = spec.host or socket.gethostname()
    if host in spec.avoid:
        raise ConfigError(f"{host} is blocked for workers: it has lost too many of them recently")
    _check_release(spec, host)
    config = Configuration(spec.config)
    use_store(config)
    apply_limits(config, spec.slots)
    refuse_breakpoints()
    with AwakeClock() as clock:
        manager = TaskManager(spec, worker_ports(spec, default_services(clock, credentials=spec.credentials)))
        return _code(_live(manager, (signal.SIGTERM,)))


def _check_release(spec: TaskManagerSpec, host: str) -> None:
    """Raises ConfigError: another version is installed here than where the master is, as may be on a cluster
    of Spark. Nothing was started."""
    own = own_release()
    why = refusal(own, Release(spec.version, spec.python), who=f"host {host}", whom="the master")
    if why is not None:
        raise ConfigError(why)


def run_standalone(
    spec: TaskManagerSpec,
    new_id: Callable[[], TaskManagerId],
    on_silence: OnSilence = unheard,
    leaders: LeaderRetrieval | None = None,
    on_registered: Callable[[TaskManagerSpec], None] = lambda _spec: None,
    *,
    on_broken: Callable[[TaskManagerSpec, str], None] = lambda _spec, _why: None,
    secret_for: Callable[[str], str | None] = lambda _master: None,
) -> int:
    """A standalone worker: when it has lost its master it cancels its tasks and registers again, under a new
    id, until `taskmanager.registration.timeout`. Returns the exit code.

    It ends when it is released or gets a signal, and when its master has replaced it. `on_silence` is called
    for each attempt to register that is not answered, `on_registered` for each registration, and
    `on_broken` with the reason if it ends for another one than a release or a signal. `leaders`: finds the
    master, instead of `spec`. `secret_for`: what it presents to the master at an address.

    Raises:
        ConfigError: the spec or its configuration is invalid.
        Unreachable: no master was found.
    """
    config = Configuration(spec.config)
    use_store(config)
    apply_limits(config, spec.slots)
    refuse_breakpoints()
    with AwakeClock() as clock:
        own = replace(
            default_services(clock, secret_for, spec.credentials),
            on_silence=on_silence,
            on_registered=on_registered,
            on_broken=on_broken,
        )
        return _standalone(spec, new_id, own, leaders)


def _standalone(
    spec: TaskManagerSpec,
    new_id: Callable[[], TaskManagerId],
    own: Services,
    leaders: LeaderRetrieval | None,
) -> int:
    config = Configuration(spec.config)
    while True:
        leader = None
        if leaders is not None:
            leader = _find(leaders, own, config.get(REGISTRATION_TIMEOUT))
            if leader is None:
                return RELEASED
            assert leader.control is not None, "await_leader refuses others"
            spec = replace(spec, master=leader.control)
        ending = _live_standalone(spec, own, leaders, leader)
        if ending is not Ending.MASTER_LOST:
            return _code(ending)
        spec = replace(spec, id=new_id())


def _find(leaders: LeaderRetrieval, services: Services, patience_ms: int) -> LeaderInfo | None:
    """The leader; None: a signal came first."""
    stop = threading.Event()
    _on_signals(lambda _name: stop.set())
    return await_leader(
        leaders, clock=services.clock, patience_ms=patience_ms, stop=stop, on_silence=services.on_silence
    )


def _code(ending: Ending) -> int:
    return RELEASED if ending is Ending.RELEASED else ENDED


def _live_standalone(
    spec: TaskManagerSpec, services: Services, leaders: LeaderRetrieval | None, leader: LeaderInfo | None
) -> Ending:
    """One registration, until the worker ends, or until another master leads."""
    manager = TaskManager(spec, worker_ports(spec, services))
    ending = _followed(manager, spec, services, leaders, leader)
    if manager.is_draining and ending is Ending.MASTER_LOST:
        return Ending.RELEASED  # nothing runs here by now
    return ending


def _followed(
    manager: TaskManager,
    spec: TaskManagerSpec,
    services: Services,
    leaders: LeaderRetrieval | None,
    leader: LeaderInfo | None,
) -> Ending:
    if leaders is None or leader is None:
        return _lived(manager, spec, services)
    with LeaderWatch(leaders, leader.epoch, lambda why: manager.release(why, rejoin=True)):
        try:
            return _lived(manager, spec, services)
        except Unreachable:
            if manager.ending is Ending.MASTER_LOST:  # another one was found meanwhile
                return Ending.MASTER_LOST
            raise


def _lived(manager: TaskManager, spec: TaskManagerSpec, services: Services) -> Ending:
    ending = _live(manager, STANDALONE_SIGNALS, on_signal=partial(_leave, manager))
    if ending in {Ending.FENCED, Ending.BROKEN}:
        services.on_broken(spec, manager.reason)
    return ending


def _leave(manager: TaskManager, name: str) -> None:
    """SIGTERM comes from what stops or replaces the process; who types Ctrl-C does not want to wait."""
    if name == signal.SIGTERM.name:
        manager.leave(name)
    else:
        manager.release(name)


def _live(
    manager: TaskManager,
    signals: tuple[signal.Signals, ...],
    on_signal: Callable[[str], None] | None = None,
) -> Ending:
    """One registration, until the worker ends."""
    _on_signals(on_signal or manager.release, signals)
    try:
        with manager.user_log.installed():
            manager.start()
            manager.wait_to_leave()
        return manager.ending
    finally:
        if not manager.close():
            _log.error("event=task_holds_on task_manager=%s action=exit", manager.id)
            logging.shutdown()
            os._exit(ENDED)


class _OnSignal:
    """A handler that calls `end` with the name of the signal."""

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end

    def __call__(self, number: int, _frame: object) -> None:
        self._end(signal.Signals(number).name)


def _on_signals(end: Callable[[str], None], signals: tuple[signal.Signals, ...] = STANDALONE_SIGNALS) -> None:
    """`end` is called with the name of the signal."""
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            signal.signal(number, _OnSignal(end))


def _forget_signals() -> None:
    """Forgets our signal handlers in a fork that user code makes, as a pool of `multiprocessing` does: it
    would wait for the locks of threads that it does not have, instead of ending."""
    for number in STANDALONE_SIGNALS:
        if isinstance(signal.getsignal(number), _OnSignal):
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_signals)


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
    except UNDECODABLE as error:
        raise ConfigError(f"a worker needs its spec as JSON: {error}") from error
