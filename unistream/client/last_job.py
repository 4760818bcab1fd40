"""The last job that wrote to the targets of a pipeline, by what its cluster or the history of this machine
knows of jobs: for targets that do not say so themselves (`unistream.port.line`), such as topics.

A job is that of the pipeline if it has its name and writes to one of the same URIs. One that has completed no
checkpoint has made nothing visible, and is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, NotFound, Unreachable
from unistream.client.job_history import listed_jobs, recorded_job
from unistream.model.snapshot_kind import SnapshotKind

if TYPE_CHECKING:
    from unistream.base.ids import JobId
    from unistream.master.job_info import JobInfo, JobSummary

ASKED_MAX: Final = 100  # jobs of one name, each a request of some ms; more share it among pipelines


def last_writer(
    name: str, uris: frozenset[str], *, config: Configuration, target: str | None
) -> JobInfo | None:
    """The newest of them, which may still run; None: there is none.

    Args:
        name: Of the pipeline's jobs.
        uris: Of targets that it writes.
        config: Which cluster, or which history, to ask.
        target: "remote": the cluster; otherwise the history of this machine.

    Raises:
        ConfigError: too many jobs have that name to look at all of them.
        Unreachable: the cluster or the database does not answer, or has lost what a job wrote.
    """
    if not uris:
        return None
    if target != "remote":
        return _newest(listed_jobs(config), lambda job: recorded_job(config, job), name, uris)
    from unistream.client.submission import connect

    with connect(config) as cluster:

        def ask(job: JobId) -> JobInfo | None:
            try:
                return cluster.info(job)
            except NotFound:  # pruned meanwhile
                return None

        return _newest(cluster.jobs(), ask, name, uris)


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
    name: str,
    uris: frozenset[str],
) -> JobInfo | None:
    of_name = sorted((job for job in jobs if job.name == name), key=lambda job: -job.submitted_ms)
    asked = 0
    for summary in of_name:
        if summary.writes and not uris & _written(summary):
            continue
        asked += 1
        if asked > ASKED_MAX:
            raise ConfigError(
                f"more than {ASKED_MAX} jobs are named {name!r}, and none of the newest has written to "
                f"{', '.join(sorted(uris))}: give the pipeline a name of its own, or name the snapshot to "
                "start from"
            )
        info = ask(summary.job)
        if info is not None and info.is_terminal and not (info.writes or info.subtasks):
            raise Unreachable(
                f"which targets job {info.job} ({name}) wrote is not known: the metadata database does not "
                "answer, or has lost the job; name the snapshot to start from"
            )
        if info is not None and _wrote(info, uris):
            return info
    return None


def _wrote(info: JobInfo, uris: frozenset[str]) -> bool:
    if not info.is_terminal:
        is_recovering = not info.lineage  # nothing but its name is known yet
        return is_recovering or bool(uris & _written(info))
    left = info.checkpoints_completed or info.latest_checkpoint or info.savepoint
    commits = any(sink.commits for sink in info.sinks.values())
    return bool(left or commits) and bool(uris & _written(info))


def _written(job: JobInfo | JobSummary) -> set[str]:
    return {uri for uris in job.writes.values() for uri in uris}
