"""Writes the job metadata, in order and on a thread of its own; a failure is only logged.

The catalogue is history for people. Recovery reads manifests, so a database that is down must not stop a job
(failures are logged and counted). Changes of a job's state are written when the database answers again, since
a job that ended meanwhile would otherwise be listed as running for ever; other records are lost.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from unistream.base.crash_points import crash_point
from unistream.base.errors import Unreachable
from unistream.base.ids import JobId, LeaderEpoch
from unistream.master.ordered import Pool
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.port.metadata import AttemptChange, CommitRecord, ExceptionRecord, JobRecord, MetadataStore

MISSED_MAX: Final = 10_000  # a few states of each job that a cluster may have; then the oldest are lost

logger = logging.getLogger(__name__)


class Catalogue:
    """The metadata store of one leader epoch, written by one thread."""

    def __init__(self, store: MetadataStore, epoch: LeaderEpoch) -> None:
        self._store = store
        self._epoch = epoch
        self._worker = Pool("catalogue", 1)
        self._records: dict[JobId, JobRecord] = {}
        self._lock = threading.Lock()
        self._changes: list[AttemptChange] = []
        self._missed: deque[Callable[[], None]] = deque(maxlen=MISSED_MAX)  # on the worker's thread only
        self.failures = 0

    def add_job(self, record: JobRecord) -> None:
        def write() -> None:
            self._store.add_job(record, self._epoch)
            self._records[record.job] = record

        self._submit("add_job", write, keep=True)

    def take_over_job(self, record: JobRecord) -> None:
        """See `Records`."""

        def write() -> None:
            known = self._store.job(record.job)
            if known is None:  # the database was lost, or is another one
                self._store.add_job(record, self._epoch)
                self._records[record.job] = record
            else:
                again = msgspec.structs.replace(record, version=known.version, restarts=known.restarts)
                self._records[record.job] = self._store.update_job(again, self._epoch)

        self._submit("take_over_job", write, keep=True)

    def update_job(
        self, job: JobId, *, state: str, restarts: int, ended_ms: int | None = None
    ) -> threading.Event:
        """See `Records`."""
        tried = threading.Event()

        def write() -> None:
            record = self._records.get(job)
            if record is None:
                return
            changed = msgspec.structs.replace(
                record, state=state, restarts=restarts, ended_ms=ended_ms or record.ended_ms
            )
            self._records[job] = self._store.update_job(changed, self._epoch)
            if ended_ms is not None:
                del self._records[job]

        if not self._submit("update_job", write, tried.set, keep=True):
            tried.set()
        return tried

    def update_graph(self, job: JobId, graph_json: str) -> None:
        def write() -> None:
            record = self._records.get(job)
            if record is not None:
                changed = msgspec.structs.replace(record, graph_json=graph_json)
                self._records[job] = self._store.update_job(changed, self._epoch)

        self._submit("update_graph", write, keep=True)

    def record_attempt(self, change: AttemptChange) -> None:
        """Changes that arrive during a write are written together: a job of hundreds of tasks makes thousands
        of changes in a second."""
        with self._lock:
            self._changes.append(change)
            first = len(self._changes) == 1
        if first:
            self._submit("record_attempts", self._write_attempts)

    def _write_attempts(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, []
        self._store.record_attempts(changes)

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None:
        self._submit("record_checkpoint", lambda: self._store.record_checkpoint(job, record))

    def record_exception(self, record: ExceptionRecord) -> None:
        self._submit("record_exception", lambda: self._store.record_exception(record))

    def record_commit(self, record: CommitRecord) -> None:
        def write() -> None:
            self._store.record_commit(record)
            crash_point("commit.recorded")

        self._submit("record_commit", write)

    def close(self, timeout_s: float) -> None:
        """Writes what is queued, retries what was missed, then closes the store."""
        self._submit("what_was_missed", lambda: None)
        if self._worker.close(timeout_s):
            self._store.close()
        else:
            logger.error("event=catalogue_not_written reason='still busy after %.0f s'", timeout_s)

    def _submit(
        self,
        what: str,
        write: Callable[[], None],
        after: Callable[[], None] | None = None,
        *,
        keep: bool = False,
    ) -> bool:
        """`keep`: retried in order if the database does not answer."""

        def guarded() -> None:
            try:
                if keep:
                    self._missed.append(write)
                self._catch_up(what)
                if not keep:
                    write()
            except Exception:  # the catalogue is history; a job goes on without it
                self._note_failure(what)
            finally:
                if after is not None:
                    after()

        return not self._worker.submit(guarded).cancelled()

    def _catch_up(self, what: str) -> None:
        """Writes what is kept, in order. Raises Unreachable with the rest kept; drops other failures."""
        while self._missed:
            try:
                self._missed[0]()
            except Unreachable:
                raise
            except Exception:  # another try would not help, and what follows must not wait
                self._note_failure(what)
            self._missed.popleft()

    def _note_failure(self, what: str) -> None:
        self.failures += 1
        logger.exception("event=catalogue_write_failed write=%s", what)
