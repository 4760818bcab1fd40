"""Writes the job metadata, in order and on a thread of its own; a failure never stops a job.

The catalogue is history for people. Recovery reads manifests, so a database may be away, or its file
removed, while jobs go on: what is to be written waits in memory (`master.write_queue` says how much of it,
and what is dropped first) and is written when the database answers again. After its file was removed, the
current rows of the jobs are written again, too. Between the writes the same thread prunes what is no longer
kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import ConfigError, Fenced, NotFound, Unreachable
from unistream.base.ids import ClusterId, JobId, LeaderEpoch
from unistream.master.service.catalogue_upkeep import LeaderRows, PruningPasses, WriteHealth
from unistream.master.service.record_writer import LeftBehind, RecordWriter
from unistream.master.service.write_queue import STATISTICS_MAX, QueuedWrite, WriteKind, WriteQueue
from unistream.model.checkpoint_figures import CheckpointFigures, SnapshotStatus
from unistream.model.job_info import MetadataHealth
from unistream.model.stored_job import StoredResult
from unistream.port import metadata as meta
from unistream.port.retention import MetadataRetention

RETRY_S: Final = 1.0  # until a database that does not answer is tried again
LOOK_S: Final = 5.0  # how often an idle catalogue looks whether its file is still there

logger = logging.getLogger(__name__)


class Catalogue:
    """The metadata store of one leader epoch, written by one thread. `close` closes the store."""

    def __init__(
        self,
        store: meta.MetadataStore,
        epoch: LeaderEpoch,
        retention: MetadataRetention | None = None,
        clock: Clock | None = None,
        *,
        statistics_max: int = STATISTICS_MAX,
        cluster: meta.ClusterRecord | None = None,
        away: str | None = None,
    ) -> None:
        """`cluster`: whose jobs these are; None: it is not known. `away`: why the database does not answer
        now; None: it does, as far as is known."""
        self._clock = clock or SystemClock()
        self._store = store
        self._rows = LeaderRows(store, epoch, cluster, self._clock)
        store.act_for(self.cluster)
        self._queue = WriteQueue(statistics_max)
        self._changed = threading.Condition()
        self._closed = False
        self._health = WriteHealth(self._clock, away)
        # on the thread only
        self._writer = RecordWriter(store, epoch, self.cluster)
        self._pruning = PruningPasses(store, epoch, retention or MetadataRetention(), self._clock)
        self._put(WriteKind.EPOCH, None, self._rows.leader)
        self._thread = threading.Thread(target=self._run, name="catalogue", daemon=True)
        self._thread.start()

    @property
    def cluster(self) -> ClusterId:
        """Whose jobs these are."""
        return self._rows.cluster

    @property
    def failures(self) -> int:
        """How many writes have failed, or found no database."""
        return self._health.failures

    # --- what is to be written --------------------------------------------------------------------

    def add_job(self, record: meta.JobRecord) -> None:
        """A new job, or one of an earlier leader, whose row is taken over."""
        if not record.changed_ms:
            record = msgspec.structs.replace(record, changed_ms=self._clock.wall_ms())
        self._put(WriteKind.JOB, record.job, msgspec.structs.replace(record, cluster=self.cluster))

    def settle(self, results: Sequence[StoredResult], unfinished: Collection[JobId] | None = None) -> None:
        """See `Records`."""
        self._put(WriteKind.LEFT, None, LeftBehind(results, unfinished, self._clock.wall_ms()))

    def update_job(
        self,
        job: JobId,
        *,
        state: str,
        restarts: int,
        changed_ms: int | None = None,
        ended_ms: int | None = None,
    ) -> threading.Event:
        """See `Records`."""
        tried = threading.Event()
        changed_ms = changed_ms or ended_ms or self._clock.wall_ms()
        changes = {"state": state, "restarts": restarts, "ended_ms": ended_ms, "changed_ms": changed_ms}
        self._put(WriteKind.STATE, job, changes, after=tried.set)
        return tried

    def update_graph(self, job: JobId, graph_json: str) -> None:
        self._put(WriteKind.GRAPH, job, {"graph_json": graph_json}, row="graph")

    def record_attempt(self, change: meta.AttemptChange) -> None:
        """Changes that arrive during a write are written together: a job of hundreds of tasks makes thousands
        of changes in a second."""
        entry = QueuedWrite(
            WriteKind.ATTEMPT, change.attempt.job, (change,), row=change.attempt, merge=first_and_last
        )
        self._put_entry(entry)

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None:
        kind = WriteKind.CHECKPOINT
        if record.status is SnapshotStatus.IN_PROGRESS:
            kind = WriteKind.TRIGGERED
        elif record.status is SnapshotStatus.COMPLETED and record.kind.is_savepoint:
            kind = WriteKind.SAVEPOINT
        self._put(kind, job, record, row=("checkpoint", record.checkpoint_id))

    def record_exception(self, record: meta.ExceptionRecord) -> None:
        self._put(WriteKind.EXCEPTION, record.job, record)

    def record_event(self, record: meta.EventRecord) -> None:
        self._put(WriteKind.EVENT, record.job, record)

    def record_commit(self, record: meta.CommitRecord) -> None:
        self._put(WriteKind.COMMIT, record.job, record)

    def record_artifact(self, job: JobId, record: meta.ArtifactRecord) -> None:
        """`job` refers to this artifact."""
        self._put(WriteKind.ARTIFACT, job, record)

    def archive(self, record: meta.ArchiveRecord) -> None:
        """What the pages of a job show from its end on."""
        size = len(record.content)
        self._put_entry(QueuedWrite(WriteKind.ARCHIVE, record.job, record, row="archive", size=size))

    def health(self) -> MetadataHealth:
        """How the metadata are, for REST and people."""
        with self._changed:
            return self._health.shown(len(self._queue), self._queue.dropped)

    def close(self, timeout_s: float) -> None:
        """Writes what is queued, with one more try if the database does not answer; then closes the store."""
        with self._changed:
            if not self._closed:
                for kind, row in self._rows.ended():
                    self._queue.put(QueuedWrite(kind, None, row))
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        health = self.health()
        if self._thread.is_alive():
            logger.error("event=catalogue_not_written reason='still busy after %.0f s'", timeout_s)
            return
        if health.queued:
            logger.error("event=catalogue_not_written rows=%d reason=%r", health.queued, health.reason)
        self._store.close()

    def _put(
        self,
        kind: WriteKind,
        job: JobId | None,
        content: object,
        *,
        row: object = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._put_entry(QueuedWrite(kind, job, content, row=row, after=[after] if after is not None else []))

    def _put_entry(self, entry: QueuedWrite) -> None:
        with self._changed:
            waits_in_vain = self._closed or self._health.is_away
            calls = entry.after if waits_in_vain else []
            if waits_in_vain:
                entry.after = []
            if not self._closed:
                self._queue.put(entry)
                self._changed.notify()
        for call in calls:
            call()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._has_work():
            is_last_try = self._closed
            try:
                self._look()
                if not self._closed:
                    self._rows.beat()
                self._write_next()
                if self._closed:
                    self._pruning.end_pass()
                else:
                    self._pruning.step()
            except (Unreachable, ConfigError) as error:
                self._note_away(error)
                if is_last_try:
                    return
            except Exception:  # the catalogue is history; a job goes on without it
                self._note_failure("maintenance")

    def _has_work(self) -> bool:
        """Waits for something to do; False: closed, and nothing is left to be written."""
        with self._changed:
            if self._queue or self._writer.is_restoring:
                return True
            if self._closed:
                return False
            self._changed.wait(max(0.0, min(LOOK_S, self._pruning.due_s)))
            return bool(self._queue) or not self._closed

    def _look(self) -> None:
        """Notices a database that was made again, and writes what is known of the jobs."""
        if self._store.recover():
            with self._changed:
                self._health.note_made_again()
            logger.warning(
                "event=metadata_made_again jobs=%d reason='its file was removed'", len(self._writer)
            )
            self._writer.begin_restoring()
            self._rows.write_again()
        self._writer.restore()

    def _write_next(self) -> None:
        with self._changed:
            entries = self._queue.take()
        if not entries:
            return
        try:
            self._writer.write(entries)
        except (NotFound, Fenced):
            self._write_again(entries)
        except (Unreachable, ConfigError):
            raise
        except Exception:
            self._note_failure(entries[0].kind.value)
        with self._changed:
            self._queue.done()
            self._health.note_back()
        for entry in entries:
            for call in entry.after:
                call()

    def _write_again(self, entries: Sequence[QueuedWrite]) -> None:
        try:
            self._writer.write_again(entries)
        except (NotFound, Fenced) as error:
            self._note_failure(entries[0].kind.value, error)

    # --- failures ---------------------------------------------------------------------------------

    def _note_away(self, error: Exception) -> None:
        """The database cannot be used now: what waits goes on waiting."""
        with self._changed:
            if self._health.note_away(str(error)) and not self._closed:
                # something to try again, also if nothing else is to be written
                self._queue.put(QueuedWrite(WriteKind.EPOCH, None, self._rows.leader, row="leader"))
            calls = self._queue.release_all()
        for call in calls:
            call()
        self._health.log(logging.WARNING, "event=metadata_away", str(error), self.health())
        with self._changed:
            self._changed.wait_for(lambda: self._closed, RETRY_S)

    def _note_failure(self, what: str, error: Exception | None = None) -> None:
        with self._changed:
            self._health.failures += 1
        if error is not None:
            event, reason = f"event=catalogue_write_refused write={what}", str(error)
            self._health.log(logging.WARNING, event, reason, self.health())
        else:
            event = f"event=catalogue_write_failed write={what}"
            self._health.log(logging.ERROR, event, None, self.health())


def first_and_last(
    waiting: Sequence[meta.AttemptChange], new: Sequence[meta.AttemptChange]
) -> Sequence[meta.AttemptChange]:
    """When an attempt began and where it is now, with the newest worker of the changes in between."""
    steps = (*waiting, *new)
    places = [step.task_manager for step in steps if step.task_manager is not None]
    last = msgspec.structs.replace(steps[-1], task_manager=places[-1] if places else None)
    return (steps[0], last)
