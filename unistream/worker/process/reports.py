"""Reports of a TaskManager to its master: one queue, one thread, in order.

Reports that are posted during a request are sent together in the next one (`unistream.model.bundle`). Each
request is repeated, with growing pauses, until it is answered or the lease has expired, which ends the
worker. Repeated reports are harmless: each carries its attempt.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.errors import ProtocolError, Unreachable
from unistream.model import messages as msg
from unistream.model.bundle import Parcel, parcels
from unistream.port.transport import ControlClient

RETRY_FIRST_S: Final = 0.05
RETRY_LONGEST_S: Final = 2.0

_log = logging.getLogger(__name__)


OnSilence = Callable[[int, Unreachable], None]
"""Called for each request that was not answered: (ms without an answer so far, the error)."""


def unheard(_silent_ms: int, _error: Unreachable) -> None:
    """Does nothing when the master is silent: the default of `OnSilence`."""


class GaveUp(Unreachable):
    """The master did not answer until the lease had expired."""


def call_patiently(
    client: ControlClient,
    message: msg.Request,
    *,
    clock: Clock,
    patience_ms: int,
    stop: threading.Event,
    on_silence: OnSilence = unheard,
) -> msg.Answer:
    """One request, repeated while the master does not answer.

    Raises:
        GaveUp: no answer for `patience_ms`, or `stop` was set meanwhile.
        ProtocolError: the message cannot be sent.
    """
    began_ms = clock.monotonic_ms()
    pause_s = RETRY_FIRST_S
    while True:
        try:
            return client.call(message)
        except Unreachable as error:
            silent_ms = clock.monotonic_ms() - began_ms
            on_silence(silent_ms, error)
            if silent_ms >= patience_ms or stop.wait(pause_s):
                raise GaveUp(f"the master did not answer for {silent_ms} ms: {error}") from error
            pause_s = min(2 * pause_s, RETRY_LONGEST_S)


class ReportSender:
    """Sends in the order of `post`, on a thread of its own.

    Args:
        on_answer: Called after each answer.
        on_give_up: Called with the reason when nothing is sent any more.
    """

    def __init__(
        self,
        client: ControlClient,
        *,
        clock: Clock,
        patience_ms: int,
        on_answer: Callable[[], None],
        on_give_up: Callable[[str], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._patience_ms = patience_ms
        self._on_answer = on_answer
        self._on_give_up = on_give_up
        self._queue: queue.SimpleQueue[msg.ToJobManager | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, message: msg.ToJobManager) -> None:
        self._queue.put(message)

    def close(self, timeout_s: float) -> None:
        self._queue.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        self._stop.set()

    def _run(self) -> None:
        closing = False
        while not closing:
            reports, closing = self._take()
            try:
                self._send_all(reports)
            except GaveUp as error:
                self._on_give_up(str(error))
                return

    def _take(self) -> tuple[list[msg.ToJobManager], bool]:
        """Waits for a report; returns it with those behind it. True: there will be no more."""
        reports: list[msg.ToJobManager] = []
        message = self._queue.get()
        while message is not None:
            reports.append(message)
            if self._queue.empty():
                return reports, False
            message = self._queue.get()
        return reports, True

    def _send_all(self, reports: list[msg.ToJobManager]) -> None:
        for parcel in parcels(reports):
            self._send(parcel)

    def _send(self, parcel: Parcel[msg.ToJobManager]) -> None:
        try:
            answers = parcel.answers(
                call_patiently(
                    self._client,
                    parcel.request,
                    clock=self._clock,
                    patience_ms=self._patience_ms,
                    stop=self._stop,
                )
            )
        except ProtocolError as error:
            self._send_apart(parcel, error)
            return
        self._on_answer()
        for report, answer in zip(parcel.messages, answers, strict=True):
            if isinstance(answer, msg.Refused):
                _log.info("event=report_refused message=%s reason=%s", type(report).__name__, answer.reason)
            elif isinstance(answer, msg.Broken):
                self._not_sent(report, answer.reason)

    def _send_apart(self, parcel: Parcel[msg.ToJobManager], error: ProtocolError) -> None:
        """One report made the whole request invalid."""
        if len(parcel.messages) == 1:
            self._not_sent(parcel.messages[0], str(error))
            return
        for report in parcel.messages:
            self._send_all([report])

    def _not_sent(self, report: msg.ToJobManager, reason: str) -> None:
        _log.error("event=report_not_sent message=%s reason=%s", type(report).__name__, reason)
        if isinstance(report, msg.CheckpointAcked):  # too much inline state for one message, say
            declined = msg.CheckpointDeclined(
                attempt=report.attempt, checkpoint_id=report.checkpoint_id, reason=reason
            )
            self._send_all([declined])
