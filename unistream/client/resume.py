"""The snapshot from which a pipeline goes on, however its last job has ended.

    the targets of its sinks   which job made the last commit, with which checkpoint, and where that is
    that job, if it is known   its newest savepoint and checkpoint; it must not run any more
    the folder of its checkpoints   what it completed after that and could not report

The newest of them that exists is taken, of those that are no older than the last commit: behind an older one
the sinks would write rows a second time, and refuse to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, NotFound
from unistream.base.ids import JobId, OperatorUid
from unistream.client.job_history import recorded_job
from unistream.port.line import LineCommit

if TYPE_CHECKING:
    from unistream.master.job_info import JobInfo
    from unistream.model.snapshot import Manifest

LATEST: Final = "latest"
"""Instead of the directory of a snapshot: that of `latest_snapshot`."""

_CHECKPOINT: Final = re.compile(r"(?P<root>.+)/(?P<job>[0-9a-f]{32})/chk-[0-9]+/?")


class StillRuns(ConfigError):
    """The last job has not ended. `job`: its id."""

    def __init__(self, job: JobId, info: JobInfo) -> None:
        super().__init__(
            f"job {job} ({info.name}) is {info.state} and writes the same output: stop it first, "
            f"'unistream stop {job[:8]}' does it with a savepoint"
        )
        self.job = job


def latest_snapshot(
    commits: Sequence[tuple[str, LineCommit]],
    writes: Mapping[OperatorUid, Sequence[str]],
    *,
    config: Configuration,
    target: str | None,
) -> str | None:
    """Its directory.

    Args:
        commits: The last one of each sink of the pipeline, by uid.
        writes: URIs of what its sinks write, by uid: a job that runs in a remote cluster may not have
            committed anything yet.
        config: As for the new job: which cluster, or which history, knows the last one.
        target: The same.

    Returns:
        None: no job has written there, or none that has left a snapshot to go on from, as one over bounded
        inputs that has finished.

    Raises:
        StillRuns: the last job runs.
        ConfigError: the sinks have the output of several lines of jobs.
        CorruptSnapshot: the newest snapshot cannot be read. An older one would not do.
        Unreachable: the cluster, the database or a storage does not answer.
    """
    check_nobody_writes(writes, config=config, target=target)
    if not commits:
        return None
    _check_one_line(commits)
    last = max((commit for _, commit in commits), key=lambda commit: commit.checkpoint)
    info = known_job(JobId(last.job), config, target)
    if info is not None and not info.is_terminal:
        raise StillRuns(JobId(last.job), info)
    found = dict(_snapshots(_directories(last, info)))
    usable = {
        directory: (manifest.restores_as, manifest.timestamp_ms)
        for directory, manifest in found.items()
        if manifest.lineage == last.lineage and manifest.restores_as >= last.checkpoint
    }
    return max(usable, key=usable.__getitem__, default=None)


def check_nobody_writes(
    writes: Mapping[OperatorUid, Sequence[str]], *, config: Configuration, target: str | None
) -> None:
    """Raises StillRuns: a job of the remote cluster writes there, with a sink of the same uid. Jobs of other
    targets are known by their commits alone."""
    if target != "remote":
        return
    from unistream.client.submission import connect

    wanted = {(uid, uri) for uid, uris in writes.items() for uri in uris}
    with connect(config) as cluster:
        for job in cluster.jobs():
            if job.ended_ms is None and wanted & {
                (uid, uri) for uid in job.writes for uri in job.writes[uid]
            }:
                info = cluster.info(job.job)
                if not info.is_terminal:
                    raise StillRuns(job.job, info)


def _check_one_line(commits: Sequence[tuple[str, LineCommit]]) -> None:
    jobs = {commit.lineage: (uid, commit.job) for uid, commit in commits}
    if len(jobs) > 1:
        named = ", ".join(f"sink {uid!r} of job {job}" for uid, job in jobs.values())
        raise ConfigError(
            f"the sinks have the output of several lines of jobs ({named}), so no snapshot continues all of "
            "them: name the one to start from, or give each line a pipeline of its own"
        )


def known_job(job: JobId, config: Configuration, target: str | None) -> JobInfo | None:
    """As its cluster or the history knows it, by the target; None: it does not. Raises Unreachable,
    ConfigError."""
    if target != "remote":
        return recorded_job(config, job)
    from unistream.client.submission import connect

    with connect(config) as cluster:
        try:
            return cluster.info(job)
        except NotFound:
            return None


def _directories(last: LineCommit, info: JobInfo | None) -> Iterator[str]:
    if last.snapshot:
        yield last.snapshot
    if info is not None:
        yield from (one for one in (info.resumable_savepoint, info.latest_checkpoint) if one is not None)


def _snapshots(directories: Iterator[str]) -> Iterator[tuple[str, Manifest]]:
    """Those that exist, and checkpoints of the same jobs next to them."""
    from unistream.master.job_setup import resumable_directory
    from unistream.storage.fs import FsCheckpointStorage

    looked_into: set[tuple[str, str]] = set()
    for directory in dict.fromkeys(directories):
        manifest = _manifest(directory)
        resumable = None if manifest is None else resumable_directory(directory, manifest)
        if resumable is not None:  # of a drain: sinks have committed up to it
            manifest = _manifest(resumable)
        if manifest is not None:
            yield resumable or directory, manifest
        place = _CHECKPOINT.fullmatch(directory)
        if place is not None and place.groups() not in looked_into:
            looked_into.add((place["root"], place["job"]))
            for stored in FsCheckpointStorage(place["root"]).completed(JobId(place["job"])):
                yield stored.directory, stored.manifest


def _manifest(directory: str) -> Manifest | None:
    """None: there is no snapshot any more."""
    from unistream.storage.fs import FsCheckpointStorage

    try:
        return FsCheckpointStorage(directory).read_manifest(directory)
    except CorruptSnapshot:
        raise
    except ConfigError:
        return None
