"""Asynchronous requests: a trigger id now, the outcome later.

Savepoints, stops and changes of parallelism are known to later leaders, too (`master.store.operations`); all
others end with this process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ConfigError, NotFound, Transient
from unistream.base.ids import JobId

TRIGGERS_KEPT_MAX: Final = 1_000  # outcomes are read within seconds; older ones are forgotten

_Key = tuple[str, JobId, str]


class OperationFailed(ConfigError):
    """It failed, such as a savepoint."""


@dataclass(frozen=True, slots=True)
class _Operation:
    request: object
    future: Future[str]


class Triggers:
    """Outcomes by (what, job, trigger id); `what` is "savepoint" (stops too), "checkpoint" or "rescale".
    Thread-safe."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._operations: OrderedDict[_Key, _Operation] = OrderedDict()
        self._unread: set[_Key] = set()
        self._all_read = threading.Condition(self._lock)

    def start(
        self,
        job: JobId,
        begin: Callable[[str], Future[str]],
        *,
        what: str = "savepoint",
        trigger: str | None = None,
        request: object = None,
    ) -> str:
        """The trigger id.

        Args:
            job: Whose operation it is.
            begin: Starts it under its trigger id; must return at once. What it raises is raised here, and
                there is no operation.
            what: See above.
            trigger: An id chosen by the caller: sent again, it starts nothing more (Flink's `triggerId`).
            request: What is to be done, by value.

        Raises:
            ConfigError: the trigger id is the one of another request.
        """
        key = (what, job, trigger or self._new_id())
        with self._starting:
            known = self._operations.get(key)
            if known is None:
                self._keep(key, _Operation(request, begin(key[2])))
            elif known.request != request:
                raise ConfigError(f"trigger id {key[2]} is the one of another request; choose a new one")
        return key[2]

    def _keep(self, key: _Key, operation: _Operation) -> None:
        with self._lock:
            self._operations[key] = operation
            self._unread.add(key)
            while len(self._operations) > TRIGGERS_KEPT_MAX:
                oldest, _ = self._operations.popitem(last=False)
                self._unread.discard(oldest)

    def outcome(
        self, job: JobId, trigger: str, what: str = "savepoint", known: Future[str] | None = None
    ) -> str | None:
        """The savepoint's path ("" for what has none); None while it is in progress. `known`: of one that
        outlives this process.

        Raises:
            NotFound: there is no such trigger.
            ConfigError: it failed, and why.
            Transient: this master has left it to the next one.
        """
        with self._lock:
            operation = self._operations.get((what, job, trigger))
        if operation is None and known is None:
            raise NotFound(f"there is no {what} operation {trigger} of job {job}")
        future = known or operation.future  # type: ignore[union-attr]
        if not future.done():
            return None
        with self._lock:
            self._unread.discard((what, job, trigger))
            self._all_read.notify_all()
        error = future.exception()
        if isinstance(error, Transient):
            raise error
        if error is not None:
            raise OperationFailed(str(error))
        return future.result()

    def linger(self, timeout_s: float) -> None:
        """Waits until every known outcome was read: a client that stopped the last job of a cluster must
        get the path of its savepoint."""
        with self._lock:
            self._all_read.wait_for(self._known_are_read, timeout_s)

    def _known_are_read(self) -> bool:
        return not any(self._operations[key].future.done() for key in self._unread)
