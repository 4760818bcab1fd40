"""Jobs of a cluster with another `high-availability.type` are not carried over, and not passed over either.

    <workdir>/ha/               pointers to the jobs of a cluster of one master (`ha.single_node`)
    <workdir>/several-masters   the folder is that of one of several masters, whose jobs are in ZooKeeper;
                                in it is the command that starts that master

A master refuses a folder of the other kind as long as that one may have unfinished jobs. As in Flink, a job
changes clusters by a savepoint.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Final

from unistream.base import durable_files
from unistream.base.config import HA_TYPE
from unistream.base.errors import ConfigError, UnistreamError
from unistream.client.machine.leftovers import LeftJob, unfinished_in
from unistream.master.store import JobStore

MARK: Final = "several-masters"
NAMED_MAX: Final = 3  # jobs in one sentence

logger = logging.getLogger(__name__)


def check_several(workdir: Path, target: str) -> None:
    """Refuses a folder for one of several masters that has jobs of another type. Only who has the folder's
    lock calls it.

    Raises:
        ConfigError: it has unfinished jobs of a cluster of one master.
        CorruptSnapshot: nobody can say whether it has any.
    """
    jobs = list(unfinished_in(workdir))
    if jobs:
        raise ConfigError(_of_one_master(workdir, jobs, target))


def join_several(workdir: Path, goes_on: str) -> None:
    """A master contends: from now on the cluster in ZooKeeper may have jobs. May be repeated.

    Args:
        workdir: Its folder.
        goes_on: The command that starts it, without its folder.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        durable_files.create(str(workdir / MARK), goes_on.encode())
    except OSError as error:
        raise ConfigError(f"cannot use {workdir} as the cluster's folder: {error.strerror}") from error


def check_single(workdir: Path) -> None:
    """Refuses a folder of one of several masters for a cluster of one master. Only who has the folder's lock
    calls it.

    Raises:
        ConfigError: it is the folder of one of several masters.
    """
    mark = workdir / MARK
    try:
        goes_on = mark.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    command = f"{goes_on} --workdir {shlex.quote(str(workdir))}"
    raise ConfigError(
        f"{workdir} is the folder of one of several masters, whose jobs are in ZooKeeper and do not go on "
        f"with {HA_TYPE.key}: single; {command!r} goes on with them: stop each with a savepoint there "
        "('unistream list', 'unistream stop') and start it here from that ('unistream run -s'); if there are "
        f"none any more, remove {mark}, or choose another --workdir"
    )


def leave_several(workdir: Path, jobs: JobStore) -> None:
    """A leader ends while it leads. If no job is left, any cluster may use its folder."""
    try:
        if not jobs.unfinished():
            (workdir / MARK).unlink(missing_ok=True)
    except (UnistreamError, OSError) as error:  # then the mark says that there may be some
        logger.info("event=folder_stays_marked folder=%s reason=%r", workdir, str(error))


def _of_one_master(workdir: Path, jobs: list[LeftJob], target: str) -> str:
    named = ", ".join(_named(job) for job in jobs[:NAMED_MAX])
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    command = f"unistream cluster start -t {target} --workdir {shlex.quote(str(workdir))}"
    return (
        f"{workdir} has {len(jobs)} unfinished job(s) of a cluster of one master, which do not go on with "
        f"{HA_TYPE.key}: zookeeper: {named}{more}; {command!r} goes on with them: end that cluster with "
        "'unistream cluster stop --savepoint' (or --cancel) and start each job here from its savepoint "
        "('unistream run -s'), or choose another --workdir"
    )


def _named(job: LeftJob) -> str:
    kept = "no checkpoint" if job.snapshot is None else f"newest checkpoint {job.snapshot}"
    return f"{job.name!r} ({job.job}, {kept})"
