"""Commits the members of a group, and then the record that shows them.

    tables with versions     each by its own committer, exactly once, several at the same time
    tables of a database     in one transaction, by their own committers
    record                   in that transaction, or as the last step

Killed in between, the restored committer does it again: members that are committed say so, and the others are
committed. A record that a killed attempt has written is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.connector.catalogue import committer_of as member_of
from unistream.connector.common import decode_formatted
from unistream.connector.group.logs import log_of
from unistream.port import group
from unistream.port.line import writer_of
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    JointCommitter,
    SinkContext,
    StatefulCommitter,
)

ATTEMPTS_MAX: Final = 20
"""How often a record is tried: each attempt but the last has met one of another job."""
AT_ONCE_MAX: Final = 8
"""Members whose commits are under way at a time. Each waits for its storage, most of the time."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What every snapshot has of a group: what is certainly committed. `members`: the states of their
    committers."""

    tables: dict[str, group.TableVersion] = {}
    members: dict[str, list[bytes]] = {}
    format: int = 1


_STATE: Final = msgspec.msgpack.Decoder(GroupState)


class _Member(NamedTuple):
    """A member with something to commit."""

    uid: OperatorUid
    committer: Committer
    requests: Sequence[CommitRequest]


class GroupCommitter:
    """The one committer of a group; see `unistream.port.sink.JointCommitter`.

    Args:
        options: Of the group.
        members: Their committers, not open, by uid of the sink.
    """

    is_sole = True

    def __init__(self, options: group.GroupOptions, members: Mapping[OperatorUid, Committer]) -> None:
        self._options = options
        self._members = dict(members)
        self._tables: dict[str, group.TableVersion] = {}
        self._seen = 0  # number of the newest record that is not a surprise
        self._context: SinkContext | None = None
        self._opened_members: list[Committer] = []

    @property
    def connector(self) -> str:
        return "group"

    def restore_state(self, items: Sequence[bytes]) -> None:
        for item in items:
            state = decode_formatted(_STATE, item, what="the state of a commit group")
            self._tables |= state.tables
            for uid, committer in self._members.items():
                if isinstance(committer, StatefulCommitter):
                    committer.restore_state(state.members.get(uid, []))

    def snapshot_state(self) -> Sequence[bytes]:
        states: dict[str, list[bytes]] = {
            uid: list(committer.snapshot_state())
            for uid, committer in self._members.items()
            if isinstance(committer, StatefulCommitter)
        }
        return [msgspec.msgpack.encode(GroupState(tables=self._tables, members=states))]

    def open(self, context: SinkContext) -> None:
        """Raises as the members, and ConfigError: another line of jobs writes the group."""
        self._context = context
        with closing(log_of(self._options, self._members.values())) as log:
            newest = log.newest()
        group.check_log(self._options, newest, context)
        self._seen = 0 if newest is None else newest.number
        for uid, committer in self._members.items():
            self._opened_members.append(committer)
            committer.open(replace(context, sink_uid=uid))
        found = {uid: _table_of(committer) for uid, committer in self._members.items()}
        self._tables = self._tables | {uid: table for uid, table in found.items() if table is not None}

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """Commits the requests of each member at once, and then the record that shows them.

        Raises:
            Fenced: another job writes a member, or the group.
            Unreachable: a member is committed, and its version is not known, or the log does not answer.
        """
        newest = max(request.checkpoint_id for request in requests)
        permit.require(self._opened.lineage, newest)
        work = self._divided(requests)
        with_versions = [one for one in work if not isinstance(one.committer, group.SharesTransaction)]
        results: dict[OperatorUid, CommitResult] = {}
        retry: CommitResult | None = None
        for member, result in zip(with_versions, _all_committed(permit, with_versions), strict=True):
            if result.outcome is CommitOutcome.RETRY:
                retry = retry or CommitResult(CommitOutcome.RETRY, reason=result.reason)
            else:
                results[member.uid] = self._done(member, result)
        if retry is not None:
            return retry
        shared = [one for one in self._members.values() if isinstance(one, group.SharesTransaction)]
        if shared:
            results |= self._in_transaction(shared[0], permit, work, newest)
        else:
            crash_point("group.before_record")
            with closing(log_of(self._options, ())) as log:
                self._record(log, newest)
            crash_point("group.recorded")
        return _summed(results)

    def close(self) -> None:
        opened, self._opened_members = self._opened_members, []
        for committer in opened:
            committer.close()

    def _in_transaction(
        self,
        leader: group.SharesTransaction,
        permit: CommitPermit,
        work: Sequence[_Member],
        newest: CheckpointId,
    ) -> dict[OperatorUid, CommitResult]:
        """Members of the database, and the record."""
        with leader.transaction(f"committing group {self._options.name!r}") as transaction:
            log = transaction.log(self._options.name)
            ends = [
                (member, transaction.commit(member.committer, permit, member.requests))
                for member in work
                if isinstance(member.committer, group.SharesTransaction)
            ]
            self._record(log, newest)
        return {member.uid: self._done(member, end()) for member, end in ends}

    def _record(self, log: group.GroupLog, checkpoint: CheckpointId) -> None:
        context = self._opened
        mine = group.GroupCommit(
            group=self._options.name,
            number=0,
            lineage=context.lineage,
            job=writer_of(context, checkpoint),
            checkpoint=checkpoint,
            committed_ms=int(time.time() * 1000),
            tables=dict(self._tables),
            appends=self._options.on_foreign == "append",
        )
        for _ in range(ATTEMPTS_MAX):
            newest = log.newest()
            if newest is not None and newest.lineage != context.lineage:
                self._tables = self._with_others(newest)
                mine = msgspec.structs.replace(mine, tables=dict(self._tables))
            record = group.next_record(newest, seen=self._seen, mine=mine, predecessor=context.predecessor)
            if record is None:
                assert newest is not None, "it is there"
                self._seen = newest.number
                return
            if log.append(record):
                self._seen = record.number
                return
        raise Unreachable(f"commit group {self._options.name!r}: others write its log at the same time")

    def _with_others(self, newest: group.GroupCommit) -> dict[str, group.TableVersion]:
        """The newest versions: another line of jobs has named some that may be behind those of this one, or
        before them, and readers never see less than before."""
        found = {
            uid: committer.newest_version()
            for uid, committer in self._members.items()
            if isinstance(committer, group.JoinsGroup)
        }
        return (
            newest.tables | self._tables | {uid: table for uid, table in found.items() if table is not None}
        )

    def _done(self, member: _Member, result: CommitResult) -> CommitResult:
        """Notes the version of a member that is committed."""
        if result.failed or result.outcome is CommitOutcome.FAILED:
            raise ProtocolError(f"sink {member.uid!r} of a commit group leaves rows out: {result.reason}")
        table = _table_of(member.committer)
        if table is None and result.outcome is CommitOutcome.COMMITTED:
            raise Unreachable(f"sink {member.uid!r} is committed, but the version of its table is not known")
        if table is not None:
            version = table.version if result.table_version is None else result.table_version
            self._tables = {**self._tables, member.uid: msgspec.structs.replace(table, version=version)}
        return result

    def _divided(self, requests: Sequence[CommitRequest]) -> list[_Member]:
        """The requests divided by member, in their order. Raises ConfigError: one is not in the group any
        more."""
        found: dict[str, dict[CheckpointId, list[bytes]]] = {}
        for request in requests:
            for payload in request.committables:
                one = group.decode_member(payload)
                found.setdefault(one.sink_uid, {}).setdefault(request.checkpoint_id, []).append(one.payload)
        for uid in found.keys() - self._members.keys():
            raise ConfigError(
                f"commit group {self._options.name!r}: the restored checkpoint has output of sink {uid!r}, "
                "which is not in the group; commit it first, with `unistream savepoint finalize`, or bring "
                "the sink back"
            )
        return [
            _Member(
                uid,
                committer,
                tuple(CommitRequest(one, tuple(payloads)) for one, payloads in sorted(found[uid].items())),
            )
            for uid, committer in self._members.items()
            if uid in found
        ]

    @property
    def _opened(self) -> SinkContext:
        assert self._context is not None, "the committer is not open"
        return self._context


def committer_of(committables: Sequence[bytes]) -> GroupCommitter:
    """The committer for committables of a snapshot, see `unistream.connector.catalogue`. Members that have
    none are left as they are.

    Raises:
        ConfigError: a member can only be committed by the pipeline.
        CorruptSnapshot: a committable cannot be read.
    """
    found = [group.decode_member(one) for one in committables]
    members: dict[OperatorUid, Committer] = {}
    for uid in dict.fromkeys(one.sink_uid for one in found):
        mine = [one for one in found if one.sink_uid == uid]
        if not mine[0].connector:
            raise ConfigError(f"sink {uid!r} is a user's own; name its pipeline (--pipeline MODULE:FUNCTION)")
        members[OperatorUid(uid)] = member_of(mine[0].connector, [one.payload for one in mine])
    return GroupCommitter(found[0].options, members)


def _all_committed(permit: CommitPermit, members: Sequence[_Member]) -> list[CommitResult]:
    """Commits each member in a transaction of its own, at the same time; their results, in their order.
    Returns, or raises the first error, when all have ended."""

    def commit(member: _Member) -> CommitResult:
        result = _joint(member)(permit, member.requests)
        if result.outcome is not CommitOutcome.RETRY:
            crash_point("group.member_committed")
        return result

    if len(members) < 2:
        return [commit(one) for one in members]
    with ThreadPoolExecutor(min(len(members), AT_ONCE_MAX), thread_name_prefix="group-commit") as pool:
        return list(pool.map(commit, members))


def _joint(member: _Member) -> Callable[[CommitPermit, Sequence[CommitRequest]], CommitResult]:
    if not isinstance(member.committer, JointCommitter):
        raise ProtocolError(f"sink {member.uid!r} of a commit group commits checkpoint by checkpoint")
    return member.committer.commit_all


def _table_of(committer: Committer) -> group.TableVersion | None:
    return committer.table_version() if isinstance(committer, group.JoinsGroup) else None


def _summed(results: Mapping[OperatorUid, CommitResult]) -> CommitResult:
    done = {result.outcome for result in results.values()}
    is_new = CommitOutcome.COMMITTED in done or not done
    return CommitResult(
        CommitOutcome.COMMITTED if is_new else CommitOutcome.ALREADY_COMMITTED,
        rows=sum(result.rows for result in results.values()),
        members=tuple(results.items()),
    )
