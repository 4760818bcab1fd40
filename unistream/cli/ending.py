"""SIGINT and SIGTERM to a process with a cluster: the first one ends it in order, the second one at once.

    first     jobs are suspended: their tasks end, everything that is durable stays
    second    nothing is waited for: jobs are recorded as suspended if that takes no time, and the process
              exits with 128 + the signal's number; its workers end with it

A signal never cancels a job and never removes a checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Self

from unistream.cli.errors import complain

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SECOND_ENDS: Final = "a second Ctrl-C does not wait for its tasks"
AT_ONCE_S: Final = 1.5  # from the second signal to the end of the process


class StopSignals:
    """Has the signals while it is entered; on the main thread.

    Args:
        on_first: Called by the first signal, on the main thread; may raise.

    Attributes:
        requested: Set by the first signal; others may set it, too.
        abandon: Called by the second one, on a thread of its own, with the seconds that it has; None: there
            is nothing to abandon.
        exit_code: 128 + the number of the second signal; 0: there was none.
    """

    def __init__(self, on_first: Callable[[int], None] = lambda _number: None) -> None:
        self.requested = threading.Event()
        self.abandon: Callable[[float], None] | None = None
        self.exit_code = 0
        self._on_first = on_first
        self._signals = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self.claim()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def claim(self) -> None:
        """Takes the signals (again: a library may have replaced the handlers)."""
        for number in SIGNALS:
            before = signal.signal(number, self._on_signal)
            self._before.setdefault(number, before)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            self.requested.set()
            self._on_first(number)
        elif self._signals == 2:  # further ones change nothing
            self.exit_code = 128 + number
            threading.Thread(target=self._at_once, name="at-once", daemon=True).start()

    def _at_once(self) -> None:
        limit = threading.Timer(AT_ONCE_S, self._exit)
        limit.daemon = True
        limit.start()
        complain(
            "a second signal: nothing is waited for any more; jobs are suspended, nothing of them is removed"
        )
        if self.abandon is None:
            self._exit()
        else:
            self.abandon(AT_ONCE_S / 2)

    def _exit(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # nobody reads it any more
                continue
        os._exit(self.exit_code)
