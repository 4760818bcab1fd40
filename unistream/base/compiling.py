"""Whether this process compiles machine code just now, as it does the first time that records are read on a
machine: some minutes of a slow core, in which nothing else happens. What compiles says so here, and what
reports on the tasks of the process asks.
"""

from __future__ import annotations

import threading


class Compiling:
    """Thread-safe.

    >>> one = Compiling()
    >>> one.begin(), one.begin(), one.end(), one.is_under_way, one.end(), one.is_under_way
    (True, False, False, True, True, False)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0

    @property
    def is_under_way(self) -> bool:
        return self._depth > 0

    def begin(self) -> bool:
        """True: nothing else was compiled meanwhile."""
        with self._lock:
            self._depth += 1
            return self._depth == 1

    def end(self) -> bool:
        """True: it was the last one."""
        with self._lock:
            self._depth -= 1
            return self._depth == 0


PROCESS = Compiling()
"""What this process compiles; it has one compiler."""
