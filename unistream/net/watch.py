"""Something that is looked after again and again, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

JOIN_S: Final = 5.0  # a look makes a folder and a socket, which takes milliseconds

_LOG: Final = logging.getLogger("unistream.net")


class Watch:
    """Calls `look` every `every_s` seconds until `close`. What `look` raises is logged, once as long as it is
    the same, and tried again."""

    def __init__(self, name: str, every_s: float, look: Callable[[], None]) -> None:
        self._name = name
        self._every_s = every_s
        self._look = look
        self._over = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when no look is under way any more. May be called again."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._look()
            except Exception as error:  # nobody waits for this thread: it must go on
                if str(error) != self._failure:
                    _LOG.exception("event=watch_failed watch=%s", self._name)
                self._failure = str(error)
            else:
                self._failure = ""
