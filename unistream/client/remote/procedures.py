"""Reports to a cluster of how far a backfill or an upgrade is: on a thread of their own, and best effort.

The procedure never waits for one. To a cluster that does not answer, or is of an earlier version, it is sent
again at the next step, or after `EVERY_S`, by which people see that the process lives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import structs

from unistream.base.errors import UnistreamError
from unistream.client.remote.policy import CallKind
from unistream.client.remote.rest_client import RestClient
from unistream.model.procedures import TEXT_CHARS_MAX, ProcedureReport, ProcedureState, check_report

PATH: Final = "/unistream/procedures"
EVERY_S: Final = 10.0
ANSWER_S: Final = 5.0
LAST_S: Final = 5.0  # longest wait for the last report, when the procedure has ended

logger = logging.getLogger(__name__)


class ProcedureReporter:
    """Reports one procedure until the end of a `with` block. An error that leaves the block is reported as
    its end or, since the same command goes on, as an interruption.

    Args:
        connect: To the cluster; called on the thread, again after each failure.
        report: The first one; too long texts are cut off.
        refusals: Errors after which it does not go on.
        every_s: How often the report is repeated.

    Raises:
        ConfigError: it cannot be reported.
    """

    def __init__(
        self,
        connect: Callable[[], RestClient],
        report: ProcedureReport,
        *,
        refusals: tuple[type[BaseException], ...] = (),
        every_s: float = EVERY_S,
    ) -> None:
        cut = {name: _cut(getattr(report, name)) for name in ("job_name", "subject", "text", "goes_on")}
        self._report = structs.replace(report, **cut)
        check_report(self._report)
        self._connect = connect
        self._refusals = refusals
        self._every_s = every_s
        self._lock = threading.Lock()  # guards the report
        self._changed = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._tell, name="procedure-reports", daemon=True)

    def done(self, steps: int, text: str = "") -> None:
        """So many steps are done."""
        if (steps, text) != (self._report.done, self._report.text):
            self._change(done=steps, text=text)

    def ended(self, state: ProcedureState, text: str = "") -> None:
        """It is over, or interrupted."""
        done = len(self._report.steps) if state is ProcedureState.DONE else self._report.done
        self._change(done=done, state=state, text=text, goes_on="" if state.is_end else self._report.goes_on)

    def __enter__(self) -> Self:
        self._changed.set()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for the last report, at most `LAST_S`."""
        if error is not None:
            state = (
                ProcedureState.GIVEN_UP if isinstance(error, self._refusals) else ProcedureState.INTERRUPTED
            )
            self.ended(state, str(error) or type(error).__name__)
        elif self._report.state is ProcedureState.RUNS:
            self.ended(ProcedureState.GIVEN_UP, "it was given up")
        self._is_closed = True
        self._changed.set()
        self._thread.join(LAST_S)

    def _change(self, *, text: str, **changes: object) -> None:
        with self._lock:
            self._report = structs.replace(self._report, text=_cut(text), **changes)
        self._changed.set()

    def _tell(self) -> None:
        """Reports each change, and the same again after a while, until the reporter is closed; on its own
        thread."""
        cluster: RestClient | None = None
        while True:
            self._changed.wait(self._every_s)
            self._changed.clear()
            is_last = self._is_closed  # behind that, or a close in between would wake nobody
            cluster = self._told(cluster)
            if is_last:
                break
        if cluster is not None:
            cluster.close()

    def _told(self, cluster: RestClient | None) -> RestClient | None:
        """The connection over which the report was sent; None: it could not be."""
        with self._lock:
            report = self._report
        try:
            cluster = cluster or self._connect()
            cluster.request(
                "PUT", PATH, call=CallKind.STORE, content=msgspec.json.encode(report), timeout_s=ANSWER_S
            )
        except UnistreamError as error:
            logger.debug("event=procedure_not_reported id=%s reason=%r", report.id, str(error))
            if cluster is not None:
                with suppress(UnistreamError):
                    cluster.close()
            return None
        return cluster


def _cut(text: str) -> str:
    return text.replace("\0", "")[:TEXT_CHARS_MAX]
