"""What is read of ended jobs in the database, and kept for a while: many ask, and little changes."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

from unistream.base.clock import Clock
from unistream.base.errors import UnistreamError
from unistream.base.ids import ClusterId, JobId, LineageId, OperatorUid
from unistream.master.shown.history import graph_of, summary_from_line, summary_of_result
from unistream.model.job_info import TERMINAL_STATES, JobSummary
from unistream.model.stored_job import StoredResult
from unistream.port.metadata import MetadataStore

LISTED_MAX: Final = 1_000  # the newest, of all clusters: as many as are kept
FRESH_MS: Final = 1_000
STORED_FRESH_MS: Final = 5_000  # up to 1,000 results are read one by one
PAGES_KEPT_MAX: Final = 16  # each is made of a document of 1 MiB at most

T = TypeVar("T")

Writes = Mapping[OperatorUid, Sequence[str]]
"""Uid of a sink -> URIs of its outputs."""

logger = logging.getLogger(__name__)


def read_ended(store: MetadataStore, now_ms: int, own: ClusterId) -> list[JobSummary]:
    """Jobs of all clusters that do not run, newest first. `own`: of the cluster that asks, if one does; it
    knows which of its jobs run."""
    return [summary for summary in read_listed(store, now_ms, own) if summary.state in TERMINAL_STATES]


def read_listed(store: MetadataStore, now_ms: int, own: ClusterId) -> list[JobSummary]:
    """Jobs of all clusters, as `read_ended`, and those that run in another cluster."""
    clusters = {cluster.cluster: cluster for cluster in store.clusters() if cluster.cluster != own}
    lines = store.history(LISTED_MAX)
    return [summary_from_line(line, clusters.get(line.record.cluster), now_ms) for line in lines]


def written_by_both(one: Writes, other: Writes) -> str | None:
    """An output that sinks of one uid in both jobs write; None: there is none."""
    wanted = {(uid, uri) for uid, uris in one.items() for uri in uris}
    return next((uri for uid, uris in other.items() for uri in uris if (uid, uri) in wanted), None)


def writer_elsewhere(
    store: MetadataStore, now_ms: int, own: ClusterId, writes: Writes, lineage: LineageId | None = None
) -> tuple[JobSummary, str] | None:
    """A job of another cluster that runs and writes one of these outputs, and which; None: there is none.
    `lineage`: only jobs of this line are asked."""
    if not writes:
        return None
    for job in read_listed(store, now_ms, own):
        record = None if job.state in TERMINAL_STATES else store.job(job.job)
        if record is None or record.cluster == own or lineage not in (None, record.lineage):
            continue
        uri = written_by_both(writes, graph_of(record).writes)
        if uri is not None:
            return job, uri
    return None


class RecentPages:
    """Pages of ended jobs that were asked for last; a page of a job without an archive may count hundreds of
    thousands of rows. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The page of that key, which has to change when the page does."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                found: T = self._pages[key]
                return found
        page = read()
        with self._lock:
            self._pages[key] = page
            while len(self._pages) > PAGES_KEPT_MAX:
                self._pages.popitem(last=False)
        return page


class EndedJobs:
    """The list, read at most once a second. Thread-safe. A caller that comes while another one reads gets the
    former list.

    Args:
        results: Of this cluster's jobs, which are known also while the database is away.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        own: ClusterId,
        results: Callable[[], Sequence[StoredResult]] = tuple,
    ) -> None:
        self._store = store
        self._results = results
        self._clock = clock
        self._own = own
        self._reading = threading.Lock()
        self._known: Sequence[JobSummary] | None = None
        self._failed = False
        self._fresh_until_ms = 0.0
        self._stored: Sequence[JobSummary] = ()
        self._stored_until_ms = 0.0

    def read(self, *, not_away: bool) -> Sequence[JobSummary]:
        """`not_away`: the database answers, as far as is known; else nobody waits for it."""
        is_due = not_away and self._clock.monotonic_ms() >= self._fresh_until_ms
        if is_due and self._reading.acquire(blocking=self._known is None):
            try:
                self._read()
            finally:
                self._reading.release()
        if not_away and self._known is not None and not self._failed:
            return self._known
        listed = self._known or ()
        return [*listed, *self._missing({summary.job for summary in listed})]

    def _missing(self, listed: AbstractSet[JobId]) -> list[JobSummary]:
        """Jobs of this cluster that have ended and are not listed, since the database is away."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._stored_until_ms:
            self._stored_until_ms = now_ms + STORED_FRESH_MS
            try:
                self._stored = [summary_of_result(result, self._own) for result in self._results()]
            except UnistreamError as error:
                logger.warning("event=results_not_read reason=%r", str(error))
        return [summary for summary in self._stored if summary.job not in listed]

    def _read(self) -> None:
        if self._clock.monotonic_ms() < self._fresh_until_ms:
            return  # another one has read while we waited
        try:
            self._known = read_ended(self._store, self._clock.wall_ms(), self._own)
            self._failed = False
        except UnistreamError as error:
            logger.warning("event=ended_jobs_not_read reason=%r", str(error))
            self._failed = True
        self._fresh_until_ms = self._clock.monotonic_ms() + FRESH_MS
