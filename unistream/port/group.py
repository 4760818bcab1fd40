"""Sinks whose commits become visible together: a `CommitGroup`.

    writers of all members ──► one committer ──► tables with versions (Delta, Iceberg), at the same time
                                             ──► tables of one database, in one transaction
                                             ──► a record in the log of the group: checkpoint, version of each

The record is the moment at which a checkpoint is visible: it is written when every member has it, in the
transaction of the database if there is one, else created under the number behind the newest one. Readers take
the newest record and read each table at the version that it names. A reader that takes the newest version of
each table may see one member without the other for a moment; that of a database never does.

The committer is the only one of all members, and commits what it restores before anything else. So a
checkpoint that a crash has left half visible is finished, and recorded, before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol, TypeVar, runtime_checkable

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, Fenced
from unistream.base.ids import JobId, LineageId
from unistream.port.line import OnForeign, foreign_line
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, CommitResult, SinkContext

GROUP_FORMAT: Final = 1
NAME_BYTES_MAX: Final = 200  # of a folder, which has 255, and of a uid that is made of it
RECORDS_KEPT: Final = 1_000
"""How many records a log keeps: readers that began with an older one have been reading for that many
checkpoints."""
LINES_KEPT: Final = 16
"""Other lines that a record knows: bounded jobs that append day by day are a new one each day."""


class TableVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What readers see of one table.

    Attributes:
        kind: ``delta``, ``iceberg`` or ``sql``.
        address: Its path, URL or name.
        version: The version of Delta, or the snapshot id of Iceberg, to read it at; None: as it is (SQL).
    """

    kind: str
    address: str
    version: int | None = None


class LineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last record of another line of jobs that writes the same group; see `GroupCommit`."""

    lineage: str
    job: str
    checkpoint: int
    number: int


class GroupCommit(msgspec.Struct, frozen=True, kw_only=True):
    """All members of a group have a checkpoint.

    Attributes:
        number: Of the record, growing by one.
        checkpoint: Up to which all rows are in all tables, of this job.
        committed_ms: When, since the epoch.
        tables: By uid of the sink. A member without a table yet is missing; those of SQL are always named.
        appends: By a line that may write next to others (`on_foreign="append"`).
        others: Lines that have written before: the first one, and the last few of the others.
    """

    group: str
    number: int
    lineage: str
    job: str
    checkpoint: int
    committed_ms: int
    tables: dict[str, TableVersion]
    appends: bool = False
    others: tuple[LineRecord, ...] = ()
    format: int = GROUP_FORMAT


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the committer and its snapshots know of a group.

    Attributes:
        location: Folder of the log; empty: it is in the database of the members, at `database`.
        database: URL without password.
    """

    name: str
    location: str = ""
    database: str = ""
    on_foreign: OnForeign = "refuse"


class MemberCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """A committable of a member, as the committer of the group stores it. `connector`: of the member's
    committer, see `unistream.port.sink.RecoverableCommitter`."""

    options: GroupOptions
    sink_uid: str
    connector: str
    payload: bytes
    format: int = GROUP_FORMAT

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)


S = TypeVar("S", MemberCommittable, GroupCommit)


def decode_member(payload: bytes) -> MemberCommittable:
    """A committable of a group's member as it was encoded. Raises CorruptSnapshot."""
    with _reading("a committable of a commit group"):
        found = msgspec.msgpack.decode(payload, type=MemberCommittable)
    return _of_this_format(found, "a committable of a commit group")


def decode_record(content: bytes | str, where: str) -> GroupCommit:
    """A record of a group's log as it was encoded; `where`: its place, for the message. Raises
    CorruptSnapshot."""
    what = f"the record {where} of a commit group"
    with _reading(what):
        found = msgspec.json.decode(content, type=GroupCommit)
    return _of_this_format(found, what)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{what} is unreadable: {error}") from error


def _of_this_format(found: S, what: str) -> S:
    if found.format != GROUP_FORMAT:
        raise CorruptSnapshot(f"{what} has format {found.format}, this version reads {GROUP_FORMAT}")
    return found


class GroupLog(Protocol):
    """The records of one group."""

    def newest(self) -> GroupCommit | None:
        """Raises CorruptSnapshot, Unreachable."""

    def append(self, record: GroupCommit) -> bool:
        """Durable when it returns. False: there is one of that number. Raises Unreachable."""

    def close(self) -> None: ...


@runtime_checkable
class JoinsGroup(Protocol):
    """A committer whose sink can be a member: the only one of its sink, and joint (`JointCommitter`)."""

    def table_version(self) -> TableVersion | None:
        """What readers see now, after `open`, and after each commit of this committer. None: there is no
        table yet."""

    def newest_version(self) -> TableVersion | None:
        """What readers see now, with what others have committed since. Asks the table. Raises as `open`."""


@runtime_checkable
class SharesTransaction(JoinsGroup, Protocol):
    """A committer of a database: members of one database are committed in one transaction, with the record
    of the group."""

    def database_url(self) -> str:
        """URL without password, or a reference to it; equal ones are one database."""

    def transaction(self, doing: str) -> AbstractContextManager[Transaction]:
        """A transaction of the database, after `open`. `doing`: what it is for."""

    def group_log(self, group: str) -> GroupLog:
        """The log of a group, to look at, also before `open`; the caller closes it."""


class Transaction(Protocol):
    """A transaction of several committers and the log. Everything in it happens, or nothing."""

    def commit(
        self, member: SharesTransaction, permit: CommitPermit, requests: Sequence[CommitRequest]
    ) -> Callable[[], CommitResult]:
        """Returns what gives the result, when the transaction is committed."""

    def log(self, group: str) -> GroupLog:
        """Locked until the transaction ends."""


def next_record(
    newest: GroupCommit | None,
    *,
    seen: int,
    mine: GroupCommit,
    predecessor: JobId | None,
) -> GroupCommit | None:
    """The record to write; None: it is there, or another attempt of the same job has written a later one.

    Lines that write next to each other do not fence each other; jobs of one line do.

    Args:
        newest: The newest one of the log.
        seen: Number of the newest one when this committer was opened, or of its own last one. What has come
            since is of somebody else.
        mine: What is to be written, whatever its number and other lines.
        predecessor: The job whose snapshot this one was started from. One of its attempts may have been about
            to write a record when it was given up.

    Raises:
        Fenced: another job has taken over.

    >>> third = GroupCommit(
    ...     group="g", number=7, lineage="l", job="a", checkpoint=3, committed_ms=0, tables={}
    ... )
    >>> next_record(third, seen=7, mine=third, predecessor=None) is None
    True
    >>> fourth = msgspec.structs.replace(third, checkpoint=4)
    >>> next_record(third, seen=7, mine=fourth, predecessor=None).number
    8
    """
    if newest is None:
        return msgspec.structs.replace(mine, number=1)
    own = line_of(newest, mine.lineage)
    is_mine = own is not None and own.job == mine.job
    if own is not None and own.number > seen:
        if is_mine and own.checkpoint >= mine.checkpoint:
            return None
        if not is_mine and own.job != predecessor:
            raise _taken_over(mine, own.job, own.checkpoint)
    elif own is None and newest.number > seen and not (mine.appends or newest.appends):
        raise _taken_over(mine, newest.job, newest.checkpoint)
    elif own is not None and is_mine and (own.checkpoint, newest.tables) == (mine.checkpoint, mine.tables):
        return None
    return msgspec.structs.replace(mine, number=newest.number + 1, others=_others(newest, mine.lineage))


def line_of(newest: GroupCommit, lineage: LineageId | str) -> LineRecord | None:
    """The last record of a line of jobs; None: it has written none, or so long ago that it is forgotten."""
    return next((one for one in _lines(newest) if one.lineage == lineage), None)


def _lines(newest: GroupCommit) -> tuple[LineRecord, ...]:
    last = LineRecord(
        lineage=newest.lineage, job=newest.job, checkpoint=newest.checkpoint, number=newest.number
    )
    return (*newest.others, last)


def _others(newest: GroupCommit, lineage: str) -> tuple[LineRecord, ...]:
    """The newest records of the other lines, in the order in which they were last recorded, but the line that
    began the group stays the first one."""
    found = [one for one in _lines(newest) if one.lineage != lineage]
    return (*found[:1], *found[1:][-LINES_KEPT + 1 :])


def _taken_over(mine: GroupCommit, job: str, checkpoint: int) -> Fenced:
    return Fenced(
        f"commit group {mine.group!r}: job {job} has taken over, with checkpoint {checkpoint}; nothing more "
        "of this job is recorded"
    )


def check_log(options: GroupOptions, newest: GroupCommit | None, context: SinkContext) -> None:
    """When a committer is opened. Raises ConfigError: another line of jobs writes the group."""
    if not context.finalizing:
        check_lineage(options, newest, context.lineage)


def check_lineage(options: GroupOptions, newest: GroupCommit | None, lineage: LineageId | str) -> None:
    """Raises ConfigError: another line of jobs than `lineage` writes the group."""
    if newest is None or options.on_foreign == "append" or line_of(newest, lineage) is not None:
        return
    raise foreign_line(f"commit group {options.name!r}", writer=newest.job, checkpoint=str(newest.checkpoint))


def check_group_name(name: object) -> None:
    """Raises ConfigError: no folder of records, or no uid of a committer, is made of it."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= NAME_BYTES_MAX or not _is_plain(name):
        raise ConfigError(
            f"commit group: the name has letters, digits, '-', '_' and '.', at most {NAME_BYTES_MAX} bytes, "
            f"not {name!r:.80}"
        )
    if name.startswith("."):
        raise ConfigError(f"commit group: the name {name!r} begins with a dot, as hidden folders do")


def _is_plain(name: str) -> bool:
    return all(one.isalnum() or one in "-_." for one in name)
