"""The snapshot from which a pipeline goes on, however its last job has ended.

    the targets of its sinks   which job made the last commit, with which checkpoint, and where that is
    else the jobs that are known   which one wrote last to the same targets, if these do not say so: topics,
                               and tables without a commit yet
    the jobs behind it         the newest one of its line that has left a snapshot, and had nothing to commit
    that job, if it is known   its newest savepoint and checkpoint; it must not run any more
    the folder of its checkpoints   what it completed after that and could not report

The newest of them that exists is taken, of those that are no older than the last commit: behind an older one
the sinks would write rows a second time. If there is none any more, nothing is started.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, NotFound
from unistream.base.ids import JobId, LineageId, OperatorUid
from unistream.client.job.last_job import (
    Targets,
    has_read_everything,
    last_of_line,
    last_writer,
    visible_up_to,
)
from unistream.client.machine.job_history import recorded_job
from unistream.port.line import LineCommit

if TYPE_CHECKING:
    from unistream.model.job_info import JobInfo
    from unistream.model.snapshot import Manifest

LATEST: Final = "latest"
"""What is given instead of the directory of a snapshot: that of `latest_snapshot`."""

_CHECKPOINT: Final = re.compile(r"(?P<root>.+)/(?P<job>[0-9a-f]{32})/chk-[0-9]+/?")


class StillRuns(ConfigError):
    """The last job has not ended. `job`: its id; `info`: as it was found."""

    def __init__(self, job: JobId, info: JobInfo) -> None:
        super().__init__(
            f"job {job} ({info.name}) is {info.state} and writes the same output: stop it first, "
            f"'unistream stop {job[:8]}' does it with a savepoint"
        )
        self.job = job
        self.info = info


def latest_snapshot(
    commits: Sequence[tuple[str, LineCommit]],
    writes: Mapping[OperatorUid, Sequence[str]],
    *,
    config: Configuration,
    target: str | None,
    name: str = "",
    without_line: Collection[str] = (),
    bounded: bool = False,
) -> str | None:
    """The directory of the snapshot from which the next job goes on; None: there is none.

    Args:
        commits: The last one of each sink of the pipeline, by uid.
        writes: URIs of what its sinks write, by uid: a job that runs in a remote cluster may not have
            committed anything yet.
        config: As for the new job: which cluster, or which history, knows the last one.
        target: The same.
        name: Of the pipeline's jobs.
        without_line: Uids of the sinks whose targets do not record who has written them. Without a commit of
            the others, the last job is the newest one of that name that has written to one of these, or that
            was to write to the same tables with sinks of the same uids.
        bounded: The pipeline ends by itself.

    Returns:
        None: no job has written there, or it has read all of its input, and its targets know that.

    Raises:
        StillRuns: the last job runs.
        ConfigError: the sinks have the output of several lines of jobs, or the snapshots of the last job are
            gone.
        CorruptSnapshot: the newest snapshot cannot be read. An older one would not do.
        Unreachable: the cluster, the database or a storage does not answer.
    """
    check_nobody_writes(writes, config=config, target=target)
    named = {uid: writes[uid] for uid in map(OperatorUid, without_line) if uid in writes}
    targets = Targets(
        name=name,
        topics=frozenset(uri for uris in named.values() for uri in uris),
        tables=frozenset((uid, uri) for uid, uris in writes.items() if uid not in named for uri in uris),
    )
    before: dict[str, Manifest] = {}  # what the job has left that made the last commit, if it is not the last
    if commits:
        _check_one_line(commits)
        last = max((commit for _, commit in commits), key=lambda commit: commit.checkpoint)
        info = known_job(JobId(last.job), config, target)
        if info is None or info.is_terminal:
            since_ms = -1 if info is None else info.submitted_ms
            later = last_of_line(LineageId(last.lineage), since_ms, targets, config=config, target=target)
            if later is not None:
                before = dict(_snapshots(_directories(last, info)))
                last, info = structs.replace(last, job=later.job, snapshot=""), later
    else:
        info = last_writer(targets, config=config, target=target)
        if info is None or (info.is_terminal and _has_left_nothing(info, targets)):
            return None
        last = LineCommit(lineage=info.lineage, job=info.job, checkpoint=0)
    if info is not None:
        if not info.is_terminal:
            raise StillRuns(info.job, info)
        if named:
            last = structs.replace(last, checkpoint=max(last.checkpoint, visible_up_to(info, named)))
    found = before | dict(_snapshots(_directories(last, info)))
    usable = {
        directory: (manifest.job == last.job, manifest.restores_as, manifest.timestamp_ms)
        for directory, manifest in found.items()
        if manifest.lineage == last.lineage and manifest.restores_as >= last.checkpoint
    }
    if not usable and not (commits and _has_ended(info, bounded=bounded)):
        raise _nothing_left(last, info, found, is_named_by_targets=bool(commits))
    return max(usable, key=usable.__getitem__, default=None)


def _has_left_nothing(info: JobInfo, targets: Targets) -> bool:
    """Whether a job of the tables, which have no commit, is none to go on from: they had some and were
    removed; it has read everything and written nothing; or it was cancelled or has failed, and its
    checkpoints were removed with it, as configured."""
    if targets.has_topics_of(info):
        return False
    if targets.were_committed_by(info) or has_read_everything(info):
        return True
    return info.savepoint is None and not any(
        True for _ in _snapshots(_directories(LineCommit(lineage="", job=info.job, checkpoint=0), info))
    )


def _has_ended(info: JobInfo | None, *, bounded: bool) -> bool:
    """Nothing is to be continued: the sinks decide whether the input may be read again. Where the job is not
    known any more, that is so if the pipeline is bounded."""
    return bounded if info is None else has_read_everything(info)


def _nothing_left(
    last: LineCommit, info: JobInfo | None, found: Collection[str], *, is_named_by_targets: bool
) -> ConfigError:
    named = [directory for directory in dict.fromkeys(_directories(last, info)) if directory not in found]
    why = f"no snapshot of it is known (its last checkpoint is {last.checkpoint})"
    if found:
        left = ", ".join(found)
        why = f"what it has left ({left}) is from before its last commit (checkpoint {last.checkpoint})"
    elif named:
        why = f"{' and '.join(named)} {'are' if len(named) > 1 else 'is'} gone"
    elif info is not None and has_read_everything(info):
        why = "it has read all of its input"
    over = "start over with resume='none', or without a savepoint, which writes all rows again"
    if is_named_by_targets:
        over = (
            "remove that output, or let the sink append to it (on_foreign='append'), and start over with "
            "resume='none', or without a savepoint"
        )
    return ConfigError(
        f"job {last.job}{f' ({info.name})' if info else ''} was the last to write the output, and there is "
        f"nothing to go on from: {why}; nothing was started. Restore it, name another snapshot, or {over}"
    )


def check_nobody_writes(
    writes: Mapping[OperatorUid, Sequence[str]], *, config: Configuration, target: str | None
) -> None:
    """Raises StillRuns: a job of the remote cluster writes there, with a sink of the same uid. Jobs of other
    targets are known by their commits alone. ConfigError: the cluster is of another version."""
    if target != "remote":
        return
    from unistream.client.job.submission import connect_to_submit

    wanted = {(uid, uri) for uid, uris in writes.items() for uri in uris}
    with connect_to_submit(config) as cluster:
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
    """What the job's cluster knows of it, or the history, depending on the target; None: nothing. Raises
    Unreachable, ConfigError."""
    if target != "remote":
        return recorded_job(config, job)
    from unistream.client.job.submission import connect

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
    """The snapshots that exist in these directories, and the checkpoints of the same jobs next to them."""
    from unistream.model.snapshot import resumable_directory
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
