"""Calls on a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def in_background(call: Callable[[], T], name: str, outcome: Future[T] | None = None) -> Future[T]:
    """Runs `call` on a daemon thread, where no signal interrupts it and for which the end of the process does
    not wait. `outcome`: the future to complete, which may be cancelled before the thread starts."""
    future: Future[T] = outcome or Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(call())
        except BaseException as error:  # raised where the future is waited for
            future.set_exception(error)

    threading.Thread(target=run, name=f"unistream-{name}", daemon=True).start()
    return future


def awaited(future: Future[T], timeout_s: float, waits_for: str) -> T:
    """The outcome of `future`, which is a value or an error.

    >>> done: Future[int] = Future()
    >>> done.set_result(3)
    >>> awaited(done, 0.0, "the third")
    3

    Raises:
        TimeoutError: there was none in `timeout_s`; its text says what it was waited for. (The one of
            `Future.result` has no text.)
    """
    if not wait([future], max(0.0, timeout_s)).done:
        raise TimeoutError(f"waited {timeout_s:.0f} s for {waits_for}, which takes longer")
    return future.result()
