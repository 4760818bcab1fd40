"""Asynchronous requests: a trigger id now, the outcome later."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import JobId

TRIGGERS_KEPT_MAX: Final = 1_000  # outcomes are read within seconds; older ones are forgotten

_Key = tuple[str, JobId, str]


class OperationFailed(ConfigError):
    """It failed, such as a savepoint."""


class Triggers:
    """Outcomes by (what, job, trigger id); `what` is "savepoint" (stops too), "checkpoint" or "rescale".
    Thread-safe."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._lock = threading.Lock()
        self._futures: OrderedDict[_Key, Future[str]] = OrderedDict()
        self._unread: set[_Key] = set()
        self._all_read = threading.Condition(self._lock)

    def add(self, job: JobId, future: Future[str], what: str = "savepoint") -> str:
        """The trigger id."""
        trigger = self._new_id()
        with self._lock:
            self._futures[what, job, trigger] = future
            self._unread.add((what, job, trigger))
            while len(self._futures) > TRIGGERS_KEPT_MAX:
                oldest, _ = self._futures.popitem(last=False)
                self._unread.discard(oldest)
        return trigger

    def outcome(self, job: JobId, trigger: str, what: str = "savepoint") -> str | None:
        """The savepoint's path ("" for what has none); None while it is in progress.

        Raises:
            NotFound: there is no such trigger.
            ConfigError: it failed, and why.
        """
        with self._lock:
            future = self._futures.get((what, job, trigger))
        if future is None:
            raise NotFound(f"there is no {what} operation {trigger} of job {job}")
        if not future.done():
            return None
        with self._lock:
            self._unread.discard((what, job, trigger))
            self._all_read.notify_all()
        error = future.exception()
        if error is not None:
            raise OperationFailed(str(error))
        return future.result()

    def linger(self, timeout_s: float) -> None:
        """Waits until every known outcome was read: a client that stopped the last job of a cluster must
        get the path of its savepoint."""
        with self._lock:
            self._all_read.wait_for(self._known_are_read, timeout_s)

    def _known_are_read(self) -> bool:
        return not any(self._futures[key].done() for key in self._unread)
