"""Staged files that nobody will commit: those of jobs that ended without a result and have no snapshot.

A committable is in a snapshot or, in a BATCH job without checkpoints, in the memory of the JobManager. So
after such a job has failed or was cancelled nothing names its files any more, and a task of it that still
runs can only stage more of them; but those that a commit had decided on before it was cut off are output.
Files of any other job may be named by a savepoint that somebody keeps; they stay, unless the user says that
none is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.machine.job_history import open_history
from unistream.connector.common import absolute
from unistream.connector.file import JOB_CHARS, PartFile, StagedFolder
from unistream.port.metadata import JobRecord, MetadataStore

OUTPUT: Final = "a commit that was cut off has taken them into the output"
_WITHOUT_RESULT: Final = ("FAILED", "CANCELED")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedByJob:
    """Staged files of one job.

    Attributes:
        job: Its id, or the beginning of it if the history does not know the job.
        files: How many.
        kept: Why they stay; empty: they are removed.
    """

    job: str
    files: int
    kept: str = ""


def clean_folder(
    config: Configuration, uri: str, *, forgotten: Collection[str] = (), dry_run: bool = False
) -> list[StagedByJob]:
    """Removes the staged files of a file sink's folder that nobody will commit.

    Args:
        config: Names the metadata database, in which the jobs are looked up.
        uri: Local path or URL of the folder.
        forgotten: Ids of ended jobs of which the user keeps no snapshot; their files go as well.
        dry_run: Nothing is removed.

    Raises:
        ConfigError: the folder or the database cannot be used, or a forgotten job has not ended.
        CorruptSnapshot: a record of a commit cannot be read.
        Unreachable: the storage failed.
    """
    folder = StagedFolder(absolute(uri), {})
    staged, decided = folder.by_job(), folder.decided()  # what is decided in between is in both
    found: list[StagedByJob] = []
    left: dict[str, list[PartFile]] = {}
    with open_history(config) as store:
        records = {} if store is None else _records(store, staged)
        for prefix, files in sorted(staged.items()):
            record = records.get(prefix)
            why = _kept(record, store, forgotten)
            job = prefix if record is None else record.job
            output = [file for file in files if file.name in decided]
            left[job] = [file for file in files if file.name not in decided]
            if output:
                found.append(StagedByJob(job=job, files=len(output), kept=OUTPUT))
            if left[job]:
                found.append(StagedByJob(job=job, files=len(left[job]), kept=why))
    if not dry_run:
        for one in found:
            if not one.kept:
                folder.remove(left[one.job])
    return found


def _kept(record: JobRecord | None, store: MetadataStore | None, forgotten: Collection[str]) -> str:
    if record is None or store is None:
        return "the history does not know the job"
    if record.ended_ms is None:
        if record.job in forgotten:
            raise ConfigError(f"job {record.job} has not ended, so its staged files may still be committed")
        return "the job has not ended"
    if record.job in forgotten:
        return ""
    if store.checkpoint_totals(record.job).completed:
        return "a snapshot of the job may name them"
    if record.job_type != "BATCH" or record.state not in _WITHOUT_RESULT:
        return "a snapshot may name them that the history does not know"
    return ""


def _records(store: MetadataStore, prefixes: Collection[str]) -> dict[str, JobRecord]:
    """The jobs whose ids begin so."""
    found = ((record.job[:JOB_CHARS], record) for record in _jobs(store))
    return {prefix: record for prefix, record in found if prefix in prefixes}


def _jobs(store: MetadataStore) -> Iterator[JobRecord]:
    """All, newest first."""
    page = store.jobs()
    while page:
        yield from page
        page = store.jobs(before=page[-1])
