"""What the savepoints of a job are good for: pure.

A drain takes two of the same positions: one that a job can go on from, and after the end of data the terminal
one, which proves that everything is committed, and which the next run would refuse.
"""

from __future__ import annotations

from typing import NamedTuple

from unistream.model.job_info import JobInfo
from unistream.model.snapshot_kind import SnapshotKind


class Savepoints(NamedTuple):
    """The newest ones of a job, as directories.

    Attributes:
        resumable: A job can go on from it; None: there is none.
        terminal: Of a drain; None: the job was not drained.
    """

    resumable: str | None
    terminal: str | None


def savepoints_of(info: JobInfo) -> Savepoints:
    """The savepoints of a job, as far as they are known."""
    newest, resumable = info.savepoint, info.resumable_savepoint
    is_other = resumable is not None and resumable != newest
    if newest is not None and (is_other or ended_by(info) is SnapshotKind.TERMINATE):
        return Savepoints(resumable, newest)
    return Savepoints(resumable or newest, None)


def was_stopped(info: JobInfo) -> bool:
    """The job has ended with a savepoint, and not by the end of its input, which may come after one."""
    kind = ended_by(info)
    is_of_stop = kind is None or kind.is_synchronous  # None: nobody knows it any more
    is_newest = info.savepoint is not None and info.savepoint == info.latest_checkpoint
    return info.state == "FINISHED" and is_newest and is_of_stop


def ended_by(info: JobInfo) -> SnapshotKind | None:
    """Kind of the newest completed savepoint; None: there is none."""
    done = [one for one in info.checkpoints if one.state == "completed" and one.kind.is_savepoint]
    return max(done, key=lambda one: one.checkpoint_id).kind if done else None
