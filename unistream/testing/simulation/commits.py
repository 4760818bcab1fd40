"""Commits of a user's own sink that end in the middle, as those of a worker that is killed there.

    before a line ─► Cut ─► through the user's code ─► OutcomeUnknown: the task fails, the next one asks again

A kill leaves behind what was done up to there; so does this, but for what `finally` and `with` do on the way
out. The places are lines of the modules that define committer and sink, and of those beside them; not of
libraries: what is cut off in there would be broken for the rest of the process, which lives on.
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
from unistream.testing.simulation.ends import Site

LINES_GUESS: Final = 12  # of a commit, as long as none is known

T = TypeVar("T")


class Cut(BaseException):
    """Not an Exception: no handler of the user's is to see it."""


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """How far a call came. `place`: before which line it ended ("file.py:12"); empty: it came through, and
    `result` is what it returned. `lines`: that it ran, of those that count."""

    lines: int
    place: str = ""
    result: T | None = None


def cut_before(line: int, folders: Collection[str], call: Callable[[], T]) -> Ran[T]:
    """Runs `call`, but not its line number `line` and what would follow.

    Args:
        line: Counted as they run, from 1, in `folders` only; 0: it is not cut off.
        folders: Where the source files lie whose lines count.
        call: What is run.

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
    """Frees what the frames of the call still hold: open files, at most. Nobody is to be warned of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if cut.__traceback__ is not None:
            traceback.clear_frames(cut.__traceback__)


class InterruptedCommitter:
    """`port.sink.Committer` around a user's own. As often as the faults say, the outcome of a commit is not
    known: it was cut off somewhere, or is through and nobody hears of it."""

    def __init__(self, committer: Committer, site: Site, folders: Collection[str]) -> None:
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
            assert ran.result is not None, "it came through"
            return ran.result
        what = f"is cut off before {ran.place}" if ran.place else "is done, but its result is lost"
        world.tell(f"FAULT: commit of {uid}, by checkpoint {permit.checkpoint_id}, {what}")
        raise OutcomeUnknown(f"the commit by checkpoint {permit.checkpoint_id} {what}")


class InterruptedJointCommitter(InterruptedCommitter):
    """The same around a `port.sink.JointCommitter`."""

    _committer: Any

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        return self._maybe_cut(permit, lambda: self._committer.commit_all(permit, requests))


def interrupted(create: Callable[[], Committer | None], sink: object, site: Site) -> Callable[[], Any]:
    """`create`, whose committers do not always come to the end of a commit. Stages behind a committer are no
    committers: they do."""

    def made() -> Committer | None:
        committer = create()
        if committer is None or isinstance(committer, StageCommitter):
            return committer
        kind = InterruptedJointCommitter if isinstance(committer, JointCommitter) else InterruptedCommitter
        return kind(committer, site, _folders_of(committer) | _folders_of(sink))

    return made


def _folders_of(one: object) -> frozenset[str]:
    """Where the methods of its classes are written, but for the bases that users' sinks have."""
    kinds = [
        kind
        for kind in type(one).__mro__
        if not kind.__module__.startswith(("unistream.api.", "unistream.port."))
    ]
    codes = (getattr(found, "__code__", None) for kind in kinds for found in vars(kind).values())
    return frozenset(os.path.dirname(code.co_filename) for code in codes if code is not None)
