"""Threads for background work: a pool, and one thread that takes all items queued so far together (messages
to one worker).

`concurrent.futures` pools are not used: they refuse work as soon as the interpreter begins to exit, which is
when a cluster that was left open is closed.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Generic, ParamSpec, Protocol, TypeVar

Work = Callable[[], None]
P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class OrderedGatherer(Generic[T]):
    """Passes items to `work` on a thread of its own, in order: at once if it is idle, else all items queued
    meanwhile together. Items submitted together are never divided.

    Args:
        work: An exception from it is logged, and the next items follow.
        at_end: Called last, on the thread.
    """

    def __init__(self, name: str, work: Callable[[Sequence[T]], None], at_end: Work = lambda: None) -> None:
        self._work = work
        self._at_end = at_end
        self._ready = threading.Condition()
        self._gathered: list[T] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, items: Sequence[T]) -> bool:
        """False: closed, the items are not passed on."""
        with self._ready:
            if self._closed:
                return False
            self._gathered.extend(items)
            self._ready.notify()
            return True

    def close(self, timeout_s: float) -> bool:
        """Accepts no more, passes on what is queued, ends the thread; False if it still works then."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._passes_on():
            pass
        self._guarded(self._at_end)

    def _passes_on(self) -> bool:
        """Passes on what is queued, which is not kept until the next is: messages to a thousand workers are
        hundreds of megabytes. False: closed."""
        items = self._take()
        if items:
            self._guarded(lambda: self._work(items))
        return bool(items)

    def _take(self) -> list[T]:
        """Empty if it is closed."""
        with self._ready:
            self._ready.wait_for(lambda: self._gathered or self._closed)
            gathered, self._gathered = self._gathered, []
            return gathered

    def _guarded(self, work: Work) -> None:
        try:
            work()
        except Exception:  # a failure must not end the thread
            logger.exception("event=background_work_failed thread=%s", self._thread.name)


class WorkPool(Protocol):
    """Runs work on other threads than the loops'."""

    def submit(self, work: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        """Done when `work` has run; carries its exception. After `close`: cancelled, will not run."""

    def wait(self, work: Iterable[Future[None]], timeout_s: float) -> None:
        """Waits until all of it is done, or for `timeout_s`."""

    def close(self, timeout_s: float) -> bool:
        """Runs what is queued; False if something still works after `timeout_s`."""


class Pool:
    """A `WorkPool` of threads that share a queue; one thread runs its work in order."""

    def __init__(self, name: str, threads: int) -> None:
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        future: Future[None] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                work(*args, **kwargs)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        with self._lock:
            if not self._closed:
                self._queue.put(run)
                return future
        future.cancel()
        future.set_running_or_notify_cancel()
        return future

    def wait(self, work: Iterable[Future[None]], timeout_s: float) -> None:
        """See `WorkPool`. Must not be called by a thread of the pool."""
        wait(list(work), timeout=timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Runs what is queued, ends the threads; False if one still works after `timeout_s`."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._queue.put(None)
        ended = True
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s if ended else 0)
            ended = ended and not thread.is_alive()
        return ended

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


class InOrder:
    """Runs its share of a pool's work one at a time, in the order of `submit`."""

    def __init__(self, pool: WorkPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Work, Future[None]]] = deque()
        self._is_busy = False

    def submit(self, work: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        """Queues one piece of work behind all earlier ones; otherwise as `Pool.submit`."""
        done: Future[None] = Future()
        with self._lock:
            self._waiting.append((functools.partial(work, *args, **kwargs), done))
            begins, self._is_busy = not self._is_busy, True
        if begins and self._pool.submit(self._run).cancelled():
            self._give_up()
        return done

    def _run(self) -> None:
        """Does the queued work, on a thread of the pool, until nothing waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_busy = False
                    return
                work, done = self._waiting.popleft()
            if not done.set_running_or_notify_cancel():
                continue
            try:
                work()
            except Exception as error:  # reported by the future, as in a pool
                done.set_exception(error)
            else:
                done.set_result(None)

    def _give_up(self) -> None:
        """The pool is closed."""
        with self._lock:
            waiting, self._waiting, self._is_busy = self._waiting, deque(), False
        for _, done in waiting:
            done.cancel()
            done.set_running_or_notify_cancel()
