"""The message about a suspended job: why it ended, and how to resume it.

Flink suspends the jobs of a cluster that is shut down. SUSPENDED is terminal for that cluster only: no task
runs any more, but no checkpoint is removed, whatever their retention after a cancellation.
"""

from __future__ import annotations

from posixpath import dirname

from unistream.base.ids import JobId
from unistream.core.contract import SuspendRequested
from unistream.model.messages import TaskFailure
from unistream.model.snapshot import Manifest


def suspension(
    job: JobId,
    name: str,
    why: SuspendRequested,
    snapshot: tuple[str, Manifest] | None,
    *,
    has_checkpoints: bool,
) -> TaskFailure:
    """The failure of a job that ended as SUSPENDED.

    Args:
        job: Its id.
        name: Its name.
        why: Why the cluster ended the job, and whether it goes on with it.
        snapshot: Directory and manifest of the latest one that the job could restart from.
        has_checkpoints: Periodic checkpoints are on.
    """
    return _suspended(job, name, why, _how(snapshot, has_checkpoints))


def abandonment(job: JobId, name: str, why: SuspendRequested, latest: str | None) -> TaskFailure:
    """The failure of a job that ended as SUSPENDED and whose machine did not end in time. `latest`: directory
    of its newest snapshot."""
    how = "no checkpoint of it is known"
    if latest is not None:
        how = f"its latest known checkpoint is resumed by 'unistream run MODULE:FUNCTION -s {latest}'"
    return _suspended(job, name, why, how)


def _suspended(job: JobId, name: str, why: SuspendRequested, how: str) -> TaskFailure:
    if why.goes_on:  # to do both would be two jobs with one output
        how = f"'{why.goes_on}' goes on with it; only if that is never run again: {how}"
    text = f"job {name!r} ({job}) was suspended because {why.reason}; {how}"
    return TaskFailure(kind="JobSuspended", message=text, recoverable=False)


def _how(snapshot: tuple[str, Manifest] | None, has_checkpoints: bool) -> str:
    if snapshot is None:
        why = "none had completed" if has_checkpoints else "checkpointing is off"
        return f"there is no checkpoint to resume from ({why}), so a new run starts from the beginning"
    directory, manifest = snapshot
    if manifest.resumable is not None:  # the terminal savepoint of a drain: what it lists may not be visible
        resumable = f"{dirname(directory)}/{manifest.resumable}"
        return (
            f"its drain had completed: 'unistream savepoint finalize {directory}' makes its output visible, "
            f"and 'unistream run MODULE:FUNCTION -s {resumable}' resumes it"
        )
    return (
        f"resume it from snapshot {manifest.checkpoint_id} with 'unistream run MODULE:FUNCTION -s "
        f"{directory}', or with env.execute(savepoint=...) of the same directory"
    )
