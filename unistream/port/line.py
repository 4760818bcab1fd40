"""Which job may commit to the output of a sink. Pure.

Jobs that start from each other's snapshots are a *line*: they share the id that the first one made, their
`lineage`. The target of a sink records which line writes it and, with each commit, which job of the line took
the last checkpoint in it, and which one that is. The commit and its record are one atomic step, made on
exactly the record that was looked at, so of two jobs that could both go on exactly one does.

    target has                                     the job
    no line                                        begins one, with its first commit
    another line                                   is refused; on_foreign="append": begins one next to it
    its line, last written by this job             goes on
    its line, last written by the job that its     goes on, and is the line's job from its first commit on
      snapshot is of, or that its snapshot names,
      and not beyond that snapshot (`Followed`)
    its line, last written by any other job        is refused: another successor was faster, or it is an old
                                                   job that has been succeeded

A target that is ahead of the restored snapshot is a rewind, which sinks handle by themselves (`on_rewind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from unistream.base.errors import ConfigError, Fenced, UnistreamError
from unistream.base.ids import JobId

if TYPE_CHECKING:
    from unistream.port.sink import SinkContext  # which loads Arrow

OnForeign = Literal["refuse", "append"]
"""What a sink does if another line of jobs writes its target."""

J = TypeVar("J", str, int)
"""A job, as a target names it."""

WAYS_OUT: Final = "or set on_foreign='append' at the sink, to append its rows to what is there"


class Followed(NamedTuple, Generic[J]):
    """A job whose commits up to checkpoint `until` this one continues."""

    job: J
    until: int


class LineCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a line. `snapshot`: directory from which a job can go on behind it; empty: not
    known."""

    lineage: str
    job: str
    checkpoint: int
    snapshot: str = ""


@runtime_checkable
class KeepsLine(Protocol):
    """A sink whose target records which line of jobs writes it."""

    def check_new_line(self, lineage: str = "") -> None:
        """Checks the target before the first row of a job that starts from no snapshot: on the client, where
        its line has no `lineage` yet, and in the first writer. Writes nothing.

        Raises:
            ConfigError: another line of jobs writes the target, and the sink does not append to it.
        """

    def last_commit(self, sink_uid: str) -> LineCommit | None:
        """The newest commit by a sink with this uid, of whichever line: for a job that goes on behind it. On
        the client. None: there is none, as far as the target remembers."""


def check_on_foreign(on_foreign: str) -> None:
    """Checks that the argument is one of the two that there are. Raises ConfigError."""
    if on_foreign not in ("refuse", "append"):
        raise ConfigError(f"on_foreign must be 'refuse' or 'append', not {on_foreign!r}")


def writer_of(context: SinkContext, checkpoint_id: int) -> JobId:
    """The job that a commit is recorded as made by: the one that took the checkpoint. What a restored
    snapshot lists as pending is of its job, so that a successor which commits it is in no other one's way."""
    is_restored = checkpoint_id <= (context.restored or 0)
    return context.predecessor if is_restored and context.predecessor is not None else context.job


def followed_by(
    context: SinkContext, predecessor: J | None, remembered: Followed[J] | None
) -> tuple[Followed[J], ...]:
    """The jobs that a job follows, until it has committed.

    Args:
        context: Of the job.
        predecessor: That of `context`, as the target names jobs.
        remembered: From the restored state; see `still_followed`.
    """
    former = None if predecessor is None else Followed(predecessor, context.committed_max)
    return tuple(one for one in (remembered, former) if one is not None)


def may_follow(writer: J, last: int, *, me: J, followed: Iterable[Followed[J]]) -> bool:
    """Whether job `me` may make the next commit of a line, whose last one, of checkpoint `last`, is by job
    `writer`.

    >>> may_follow("a", 3, me="b", followed=[Followed("a", 3)])
    True
    >>> may_follow("a", 4, me="b", followed=[Followed("a", 3)])  # a went on by itself
    False
    """
    return writer == me or any(writer == job and last <= until for job, until in followed)


def still_followed(writer: J, last: int, followed: Iterable[Followed[J]]) -> Followed[J]:
    """What a job remembers in its snapshots of the last commit, which it follows, or has made: a successor
    that finds more commits of `writer` does not follow it. What the restored snapshot lists as pending may
    be committed a moment later.

    >>> still_followed("a", 1, [Followed("a", 3)])
    Followed(job='a', until=3)
    """
    return Followed(writer, max((one.until for one in followed if one.job == writer), default=last))


class SinkLine(Generic[J]):
    """The line of jobs of one sink, as one job of it sees it: whether this job may make the next commit.

    Args:
        where: The target, for messages.
        context: Of the sink in this attempt of the job.
        named: How the target names a job, from its id.
        remembered: From the restored state; see `still_followed`.

    Attributes:
        has_committed: This attempt has committed in its own name, so it follows nobody else any more.

    A target looks up who made its last commit and asks before each of its own:

        line.check(writer, last, begins=...)
        ...                            # the commit, recorded as made by `line.writer(checkpoint)`
        line.committed(checkpoint)
    """

    def __init__(
        self,
        where: str,
        context: SinkContext,
        named: Callable[[str], J],
        remembered: Followed[J] | None = None,
    ) -> None:
        self._where = where
        self._context = context
        self._me: J = named(context.job)
        former = None if context.predecessor is None else named(context.predecessor)
        self._followed: tuple[Followed[J], ...] = followed_by(context, former, remembered)
        self.has_committed = False

    def check(
        self,
        writer: J | None,
        last: int,
        *,
        begins: Callable[[], None],
        name: Callable[[], str] | None = None,
    ) -> None:
        """Refuses a commit that this job may not make on what was looked at.

        Args:
            writer: The job that made the last commit of this line there; None: the target has none.
            last: The checkpoint of that commit.
            begins: Raises ConfigError if this job may not begin a line there.
            name: The id of `writer`, for messages; None: it is `writer`.

        Raises:
            ConfigError: another line writes the target, or another job this line.
            Fenced: another job has taken over from this one.
        """
        if self._context.finalizing:
            return
        if writer is None:
            begins()
        elif not self.follows(writer, last):
            raise self.succeeded(str(writer) if name is None else name())

    def follows(self, writer: J, last: int) -> bool:
        """Whether this job may go on behind the commit of checkpoint `last` by job `writer`."""
        return may_follow(writer, last, me=self._me, followed=self._followed)

    def succeeded(self, writer: str, *, has_written: bool = False) -> UnistreamError:
        """The error for a commit of job `writer`, which this one does not follow. `has_written`: this attempt
        has, even if it has not committed."""
        has_committed = self.has_committed or has_written
        return succeeded(self._where, self._context, writer=writer, has_committed=has_committed)

    def writer(self, checkpoint_id: int) -> JobId:
        """The job that a commit up to this checkpoint is recorded as made by."""
        return writer_of(self._context, checkpoint_id)

    def committed(self, checkpoint_id: int) -> None:
        """Notes that this attempt has committed up to this checkpoint."""
        if self.writer(checkpoint_id) == self._context.job:
            self.has_committed, self._followed = True, ()

    def remembered(self, writer: J, last: int) -> Followed[J]:
        """What the state keeps of the line, after the last commit."""
        return still_followed(writer, last, self._followed)


def succeeded(where: str, context: SinkContext, *, writer: str, has_committed: bool) -> UnistreamError:
    """Job `writer` made the last commit of the line, and this job does not follow it. `has_committed`: this
    attempt has, before."""
    if has_committed or context.predecessor == context.job:
        return Fenced(
            f"{where}: job {writer} has taken over the output of sink {context.sink_uid!r}, from a snapshot "
            "that this job continues too; nothing more of this job is committed"
        )
    return ConfigError(
        f"{where}: job {writer} writes the output of sink {context.sink_uid!r}, from another snapshot than "
        "this job, so rows would be written twice; nothing was written. Stop that job, and start from its "
        "last snapshot"
    )


def foreign_line(where: str, *, writer: str = "", checkpoint: str = "", snapshot: str = "") -> ConfigError:
    """Another line writes the target. What is known of its last commit: its job, checkpoint, snapshot."""
    last = f", last job {writer} (checkpoint {checkpoint})" if writer else ""
    start = f"Start from that line's last snapshot ({snapshot})"
    if not snapshot:
        start = "Start from a snapshot of that line, if it has left one"
    return ConfigError(
        f"{where} has the output of another line of jobs{last}: a job that does not continue it would write "
        f"rows a second time; nothing was written. {start}, {WAYS_OUT}"
    )
