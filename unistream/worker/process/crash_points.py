"""The named places of a worker where a test may let it die; see `unistream.base.crash_points`.

In the order of the path from a row to a commit:

    task.batch           a task has processed one batch
    snapshot.sync_done   an operator chain's state is captured, the barrier is out, nothing is written
    snapshot.half_written    a state file has a part of its bytes, and no name that anybody knows
    snapshot.unnamed     it has all of them, and still no name
    snapshot.uploaded    the state files are written, the master does not know
    ack.sent             the acknowledgement is on its way
    sink.before_commit   a task has heard that a checkpoint completed and is about to tell its operators
    sink.committed       its operators have been told; their commits may still be under way
    committer.before_commit, committer.committed    around one commit, on its own thread
    restore.before_commit, restore.committed    around what a restored snapshot lists, before anything new

and of the connectors:

    delta.staged         a file of rows is in the table's folder, no version of the table has it
    delta.before_append, delta.appended             around the version of the table that has them
    file.staged          a hidden file is in the folder
    file.before_record, file.recorded               around the record that decides a commit
    file.first_renamed   one of its files is visible
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from unistream.base.crash_points import POINTS_VARIABLE, crash_point
from unistream.base.errors import ConfigError

TESTING_VARIABLE: Final = "UNISTREAM_TESTING"


def no_crash(name: str) -> None:
    """Outside of tests every crash point is this."""


def crash_points(environment: Mapping[str, str]) -> Callable[[str], None]:
    """What a worker calls at its crash points.

    Raises:
        ConfigError: crash points are enabled although this is no test: a worker that may kill itself
            must not start.
    """
    if not environment.get(POINTS_VARIABLE):
        return no_crash
    if environment.get(TESTING_VARIABLE) != "1":
        raise ConfigError(f"{POINTS_VARIABLE} is set, which is for tests only; unset it")
    return crash_point
