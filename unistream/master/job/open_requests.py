"""Snapshots and rescalings that users wait for.

Each request is answered exactly once, at the latest when the job ends.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future, InvalidStateError

from unistream.base.errors import AlreadyEnded, ConfigError
from unistream.core.contract import AnswerRequest

logger = logging.getLogger(__name__)


class OpenRequests:
    """Requests by id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Future[str]] = {}
        self._closed_because: str | None = None

    def add(self) -> tuple[str | None, Future[str]]:
        """(id, future answer); id None: closed, the answer is AlreadyEnded."""
        answer: Future[str] = Future()
        with self._lock:
            if self._closed_because is None:
                request = uuid.uuid4().hex
                self._open[request] = answer
                return request, answer
        answer.set_exception(AlreadyEnded(self._closed_because))
        return None, answer

    def answer(self, command: AnswerRequest) -> None:
        """An unknown request is ignored."""
        with self._lock:
            answer = self._open.pop(command.request, None)
        if answer is not None:
            _settle(answer, command.path, command.error or "no reason was given")

    def close(self, because: str) -> None:
        """No more are taken."""
        with self._lock:
            self._closed_because = because

    def reject_all(self, reason: str) -> None:
        with self._lock:
            answers, self._open = list(self._open.values()), {}
        for answer in answers:
            _settle(answer, None, reason)


def _settle(answer: Future[str], path: str | None, error: str) -> None:
    try:
        if path is not None:
            answer.set_result(path)
        else:
            answer.set_exception(ConfigError(error))
    except InvalidStateError:  # the caller has cancelled the future
        logger.debug("event=answer_not_wanted path=%s error=%s", path, error)
