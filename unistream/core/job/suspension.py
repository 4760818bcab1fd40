"""What a suspended job says: its cluster has ended, its snapshots stay, and from which of them it goes on.

Flink suspends the jobs of a cluster that is shut down. SUSPENDED is terminal for that cluster only: no task
runs any more, and no checkpoint is removed, whatever their retention after a cancellation.
"""

from __future__ import annotations

from posixpath import dirname
from typing import Final

from unistream.base.ids import JobId
from unistream.model.messages import TaskFailure
from unistream.model.snapshot import Manifest

SUSPENDED_KIND: Final = "JobSuspended"


def suspension(
    job: JobId, name: str, reason: str, snapshot: tuple[str, Manifest] | None, *, has_checkpoints: bool
) -> TaskFailure:
    """One sentence for people.

    Args:
        job: Its id.
        name: Its name.
        reason: Why the cluster ends the job.
        snapshot: Directory and manifest of the latest one that the job could restart from.
        has_checkpoints: It takes checkpoints by itself.
    """
    text = f"job {name!r} ({job}) was suspended, since {reason}; {_how(snapshot, has_checkpoints)}"
    return TaskFailure(kind=SUSPENDED_KIND, message=text, recoverable=False)


def abandonment(job: JobId, name: str, reason: str, latest: str | None) -> TaskFailure:
    """The same of a job whose machine was not waited for. `latest`: directory of its newest snapshot."""
    how = "no checkpoint of it is known" if latest is None else f"its latest known checkpoint is {latest}"
    text = f"job {name!r} ({job}) was suspended, since {reason}; {how}"
    return TaskFailure(kind=SUSPENDED_KIND, message=text, recoverable=False)


def _how(snapshot: tuple[str, Manifest] | None, has_checkpoints: bool) -> str:
    if snapshot is None:
        why = "it had completed none" if has_checkpoints else "it takes none"
        return f"there is no checkpoint to go on from ({why}), so a new run begins at the start"
    directory, manifest = snapshot
    if manifest.resumable is not None:  # the terminal savepoint of a drain: what it lists may not be visible
        resumable = f"{dirname(directory)}/{manifest.resumable}"
        return (
            f"its drain was complete: 'unistream savepoint finalize {directory}' makes its output visible, "
            f"and it goes on with 'unistream run MODULE:FUNCTION -s {resumable}'"
        )
    return (
        f"it goes on from snapshot {manifest.checkpoint_id} with 'unistream run MODULE:FUNCTION -s "
        f"{directory}', or with env.execute(savepoint=...) of the same directory"
    )
