"""Interruptions of a step that Python has ignored."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Final, Self

import dagster as dg

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interruptions:
    """A block within which a signal that the step did not hear of is raised by `check`.

    Dagster's handler raises in what the main thread does. In some places Python ignores an exception, such as
    in a weak reference's callback or while an object is collected; the run would go on then, and its
    termination would have no effect. Outside of the main thread there are no signals, and nothing is done.
    """

    def __init__(self) -> None:
        self._is_unheard = False
        self._before: dict[int, Any] = {}

    def heard(self) -> None:
        """The step has been interrupted, by this signal or otherwise."""
        self._is_unheard = False

    def check(self) -> None:
        """Raises dg.DagsterExecutionInterruptedError: there was a signal, and nobody heard of it."""
        if self._is_unheard:
            self._is_unheard = False
            raise dg.DagsterExecutionInterruptedError

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if callable(before):
                    self._before[number] = before
                    signal.signal(number, self._noticed)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._noticed:
                signal.signal(number, before)

    def _noticed(self, number: int, frame: FrameType | None) -> None:
        self._is_unheard = True
        self._before[number](number, frame)
