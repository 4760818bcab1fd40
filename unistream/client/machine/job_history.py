"""The history of jobs on this machine, read from its database: no cluster needs to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import structs

from unistream.base.clock import SystemClock
from unistream.base.closing import Closing
from unistream.base.config import Configuration
from unistream.base.errors import NotFound
from unistream.base.ids import NO_CLUSTER
from unistream.client.machine import home

if TYPE_CHECKING:
    from unistream.base.ids import JobId
    from unistream.master.shown import RecordedJob
    from unistream.metadata.store import SqlMetadataStore
    from unistream.model.checkpoint_figures import CheckpointsInfo
    from unistream.model.job_info import JobInfo, JobSummary
    from unistream.model.job_log_line import JobLogLine


def ended_jobs(config: Configuration) -> list[JobSummary]:
    """Jobs that do not run, of all clusters that kept their history where those with this configuration do;
    newest first. Empty if none has yet.

    Raises:
        ConfigError: `metadata.url` cannot be used, or its schema is another version's.
        Unreachable: the database does not answer.
    """
    from unistream.master.shown import read_ended

    with open_history(config) as store:
        return [] if store is None else read_ended(store, SystemClock().wall_ms(), NO_CLUSTER)


def listed_jobs(config: Configuration, name: str) -> list[JobSummary]:
    """Jobs of that name, also those that run, with what they write; newest first. Raises as `ended_jobs`."""
    from unistream.master.shown import graph_of, read_listed

    with open_history(config) as store:
        if store is None:
            return []
        listed = [job for job in read_listed(store, SystemClock().wall_ms(), NO_CLUSTER) if job.name == name]
        records = {job.job: store.job(job.job) for job in listed}
        return [
            structs.replace(
                job, writes={} if (record := records[job.job]) is None else graph_of(record).writes
            )
            for job in listed
        ]


def recorded_job(config: Configuration, job: JobId) -> JobInfo | None:
    """A job as the same database knows it; it runs only if its cluster does. None: it does not know it.
    Raises as `ended_jobs`."""
    from unistream.master.shown import recorded_info

    with open_history(config) as store:
        found = None if store is None else _recorded(store, job)
        return None if store is None or found is None else recorded_info(found, store)


def _recorded(store: SqlMetadataStore, job: JobId) -> RecordedJob | None:
    from unistream.master.shown import RecordedJob

    record = store.job(job)
    if record is None:
        return None
    cluster, now_ms = store.cluster(record.cluster), SystemClock().wall_ms()
    return RecordedJob(record=record, result=None, cluster=cluster, is_here=False, now_ms=now_ms)


class RecordedJobClient(Closing):
    """A job that has ended, as the database knows it: what can be asked of it, without a cluster.

    Raises:
        NotFound: from its methods: the job was pruned meanwhile.
    """

    def __init__(self, store: SqlMetadataStore, job: JobId) -> None:
        self._store = store
        self.job_id = job

    def status(self) -> JobInfo:
        from unistream.master.shown import recorded_info

        return recorded_info(self._found(), self._store)

    def checkpoints(self) -> CheckpointsInfo:
        from unistream.master.shown import checkpoints_of

        return checkpoints_of(self._found(), self._store)

    def log(self, after: int = 0) -> Sequence[JobLogLine]:
        from unistream.master.shown import log_of

        return [line for line in log_of(self._found(), self._store) if line.seq > after]

    def close(self) -> None:
        self._store.close()

    def _found(self) -> RecordedJob:
        found = _recorded(self._store, self.job_id)
        if found is None:
            raise NotFound(f"job {self.job_id} is not in the history any more")
        return found


@contextmanager
def open_history(config: Configuration) -> Iterator[SqlMetadataStore | None]:
    """The database, which is closed afterwards; None: there is no history yet. Raises as `ended_jobs`."""
    store = history_store(config)
    try:
        yield store
    finally:
        if store is not None:
            store.close()


def history_store(config: Configuration) -> SqlMetadataStore | None:
    """The database of the history, which the caller closes; None: there is none yet."""
    from unistream.metadata.engine import parse_url, sqlite_path
    from unistream.metadata.store import SqlMetadataStore

    url = home.metadata_url(config)
    path = sqlite_path(parse_url(url))
    return None if path is not None and not path.exists() else SqlMetadataStore(url)
