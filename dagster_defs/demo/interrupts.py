"""Ctrl-C and SIGTERM as KeyboardInterrupt, but never between the start of a process and its registration."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Raises KeyboardInterrupt at once, or at the end of the section that must not be cut in two."""

    def __init__(self) -> None:
        self._shields = 0
        self._pending = False

    def install(self) -> None:
        """For the rest of the process; call it from the main thread."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A signal that comes meanwhile is raised at the end. For the main thread, and short."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending and not self._shields:
            self._pending = False
            raise KeyboardInterrupt

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        if self._shields:
            self._pending = True
        else:
            raise KeyboardInterrupt
