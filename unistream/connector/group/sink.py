"""The members of a group, as one sink to their committer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pyarrow as pa

from unistream.base.errors import ProtocolError
from unistream.base.ids import OperatorUid
from unistream.connector.group.committer import GroupCommitter
from unistream.connector.group.logs import log_of
from unistream.connector.group.members import check_group
from unistream.port.group import GroupOptions, MemberCommittable, check_lineage
from unistream.port.line import LineCommit
from unistream.port.sink import Committer, RecoverableCommitter, Sink, SinkWriter


class GroupSink:
    """See `unistream.port.sink.Sink`. Its writers are those of the members.

    Args:
        options: Of the group.
        members: By uid of the sink, in the order in which they are committed.

    Raises:
        ConfigError: a member cannot be in a group.
    """

    global_committer = True

    def __init__(self, options: GroupOptions, members: Mapping[OperatorUid, Sink]) -> None:
        self._options = options
        self._members = dict(members)
        made = self._committers()
        check_group(options.name, made)
        self._connectors = {
            uid: one.connector if isinstance(one, RecoverableCommitter) else "" for uid, one in made.items()
        }

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def members(self) -> tuple[OperatorUid, ...]:
        return tuple(self._members)

    def wrapped(self, member: OperatorUid, payload: bytes) -> bytes:
        """A committable of a member, as one of the group."""
        return MemberCommittable(
            options=self._options, sink_uid=member, connector=self._connectors[member], payload=payload
        ).encoded()

    def check(self, schema: pa.Schema | None) -> None:
        """Does nothing: each member checks what it gets."""

    def check_new_line(self, lineage: str = "") -> None:
        """See `unistream.port.line.KeepsLine`."""
        with closing(log_of(self._options, self._committers().values())) as log:
            check_lineage(self._options, log.newest(), lineage)

    def last_commit(self, sink_uid: str) -> LineCommit | None:
        """See `unistream.port.line.KeepsLine`: each member knows its own."""
        return None

    def create_writer(self) -> SinkWriter:
        raise ProtocolError(f"commit group {self.name!r}: its members have the writers")

    def create_committer(self) -> Committer:
        return GroupCommitter(self._options, self._committers())

    def _committers(self) -> dict[OperatorUid, Committer]:
        """Makes the committers of the members, which are not open."""
        made = {uid: sink.create_committer() for uid, sink in self._members.items()}
        return {uid: one for uid, one in made.items() if one is not None}
