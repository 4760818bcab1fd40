"""Writes that must not be lost: each is tried until the store has taken it, or this master does not lead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from unistream.base.errors import OutcomeUnknown, Transient, UnistreamError
from unistream.master.loop import CreateLoop, Loop
from unistream.master.store.leadership import Leadership

RETRY_MS: Final = 1_000  # somebody waits for the answer that follows
IDLE_MS: Final = 60_000  # bounds one wait of the loop; nothing depends on it
CLOSE_TIMEOUT_S: Final = 30.0

Write: TypeAlias = Callable[[], None]
"""May be repeated. Raises as the `JobStore`."""

logger = logging.getLogger(__name__)


class UntilWritten:
    """See the module. Thread-safe. Its loop begins with the first write."""

    def __init__(self, create_loop: CreateLoop, leadership: Leadership) -> None:
        self._loop: Loop[Write | None, Write] = create_loop("until-written")
        self._leadership = leadership
        self._lock = threading.Lock()
        self._begun = self._closed = False

    def add(self, write: Write) -> None:
        """Tries it in the background. Returns at once."""
        with self._lock:
            if self._closed:
                return
            if not self._begun:
                self._begun = True
                self._loop.start(lambda: True, self._step)
        self._loop.post(write)

    def close(self) -> None:
        """What is not written is left to the next leader. Bounded."""
        with self._lock:
            self._closed = True
        self._loop.post(None)
        self._loop.join(CLOSE_TIMEOUT_S)

    def _step(self) -> bool:
        new, again = self._loop.take(IDLE_MS)
        if self._leadership.await_leading() is not None:
            return False  # all of it is the next leader's
        write = new or again
        if write is not None:
            self._try(write)
        return not self._closed

    def _try(self, write: Write) -> None:
        try:
            write()
        except (Transient, OutcomeUnknown) as error:
            logger.warning("event=written_later reason=%r", str(error))
            self._loop.set_timer(write, RETRY_MS)
        except UnistreamError as error:  # this is no leader, or what is stored cannot be read
            logger.warning("event=not_written reason=%r", str(error))
