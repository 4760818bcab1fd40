"""The workers that a host has started, by id. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.port.host import LostListener

ENDED_MAX: Final = 100  # workers that have ended: their threads may still say so, and are joined at the end
IDS_MAX: Final = 10_000  # of former workers, a megabyte: ids are random, so an older one never comes again

_Worker = TypeVar("_Worker")


class Roster(Generic[_Worker]):
    """No id is used twice, and nothing is added once it is closed.

    The latest `ENDED_MAX` workers that have ended are kept, and the latest `IDS_MAX` ids of older ones, since
    a cluster may run for months. The limit of running workers is the cluster's (`max_workers`).

    Args:
        on_lost: Called once for each worker that has ended, on its thread.
    """

    def __init__(self, on_lost: LostListener) -> None:
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._workers: dict[TaskManagerId, _Worker] = {}
        self._ended: OrderedDict[TaskManagerId, None] = OrderedDict()  # oldest first, still in `_workers`
        self._former: OrderedDict[TaskManagerId, None] = OrderedDict()
        self._closed = False

    def add(self, task_manager: TaskManagerId, make: Callable[[], _Worker]) -> _Worker:
        """Adds and returns the worker made by `make`, which is not started yet.

        Raises:
            ConfigError: this id was used before.
            Unreachable: the host is closed.
        """
        with self._lock:
            if self._closed:
                raise Unreachable("this host is closed")
            if task_manager in self._workers or task_manager in self._former:
                raise ConfigError(f"TaskManager id {task_manager} was used before")
            worker = self._workers[task_manager] = make()
        return worker

    def ended(
        self, task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False, /
    ) -> None:
        """The worker's process has ended; see `LostListener`."""
        self._note_end(task_manager)
        self._on_lost(task_manager, reason, host, hopeless)

    def _note_end(self, task_manager: TaskManagerId) -> None:
        with self._lock:
            if task_manager not in self._workers:
                return
            self._ended[task_manager] = None
            while len(self._ended) > ENDED_MAX:
                oldest, _ = self._ended.popitem(last=False)
                del self._workers[oldest]
                self._former[oldest] = None
            while len(self._former) > IDS_MAX:
                self._former.popitem(last=False)

    def get(self, task_manager: TaskManagerId) -> _Worker | None:
        """The worker of this id; None if it is unknown or ended long ago."""
        with self._lock:
            return self._workers.get(task_manager)

    def all(self) -> list[_Worker]:
        """Running workers, and the latest that have ended."""
        with self._lock:
            return list(self._workers.values())

    def close(self) -> bool:
        """False: it was closed before."""
        with self._lock:
            first, self._closed = not self._closed, True
        return first
