"""What a client knows when a cluster has started again between two of its calls. Pure.

A new process knows neither the operations that the former one had begun nor, unless the cluster recovers
them, its jobs. Then nothing has failed as far as anyone can say: the error is `OutcomeUnknown`, with what is
known.
"""

from __future__ import annotations

from unistream.base.errors import OutcomeUnknown
from unistream.base.ids import JobId
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.job_info import MASTER_LOST, JobInfo


def lost_job(job: JobId, where: str) -> OutcomeUnknown:
    """The cluster knew the job, and does not any more."""
    return OutcomeUnknown(
        f"how job {job} ends is not known: the cluster at {where} has started again and does not know it; "
        "if the job does not run elsewhere, start it again from its newest checkpoint (run -s DIR)"
    )


def is_lost(info: JobInfo) -> bool:
    """Only the history knows the job: its cluster ended, and may be started again."""
    return info.state == "SUSPENDED" and info.failure is not None and info.failure.kind == MASTER_LOST


def lost_operation(
    what: str,
    job: JobId,
    where: str,
    *,
    info: JobInfo | None,
    newest: CheckpointFigures | None,
    requested_ms: int,
    snapshot: bool = True,
) -> OutcomeUnknown:
    """The cluster does not know the operation that it had accepted.

    Args:
        what: "a savepoint", ….
        job: Its job.
        where: The cluster's URL.
        info: The job now; None: the cluster does not know it.
        newest: The newest completed snapshot of the kind that was requested, if any is known.
        requested_ms: Wall time of the request.
        snapshot: One was requested.
    """
    begin = (
        f"the outcome of {what} of job {job} is not known: the cluster at {where} does not know the request "
        "any more, as after a restart"
    )
    if info is None:
        return OutcomeUnknown(f"{begin}, nor the job")
    state = f"{begin}; the job is {info.state}"
    if info.is_terminal and newest is None and info.savepoint is not None:
        return OutcomeUnknown(f"{state}, with the savepoint {info.savepoint}")
    if not snapshot:
        return OutcomeUnknown(f"{state}, and 'unistream info {job[:8]}' shows its tasks")
    if is_of_request(newest, requested_ms):
        assert newest is not None
        return OutcomeUnknown(f"{state}, and {newest.path} is complete, which was begun after the request")
    return OutcomeUnknown(f"{state}, and nothing that was begun after the request is known to be complete")


def is_of_request(newest: CheckpointFigures | None, requested_ms: int) -> bool:
    """It was begun after the request. The clocks of client and cluster are one: the API is on loopback."""
    return newest is not None and newest.path is not None and newest.timestamp_ms >= requested_ms


def stopped_with(
    info: JobInfo | None, newest: CheckpointFigures | None, requested_ms: int
) -> tuple[str, str] | None:
    """(savepoint, where to resume from) of a stop that has succeeded although its outcome was forgotten: the
    job has finished with a savepoint of a stop that was begun after the request."""
    if info is None or info.state != "FINISHED" or not is_of_request(newest, requested_ms):
        return None
    assert newest is not None
    assert newest.path is not None
    if not newest.kind.is_synchronous or info.savepoint != newest.path:
        return None
    return newest.path, info.resumable_savepoint or newest.path
