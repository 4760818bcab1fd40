"""What a cluster that has ended has left in its folder, for messages: its jobs, and how to go on with them.

Folders are only read, and only those below `$UNISTREAM_HOME` that no running cluster has.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unistream.base.errors import UnistreamError
from unistream.base.ids import JobId, LeaderEpoch
from unistream.client.machine import home
from unistream.client.machine.home import ClusterEntry

FOLDERS = ("runs", "sessions")
ID_PREFIX_CHARS_MIN = 4


@dataclass(frozen=True, slots=True)
class LeftJob:
    """A job that had not ended when its cluster did. `snapshot`: the directory of its newest one, if any."""

    job: JobId
    name: str
    folder: Path
    snapshot: str | None


def why_ended(entry: ClusterEntry) -> str | None:
    """A sentence about a cluster for one job whose process has ended: nobody starts it again by itself. None:
    it runs, or is a session cluster, which may be."""
    if entry.session or home.is_running(entry) or home.successor(entry) is not None:
        return None
    begin = f"the cluster at {entry.url} has ended (process {entry.pid}), and its job runs no more"
    left = list(jobs_in(home.home() / "runs" / entry.id))
    if not left:
        return f"{begin}; it has left no unfinished job"
    return f"{begin}; {_how(left[0], entry.target)}"


def sentence_about(text: str) -> str | None:
    """A sentence about the job whose id begins with `text`, or whose name it is, in the folder of a cluster
    that does not run. None: there is none, or there are several."""
    prefix = text.lower() if len(text) >= ID_PREFIX_CHARS_MIN else None
    found = [
        job
        for folder in _folders()
        for job in jobs_in(folder)
        if job.name == text or (prefix is not None and job.job.startswith(prefix))
    ]
    if len(found) != 1:
        return None
    [job] = found
    return f"job {job.name!r} ({job.job}) does not run: its cluster has ended; {_how(job)}"


def jobs_in(folder: Path) -> Iterator[LeftJob]:
    """Unfinished jobs; what cannot be read is none of them."""
    try:
        yield from unfinished_in(folder)
    except UnistreamError:  # a message is not worth an error of its own
        return


def unfinished_in(folder: Path) -> Iterator[LeftJob]:
    """Unfinished jobs of a cluster of one master. Raises CorruptSnapshot, Unreachable: nobody can say."""
    # Late: a command that finds its cluster needs none of this, which takes as long as all the rest of it.
    from unistream.ha.folder_store import FolderHaStore
    from unistream.ha.single_node import HA_FOLDER
    from unistream.master.store import JobStore
    from unistream.storage.artifacts import FsArtifactStore

    store = FolderHaStore(folder / HA_FOLDER, LeaderEpoch(0))  # which writes nothing
    jobs = JobStore(store, FsArtifactStore(str(folder / "artifacts")))
    for job in jobs.unfinished():
        pointer = jobs.pointer(job)
        if pointer is not None:
            snapshots = jobs.snapshots(job).all()
            newest = snapshots[-1].directory if snapshots else None
            yield LeftJob(job, pointer.name, folder, newest)


def _folders() -> Iterator[Path]:
    from unistream.ha.single_node import holder

    for name in FOLDERS:
        for folder in sorted((home.home() / name).glob("*")):
            if folder.is_dir() and holder(folder) is None:
                yield folder


def _how(job: LeftJob, target: str | None = None) -> str:
    where = "" if target is None else f" -t {target}"
    kept = "no checkpoint of it was complete"
    if job.snapshot is not None:
        kept = f"its newest checkpoint is {job.snapshot}"
    command = f"unistream cluster start{where} --workdir {shlex.quote(str(job.folder))}"
    return f"{kept}; {command!r} goes on with it, and then it can be stopped or cancelled"
