"""Named places where a process can be made to die, for tests of recovery.

A crash point is a no-op unless the environment names it:

    UNISTREAM_CRASH_POINTS   comma separated ``name`` or ``name:n``: die (SIGKILL to itself) when the
                             point is reached for the n-th time (default 1) in this process
    UNISTREAM_CRASH_DIR      a folder: each point fires once for all processes that share the folder
                             (it leaves a file with the point's name there before it dies)
    UNISTREAM_CRASH_AFTER    a file: points are not counted before it exists
    UNISTREAM_CRASH_SIGNAL   KILL (the default), or STOP: the process stands still until somebody sends it
                             SIGCONT
    UNISTREAM_TESTING        must be 1, or masters and workers refuse to start with crash points

A test in one process sees its threads come by (`passing`), and may raise there what stands for the death.

The points of a master, in the order of a checkpoint and then of the end of a job:

    trigger.sent             a task was triggered
    ack.received             an acknowledgement has arrived and is not processed
    manifest.before_create, manifest.created        around the write of its manifest
    pointer.before_swap, pointer.swapped    around the write by which it counts
    notify.sent              a task was notified of a completed checkpoint
    commit.recorded          a commit is in the catalogue
    retention.before_delete, pointer.removed, retention.deleted     an unused snapshot does not count, is gone
    result.before_record, result.recorded           around the record of the job's result
    job.unpointed        only the result is left of a job, and its code

and when a job is submitted and started:

    job.code_stored, job.stored     the code, and then the description of the job are durable
    job.pointed          the job exists, and its user does not know
    attempts.stored      the numbers of attempts are durable, which are about to start

    job.kept             what was submitted stays beyond its end, and nobody knows

and when it is stopped or changed by a user:

    stop.stored          the stop is durable, and the job does not know
    stop.refused, stop.withdrawn    the job has refused it; it is not stored any more, and nobody knows
    savepoint.stored     the trigger id of a savepoint is durable, and the job does not know
    savepoint.answered   its outcome is durable, and nobody knows
    rescale.stored       a change of parallelism is durable, and the job does not know
    rescale.kept         the job runs with it, and so it would under the next master
    rescale.answered     its outcome is durable, and nobody knows

and of a BATCH job, before its first committer starts:

    committables.stored  what it commits is durable, and does not count
    committables.pointed    it counts: the job never starts from its beginning again

of a value that a master keeps in a folder (`ha.folder_store`):

    value.folder_made    its folder exists, it does not
    value.written        it is durable under a temporary name
    value.named          it is there, and its name may not survive a power cut
    value.removed        it is out of the way, and not deleted

of a worker, in the order of the path from a row to a commit:

    task.batch           a task has processed one batch
    snapshot.sync_done   the state of a chain is captured, the barrier is sent, nothing is written
    snapshot.half_written    a state file is partly written, under a temporary name
    snapshot.unnamed     it is complete, still under that name
    snapshot.uploaded    the state files are written, the master is not notified
    ack.sent             the acknowledgement is sent
    sink.before_commit   a task is about to notify its operators of a completed checkpoint
    sink.committed       its operators are notified; their commits may still be under way
    committer.before_commit, committer.committed    around one commit, on its own thread
    restore.before_commit, restore.committed    around the commits of a restored snapshot, before new ones

and of the connectors:

    delta.staged         a file of rows is in the table's folder, no version of the table has it
    delta.before_append, delta.appended             around the version of the table that has them
    iceberg.staged       a file of rows is below the table's location, no snapshot names it
    iceberg.before_commit, iceberg.manifests_written, iceberg.committed    around the snapshot that has them
    file.staged          a hidden file is in the folder
    file.before_record, file.recorded               around the record that decides a commit
    file.first_renamed   one of its files is visible

    group.member_committed    a member of a commit group is committed, another may not be
    group.before_record, group.recorded    around the record that shows a checkpoint of all members

of `unistream backfill`, whose n-th step is chosen by ``name:n``:

    backfill.done        a step is done and not in the journal
    backfill.recorded    it is in the journal
    backfill.before_replace, backfill.replaced      around the version of the table that has the new rows

and of `unistream dead-letters replay`:

    replay.begun         the letters of a replay are chosen, durably, and its job has not started
    replay.finished      its job has finished, and it is not noted
    replay.recorded      it is noted
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from unistream.base.errors import ConfigError

POINTS_VARIABLE: Final = "UNISTREAM_CRASH_POINTS"
DIRECTORY_VARIABLE: Final = "UNISTREAM_CRASH_DIR"
AFTER_VARIABLE: Final = "UNISTREAM_CRASH_AFTER"
SIGNAL_VARIABLE: Final = "UNISTREAM_CRASH_SIGNAL"
TESTING_VARIABLE: Final = "UNISTREAM_TESTING"

_SIGNALS: Final = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}

_lock = threading.Lock()
_reached: Counter[str] = Counter()
_lookers: list[Callable[[str], None]] = []


def crash_point(name: str) -> None:
    """Kills the process, or stops it, if the environment names this point."""
    for looker in _lookers:
        looker(name)
    wanted = os.environ.get(POINTS_VARIABLE)
    if not wanted:
        return
    target = _parse(wanted).get(name)
    if target is None or not _counts():
        return
    with _lock:
        _reached[name] += 1
        due = _reached[name] == target
    if due and _first_anywhere(name):
        # to this thread: it does not go on before the whole process is gone, or stands still
        signal.pthread_kill(threading.get_ident(), _SIGNALS[os.environ.get(SIGNAL_VARIABLE, "KILL")])


@contextmanager
def passing(looker: Callable[[str], None]) -> Iterator[None]:
    """Calls `looker` with the name of each crash point that a thread of this process comes by. What it raises
    is raised there."""
    _lookers.append(looker)
    try:
        yield
    finally:
        _lookers.remove(looker)


def no_crash(name: str) -> None:
    """The crash point of a worker outside of tests."""


def crash_points(environment: Mapping[str, str]) -> Callable[[str], None]:
    """The function that a process calls at its crash points.

    Raises:
        ConfigError: crash points are set outside of a test.
    """
    if not environment.get(POINTS_VARIABLE):
        return no_crash
    if environment.get(TESTING_VARIABLE) != "1":
        raise ConfigError(f"{POINTS_VARIABLE} is set, which is for tests only; unset it")
    if environment.get(SIGNAL_VARIABLE, "KILL") not in _SIGNALS:
        raise ConfigError(f"{SIGNAL_VARIABLE} is one of {', '.join(_SIGNALS)}")
    return crash_point


def refuse_outside_tests() -> None:
    """Raises ConfigError if crash points are set outside of a test."""
    crash_points(os.environ)


def _parse(text: str) -> dict[str, int]:
    points: dict[str, int] = {}
    for item in text.split(","):
        name, _, count = item.strip().partition(":")
        if not name or (count and not count.isdigit()):
            raise ConfigError(f"{POINTS_VARIABLE}: {item!r} is not a name or name:n")
        points[name] = int(count or "1")
    return points


def _counts() -> bool:
    after = os.environ.get(AFTER_VARIABLE)
    return not after or os.path.exists(after)


def _first_anywhere(name: str) -> bool:
    folder = os.environ.get(DIRECTORY_VARIABLE)
    if not folder:
        return True
    try:
        marker = os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.close(marker)
    return True
