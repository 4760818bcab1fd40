"""The durable record of a backfill, and the lock of the job whose results it replaces.

    <state>/<job name>.lock            held by the process that works on a backfill of this job
    <state>/<job name>-<id>/journal    replaced atomically with each step
    <state>/<job name>-<id>/savepoint  the fence, unless the user says where

The kernel releases the lock with the process, so the same command goes on after a kill.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from unistream.base import durable_files
from unistream.base.closing import Closing
from unistream.base.config import Configuration
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.ids import NO_CLUSTER, ClusterId, OperatorUid
from unistream.core.backfill import BackfillPhase, BackfillProgress
from unistream.model.lineage import dataset_at
from unistream.model.time_range import TimeRange

FORMAT: Final = 1
JOURNAL: Final = "journal.json"


class BackfillOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done; it never changes.

    Attributes:
        id: Of the backfill: in the table, in the request that resumes the job.
        job, url: The job at its begin, and the REST API of its cluster (of several masters the one that led,
            for people; `config` says where the leader is found); None: it does not run.
        cluster: Of this machine, by the id that it keeps when it is started again, on another port; "": it is
            not known, and the URL finds it.
        session: The cluster goes on when the job has ended.
        cluster_target: Of that cluster.
        sink, table, column: What is replaced.
        savepoint_root: Where the savepoint of the stop is made.
        pipeline, config: Of the job, which is resumed with them. Options may hold passwords, so only the user
            can read the folder.
        around: Keys of `config` that surrounded the command: in a file, or in variables.
        target: Where the range is computed.
        lookback_ms: As the user gave it.
    """

    id: str
    job_name: str
    range: TimeRange
    sink: str
    table: str
    column: str
    pipeline: str
    config: dict[str, str]
    around: list[str] = []
    target: str
    lookback_ms: int | None = None
    job: str | None = None
    url: str | None = None
    cluster: ClusterId = NO_CLUSTER
    session: bool = False
    cluster_target: str = ""
    savepoint_root: str = ""
    format: int = FORMAT


def options_of(order: BackfillOrder) -> LayeredConfig:
    """The configuration of the job, by where it was from when the backfill began."""
    around = {key: value for key, value in order.config.items() if key in order.around}
    given = {key: value for key, value in order.config.items() if key not in order.around}
    return LayeredConfig(Configuration(given), Configuration(around))


class BackfillJournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    order: BackfillOrder
    progress: BackfillProgress


class BackfillJournal:
    """One backfill in a folder of its own."""

    def __init__(self, folder: Path, entry: BackfillJournalEntry) -> None:
        self.folder = folder
        self._entry = entry

    @property
    def order(self) -> BackfillOrder:
        return self._entry.order

    @property
    def progress(self) -> BackfillProgress:
        return self._entry.progress

    @staticmethod
    def folder_of(root: Path, order: BackfillOrder) -> Path:
        return root / f"{_file_name(order.job_name)}-{order.id}"

    @classmethod
    def create(cls, root: Path, order: BackfillOrder, progress: BackfillProgress) -> BackfillJournal:
        folder = cls.folder_of(root, order)
        durable_files.make_folders(folder, exist_ok=False)
        folder.chmod(0o700)
        made = cls(folder, BackfillJournalEntry(order=order, progress=progress))
        made._write()
        return made

    def record(self, progress: BackfillProgress) -> None:
        """Durable when it returns."""
        self._entry = BackfillJournalEntry(order=self.order, progress=progress)
        self._write()

    def _write(self) -> None:
        path = self.folder / JOURNAL
        temporary = durable_files.temporary_of(path)
        try:
            durable_files.write(temporary, msgspec.json.format(msgspec.json.encode(self._entry)))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        durable_files.sync(self.folder)


class JobLock(Closing):
    """Held from construction until `close`.

    Raises:
        ConfigError: another process has it, or the folder cannot be written.
    """

    def __init__(self, root: Path, job_name: str) -> None:
        path = root / f"{_file_name(job_name)}.lock"
        try:
            durable_files.make_folders(root)
            self._descriptor: int | None = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot use {root} for the state of backfills: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ConfigError(
                f"another process works on a backfill of job {job_name!r} ({path} is locked); wait for it"
            ) from None

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def unfinished(root: Path, job: str) -> BackfillJournal | None:
    """The backfill of a job that has not ended, by the name or the beginning of the id of the job.

    Raises:
        ConfigError: there are several.
        CorruptSnapshot: a journal cannot be read.
    """
    found = [
        one
        for one in _journals(root)
        if one.progress.phase is not BackfillPhase.ENDED
        and (one.order.job_name == job or (len(job) >= 4 and (one.order.job or "").startswith(job.lower())))
    ]
    if len(found) > 1:
        folders = ", ".join(str(one.folder) for one in found)
        raise ConfigError(f"several backfills of job {job!r} have not ended: {folders}; give its whole id")
    return found[0] if found else None


def unfinished_into(
    root: Path, job: str, writes: Mapping[OperatorUid, Collection[str]]
) -> BackfillJournal | None:
    """A backfill that has not ended, into a table of a pipeline: of two streams with one name, it is one's.

    Args:
        root: Of the journals.
        job: Name of the pipeline's job, which decides where no sink says where it writes.
        writes: URIs of what its sinks write, by uid.

    Raises:
        CorruptSnapshot: a journal cannot be read.
    """
    for one in _journals(root):
        order = one.order
        uris = writes.get(OperatorUid(order.sink), ())
        is_into = dataset_at(order.table).uri in uris if writes else order.job_name == job
        if one.progress.phase is not BackfillPhase.ENDED and is_into:
            return one
    return None


def _journals(root: Path) -> Iterator[BackfillJournal]:
    for path in sorted(root.glob(f"*/{JOURNAL}")):
        try:
            entry = msgspec.json.decode(path.read_bytes(), type=BackfillJournalEntry)
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"the journal {path} of a backfill is unreadable: {error}") from error
        if entry.order.format != FORMAT:
            raise CorruptSnapshot(
                f"the journal {path} has format {entry.order.format}, this version reads {FORMAT}"
            )
        yield BackfillJournal(path.parent, entry)


def _file_name(job_name: str) -> str:
    """Part of a file name; two jobs may have the same, and then wait for each other."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", job_name)[:80] or "job"
