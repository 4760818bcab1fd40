"""The last job that wrote to the targets of a pipeline, by what its cluster or the history of this machine
knows of jobs: for targets that do not say so themselves (`unistream.port.line`), such as topics, and for
tables that no job has committed into yet, whose jobs may have left snapshots all the same.

A job is that of the pipeline if it has its name and writes to one of the same topics, or if a sink of the
same uid writes to the same table (in the history of this machine: and it has its name). One that has
completed no checkpoint has made nothing visible, and is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, NotFound, Unreachable
from unistream.client.machine.job_history import listed_jobs, recorded_job
from unistream.model.snapshot_kind import SnapshotKind

if TYPE_CHECKING:
    from unistream.base.ids import JobId, LineageId, OperatorUid
    from unistream.model.job_info import JobInfo, JobSummary

ASKED_MAX: Final = 100  # jobs of one name, each a request of some ms; more share it among pipelines


class Targets(NamedTuple):
    """What a pipeline writes. `name`: of its jobs; `topics`: URIs of what keeps no record of jobs; `tables`:
    uid of the sink and URI of what does."""

    name: str
    topics: frozenset[str]
    tables: frozenset[tuple[OperatorUid, str]]

    def may_be_written_by(self, job: JobSummary) -> bool:
        if not job.writes:  # what the history does not list
            return job.name == self.name
        return self.are_written_by(job)

    def are_written_by(self, job: JobInfo | JobSummary) -> bool:
        pairs = _written(job)
        return bool(self.tables & pairs) or self.has_topics_of(job)

    def has_topics_of(self, job: JobInfo | JobSummary) -> bool:
        return job.name == self.name and not self.topics.isdisjoint(uri for _, uri in _written(job))

    def were_committed_by(self, job: JobInfo) -> bool:
        """It has committed into one of the tables."""
        return any(uid in job.sinks and job.sinks[uid].commits for uid, _ in self.tables & _written(job))


def last_writer(targets: Targets, *, config: Configuration, target: str | None) -> JobInfo | None:
    """The newest of them, which may still run; None: there is none.

    Args:
        targets: Of the pipeline.
        config: Which cluster, or which history, to ask.
        target: "remote": the cluster; otherwise the history of this machine.

    Raises:
        ConfigError: too many jobs have that name to look at all of them.
        Unreachable: the cluster or the database does not answer, or has lost what a job wrote.
    """
    if not (targets.topics or targets.tables):
        return None
    with _known(targets.name, config, target) as (jobs, ask):
        return _newest(jobs, ask, targets)


def last_of_line(
    lineage: LineageId, since_ms: int, targets: Targets, *, config: Configuration, target: str | None
) -> JobInfo | None:
    """The newest job of a line that runs or has left a snapshot, of those submitted later: the line's tables
    do not know one that had nothing to commit. Arguments, and what it raises, as for `last_writer`; but all
    jobs of the name are looked at.
    """
    with _known(targets.name, config, target) as (jobs, ask):
        later = filter(lambda job: job.submitted_ms > since_ms and targets.may_be_written_by(job), jobs)
        for summary in sorted(later, key=lambda job: -job.submitted_ms):
            info = ask(summary.job)
            if info is not None and _continues(info, lineage):
                return info
    return None


@contextmanager
def _known(
    name: str, config: Configuration, target: str | None
) -> Iterator[tuple[list[JobSummary], Callable[[JobId], JobInfo | None]]]:
    """All jobs (in the history of this machine: of that name), and what asks for one of them."""
    if target != "remote":
        yield listed_jobs(config, name), lambda job: recorded_job(config, job)
        return
    from unistream.client.job.submission import connect

    with connect(config) as cluster:

        def ask(job: JobId) -> JobInfo | None:
            try:
                return cluster.info(job)
            except NotFound:  # pruned meanwhile
                return None

        yield cluster.jobs(), ask


def has_read_everything(info: JobInfo) -> bool:
    """It has finished because its input ended, and not because it was stopped with a savepoint."""
    if info.state != "FINISHED":
        return False
    if not info.checkpoints:  # only what the database of results knows
        return info.savepoint is None
    return not any(one.kind.is_synchronous and one.state == "completed" for one in info.checkpoints)


def visible_up_to(info: JobInfo, uids: Iterable[str]) -> int:
    """The last checkpoint of which sinks with these uids have made rows visible, or may have; 0: none."""
    committed = [info.sinks[uid].checkpoint_id for uid in uids if uid in info.sinks]
    completed = [
        one.checkpoint_id
        for one in info.checkpoints
        if one.state == "completed" and one.kind is not SnapshotKind.SAVEPOINT
    ]
    return max((one for one in (*committed, *completed) if one is not None), default=0)


def _newest(
    jobs: Iterable[JobSummary],
    ask: Callable[[JobId], JobInfo | None],
    targets: Targets,
) -> JobInfo | None:
    candidates = sorted(filter(targets.may_be_written_by, jobs), key=lambda job: -job.submitted_ms)
    for asked, summary in enumerate(candidates):
        if asked == ASKED_MAX:
            uris = sorted(targets.topics | {uri for _, uri in targets.tables})
            raise ConfigError(
                f"more than {ASKED_MAX} jobs are named {targets.name!r}, and none of the newest has written "
                f"to {', '.join(uris)}: give the pipeline a name of its own, or name the snapshot to start "
                "from"
            )
        info = ask(summary.job)
        if info is not None and info.is_terminal and not (info.writes or info.subtasks):
            raise Unreachable(
                f"which targets job {info.job} ({info.name}) wrote is not known: the metadata database does "
                "not answer, or has lost the job; name the snapshot to start from"
            )
        if info is not None and _wrote(info, targets):
            return info
    return None


def _wrote(info: JobInfo, targets: Targets) -> bool:
    if not info.is_terminal:
        return _is_recovering(info) or targets.are_written_by(info)
    commits = any(sink.commits for sink in info.sinks.values())
    return (_has_left(info) or commits) and targets.are_written_by(info)


def _continues(info: JobInfo, lineage: LineageId) -> bool:
    if not info.is_terminal:
        return _is_recovering(info) or info.lineage == lineage
    return info.lineage == lineage and _has_left(info)


def _is_recovering(info: JobInfo) -> bool:
    """Nothing but its name is known yet."""
    return not info.lineage


def _has_left(info: JobInfo) -> bool:
    """Whether the job has left a snapshot."""
    return bool(info.checkpoints_completed or info.latest_checkpoint or info.savepoint)


def _written(job: JobInfo | JobSummary) -> set[tuple[OperatorUid, str]]:
    return {(uid, uri) for uid, uris in job.writes.items() for uri in uris}
