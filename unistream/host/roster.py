"""The workers that a host has started, by id. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import TaskManagerId

_Worker = TypeVar("_Worker")


class Roster(Generic[_Worker]):
    """No id is used twice, and nothing is added once it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[TaskManagerId, _Worker] = {}
        self._closed = False

    def add(self, task_manager: TaskManagerId, make: Callable[[], _Worker]) -> _Worker:
        """The worker that `make` gives, which is not started yet.

        Raises:
            ConfigError: this id was used before.
            Unreachable: the host is closed.
        """
        with self._lock:
            if self._closed:
                raise Unreachable("this host is closed")
            if task_manager in self._workers:
                raise ConfigError(f"TaskManager id {task_manager} was used before")
            worker = self._workers[task_manager] = make()
        return worker

    def get(self, task_manager: TaskManagerId) -> _Worker | None:
        """The worker of this id, also when it has ended."""
        with self._lock:
            return self._workers.get(task_manager)

    def all(self) -> list[_Worker]:
        """Every worker there ever was."""
        with self._lock:
            return list(self._workers.values())

    def close(self) -> bool:
        """False: it was closed before."""
        with self._lock:
            first, self._closed = not self._closed, True
        return first
