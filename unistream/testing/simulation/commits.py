"""Commits of a user's own sink that are cut off, as if the worker were killed there.

    before a line ─► Cut ─► through the user's code ─► OutcomeUnknown: the task fails, the commit is repeated

The effects up to the line remain, as after a kill, except that `finally` and `with` blocks still run. The
lines are those of the modules in the folders of committer and sink; not of libraries, whose state would be
broken for the rest of the process.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Generic, TypeVar

from unistream.base.errors import OutcomeUnknown
from unistream.base.ids import OperatorUid
from unistream.operator.sink import StageCommitter
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, CommitResult, Committer, JointCommitter, SinkContext
from unistream.testing.simulation.ends import SimulatedRun

LINES_GUESS: Final = 12  # of a commit, until one has been counted

T = TypeVar("T")


class Cut(BaseException):
    """Not an Exception, so that no handler of the user catches it."""


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """How far a call ran. `place`: the line before which it was cut off ("file.py:12"); empty: it returned
    `result`. `lines`: counted lines that it ran."""

    lines: int
    place: str = ""
    result: T | None = None


def cut_before(line: int, folders: Collection[str], call: Callable[[], T]) -> Ran[T]:
    """Runs `call` up to its line number `line`, which is not run.

    Args:
        line: Counted as they run, from 1, in `folders` only; 0: it is not cut off.
        folders: Folders of the source files whose lines count.
        call: The function to run.

    >>> import os
    >>> done = []
    >>> def twice():
    ...     done.append(1)
    ...     done.append(2)
    >>> cut_before(2, [os.path.dirname(twice.__code__.co_filename)], twice).lines, done
    (1, [1])
    """
    lines, place = 0, ""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines, place
        if os.path.dirname(frame.f_code.co_filename) not in folders:
            return None
        if event == "line":
            if lines + 1 == line:
                place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                raise Cut
            lines += 1
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        return Ran(result=call(), lines=lines)
    except Cut as cut:
        _let_go(cut)
        return Ran(place=place, lines=lines)
    finally:
        sys.settrace(former)


def _let_go(cut: Cut) -> None:
    """Frees the objects of the call's frames, such as open files, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if cut.__traceback__ is not None:
            traceback.clear_frames(cut.__traceback__)


class InterruptedCommitter:
    """`port.sink.Committer` around a user's own. By `commit_unknown`, the outcome of a commit is unknown: it
    was cut off, or it is done and its result is lost."""

    def __init__(self, committer: Committer, site: SimulatedRun, folders: Collection[str]) -> None:
        self._committer = committer
        self._world = site.world
        self._known = site.commit_lines
        self._folders = folders
        self._uid = OperatorUid("")

    def open(self, context: SinkContext) -> None:
        self._uid = context.sink_uid
        self._committer.open(context)

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self._maybe_cut(permit, lambda: self._committer.commit(permit, request))

    def close(self) -> None:
        self._committer.close()

    def _maybe_cut(self, permit: CommitPermit, commit: Callable[[], CommitResult]) -> CommitResult:
        world, uid = self._world, self._uid
        cut = world.chance(world.faults.commit_unknown)
        line = 1 + world.random.randrange(1 + self._known.get(uid, LINES_GUESS)) if cut else 0
        ran = cut_before(line, self._folders, commit)
        if not ran.place:
            self._known[uid] = max(ran.lines, self._known.get(uid, 0))
        if not cut:
            assert ran.result is not None, "it was not cut off"
            return ran.result
        what = f"is cut off before {ran.place}" if ran.place else "is done, but its result is lost"
        world.log(f"FAULT: commit of {uid}, by checkpoint {permit.checkpoint_id}, {what}")
        raise OutcomeUnknown(f"the commit by checkpoint {permit.checkpoint_id} {what}")


class InterruptedJointCommitter(InterruptedCommitter):
    """A `port.sink.JointCommitter` whose commits are cut off."""

    _committer: Any

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        return self._maybe_cut(permit, lambda: self._committer.commit_all(permit, requests))


def interrupted(
    create: Callable[[], Committer | None], sink: object, site: SimulatedRun
) -> Callable[[], Any]:
    """`create`, with committers whose commits may be cut off. Stages behind a committer are not changed."""

    def made() -> Committer | None:
        committer = create()
        if committer is None or isinstance(committer, StageCommitter):
            return committer
        kind = InterruptedJointCommitter if isinstance(committer, JointCommitter) else InterruptedCommitter
        return kind(committer, site, _folders_of(committer) | _folders_of(sink))

    return made


def _folders_of(one: object) -> frozenset[str]:
    """The folders of its classes' sources, without the base classes of users' sinks."""
    kinds = [
        kind
        for kind in type(one).__mro__
        if not kind.__module__.startswith(("unistream.api.", "unistream.port."))
    ]
    codes = (getattr(found, "__code__", None) for kind in kinds for found in vars(kind).values())
    return frozenset(os.path.dirname(code.co_filename) for code in codes if code is not None)
