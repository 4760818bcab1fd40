"""Writes entries of the catalogue's queue to the metadata store; used by the catalogue's thread only."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from unistream.base.crash_points import crash_point
from unistream.base.errors import Fenced, NotFound
from unistream.base.ids import ClusterId, JobId, LeaderEpoch
from unistream.master.service.write_queue import QueuedWrite, WriteKind
from unistream.model.stored_job import StoredResult
from unistream.port.metadata import PAGE_ROWS, JobRecord, MetadataStore

SETTLE_TRIES = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What earlier leaders have left.

    Attributes:
        results: Of jobs that have ended.
        unfinished: Jobs that are started again; all others without a result have ended with their leader.
            None: nothing is known of others.
        now_ms: When this was found.
    """

    results: Sequence[StoredResult]
    unfinished: Collection[JobId] | None
    now_ms: int


class RecordWriter:
    """Knows the newest row of each job that runs, which it writes again where it is missing.

    Every method raises as the store does.
    """

    def __init__(self, store: MetadataStore, epoch: LeaderEpoch, cluster: ClusterId) -> None:
        self._store = store
        self._epoch = epoch
        self._cluster = cluster
        self._records: dict[JobId, JobRecord] = {}
        self._to_restore: list[JobId] = []

    def __len__(self) -> int:
        return len(self._records)

    def begin_restoring(self) -> None:
        """The database was made again: `restore` writes the rows of all jobs that run."""
        self._to_restore = list(self._records)

    @property
    def is_restoring(self) -> bool:
        return bool(self._to_restore)

    def restore(self) -> None:
        """Goes on where it was interrupted."""
        while self._to_restore:
            record = self._records.get(self._to_restore[-1])
            if record is not None:
                try:
                    self._records[record.job] = self._store.put_job(record, self._epoch)
                except Fenced as error:
                    logger.warning("event=job_not_restored job=%s reason=%r", record.job, str(error))
                    del self._records[record.job]  # a newer leader has it, and has written it already
            self._to_restore.pop()

    def write_again(self, entries: Sequence[QueuedWrite]) -> None:
        """The row of a job is missing or of another version: removed by hand, restored from a backup, or a
        write was done although its confirmation was lost. A newer leader's row stays."""
        for job in {entry.job for entry in entries if entry.job in self._records}:
            assert job is not None
            self._records[job] = self._store.put_job(self._records[job], self._epoch)
        self.write(entries)

    def write(self, entries: Sequence[QueuedWrite]) -> None:
        """Entries of one kind."""
        first = entries[0]
        if first.job is not None:
            self._write_of_job(first.job, entries)
            return
        match first.kind:
            case WriteKind.EPOCH:
                self._store.record_epoch(first.content)
            case WriteKind.CLUSTER:
                self._store.record_cluster(first.content)
            case WriteKind.LEFT:
                self._settle(first.content)

    def _write_of_job(self, job: JobId, entries: Sequence[QueuedWrite]) -> None:
        store, content = self._store, entries[0].content
        match entries[0].kind:
            case WriteKind.JOB:
                self._records[job] = store.put_job(content, self._epoch)
            case WriteKind.STATE | WriteKind.GRAPH:
                self._update(job, content)
            case WriteKind.ATTEMPT:
                store.record_attempts([c for entry in entries for c in entry.content], self._epoch)
            case WriteKind.CHECKPOINT | WriteKind.TRIGGERED | WriteKind.SAVEPOINT:
                store.record_checkpoint(job, content, self._epoch)
            case WriteKind.EXCEPTION:
                store.record_exception(content, self._epoch)
            case WriteKind.EVENT:
                store.record_event(content, self._epoch)
            case WriteKind.COMMIT:
                store.record_commit(content, self._epoch)
                crash_point("commit.recorded")
            case WriteKind.ARTIFACT:
                store.artifacts.use(job, content, self._epoch)
            case WriteKind.ARCHIVE:
                store.record_archive(content, self._epoch)

    def _update(self, job: JobId, changes: dict[str, object]) -> None:
        record = self._records.get(job)
        if record is None:
            return
        changed = replace(record, **{name: value for name, value in changes.items() if value is not None})
        self._records[record.job] = self._store.update_job(changed, self._epoch)
        if changes.get("ended_ms") is not None:
            del self._records[record.job]

    def _settle(self, left: LeftBehind) -> None:
        """Rows of this cluster's jobs that no master of it has."""
        results = {result.job: result for result in left.results}
        for row in self._wrong(results):
            self._settle_row(row, results[row.job], left)
        while True:
            rows = self._store.unended(self._cluster)
            settled = [self._settle_row(row, results.get(row.job), left) for row in rows]
            if len(rows) < PAGE_ROWS or not any(settled):
                return

    def _wrong(self, results: Mapping[JobId, StoredResult]) -> Iterator[JobRecord]:
        """Rows with another end than that which counts: by a leader that did not know that it led no more."""
        for line in self._store.history() if results else ():
            result = results.get(line.record.job)
            is_ours = line.record.cluster == self._cluster
            if is_ours and result is not None and line.record.state != result.state:
                row = self._store.job(line.record.job)
                if row is not None:
                    yield row

    def _settle_row(self, row: JobRecord, result: StoredResult | None, left: LeftBehind) -> bool:
        """True: it is changed, and has an end. An older leader that does not know may write it meanwhile."""
        found: JobRecord | None = row
        for _ in range(SETTLE_TRIES):
            changed = found and _settled(found, result, left)
            if changed is None or changed == found or row.job in self._records:
                return False
            try:
                return self._store.update_job(changed, self._epoch).ended_ms is not None
            except (Fenced, NotFound) as error:
                logger.warning("event=job_not_settled job=%s reason=%r", row.job, str(error))
                found = self._store.job(row.job)
        return False


def _settled(row: JobRecord, result: StoredResult | None, left: LeftBehind) -> JobRecord:
    """The row as it should be."""
    if result is not None:
        return replace(
            row,
            state=result.state,
            restarts=result.restarts,
            ended_ms=result.ended_ms,
            changed_ms=result.ended_ms,
        )
    if left.unfinished is not None and row.job in left.unfinished:
        return replace(row, state="RECONCILING", ended_ms=None, changed_ms=left.now_ms)
    if left.unfinished is not None and row.ended_ms is None:
        return replace(row, state="SUSPENDED", ended_ms=left.now_ms, changed_ms=left.now_ms)
    return row
