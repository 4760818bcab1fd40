"""Sinks whose commits become visible together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.model.graph import Ship
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.sink import GroupCommitterOperator, SinkWriterOperator
from unistream.port.group import GroupOptions, SharesTransaction, check_group_name
from unistream.port.line import OnForeign, check_on_foreign
from unistream.port.sink import Sink, WithGlobalCommitter, WithPostCommitStages, WithPreCommitStages


class CommitGroup:
    """Sinks of one pipeline whose rows of a checkpoint become visible together.

    Each sink stages its rows as ever. One committer commits them all, and then writes a record: which
    checkpoint every table has, and at which version. Readers that take the newest record (`read_group`, or
    ``unistream group show``) and read each table at that version see all tables as of one checkpoint, always.
    Tables of a database (`SqlSink`) and the record are one transaction, so their readers need no record.

    A member has versions that readers can choose (`unistream.port.group.JoinsGroup`); those of SQL are all in
    one database, which has the record too.

    Args:
        name: Of the group: at most 200 letters, digits, ``-``, ``_`` and ``.``. Its committer has the uid
            ``<name>-committer``, so it is as stable as a uid.
        location: Folder or URL of the records, ``<location>/<name>/``; None: in the database of the members.
        on_foreign: If another line of jobs writes the group: "refuse" to start, or "append".

    Raises:
        ConfigError: an argument is wrong.

    >>> import unistream as us
    >>> env = us.Environment()
    >>> orders = env.from_collection([{"id": 1, "paid": 3}], name="orders")
    >>> group = us.CommitGroup("shop", "/lake/groups")
    >>> _ = orders.sink_to(us.DeltaSink("/lake/orders"), group=group).uid("orders")
    >>> _ = orders.select("id").sink_to(us.DeltaSink("/lake/ids"), group=group).uid("ids")
    >>> [node.name for node in env.stream_graph().nodes][-1]
    'shop committer'
    """

    def __init__(self, name: str, location: str | None = None, *, on_foreign: OnForeign = "refuse") -> None:
        check_group_name(name)
        check_on_foreign(on_foreign)
        self.name = name
        self.location = location
        self.on_foreign = on_foreign

    def __repr__(self) -> str:
        return f"CommitGroup({self.name!r}, {self.location!r})"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A sink of a group: its writer, whose `sink_uid` may still change."""

    group: CommitGroup
    node: int
    writer: SinkWriterOperator

    @property
    def uid(self) -> OperatorUid:
        assert self.writer.sink_uid is not None, "each sink has one"
        return self.writer.sink_uid


def check_member(group: CommitGroup, sink: Sink) -> None:
    """Raises ConfigError: it is no group, or the sink cannot be in one."""
    from unistream.connector.group import check_group

    if not isinstance(group, CommitGroup):
        raise ConfigError(f"sink_to: group takes a us.CommitGroup(...), not {group!r:.200}")
    if isinstance(sink, WithPreCommitStages | WithPostCommitStages | WithGlobalCommitter):
        raise ConfigError(
            f"commit group {group.name!r}: sink {sink.name!r} has stages before or after its committer, and "
            "members of a group have none"
        )
    check_group(group.name, {OperatorUid(sink.name): sink.create_committer()})


def add_group_committers(graph: StreamGraph, members: Iterable[GroupMember]) -> None:
    """Adds the committer of each group to `graph`, behind the writers of its members.

    Raises:
        ConfigError: the members do not fit together, or an operator has the uid of a committer.
    """
    of_group: dict[str, list[GroupMember]] = {}
    for member in members:
        of_group.setdefault(member.group.name, []).append(member)
    for name, found in of_group.items():
        _add_committer(graph, name, found)


def _add_committer(graph: StreamGraph, name: str, members: list[GroupMember]) -> None:
    from unistream.connector.group import GroupSink

    uid = OperatorUid(f"{name}-committer")
    if any(node.uid == uid for node in graph.nodes):
        raise ConfigError(
            f"commit group {name!r}: uid {uid!r}, which its committer has, is given to an operator"
        )
    sinks = {member.uid: member.writer.sink for member in members}
    if len(sinks) < len(members):
        raise ConfigError(f"commit group {name!r}: two of its sinks have one uid; give each its own")
    operator = GroupCommitterOperator(GroupSink(_options(name, members), sinks), OperatorUid(name))
    operator.belongs_to = OperatorUid(name)
    first = graph.nodes[members[0].node]
    node = StreamNode(
        id=len(graph.nodes),
        name=f"{name} committer",
        operator=operator,
        inputs=len(members),
        stateful=True,
        parallelism=1,
        uid=uid,
        slot_sharing_group=first.slot_sharing_group,
        declared_at=first.declared_at,
    )
    node.sink = first.id
    graph.nodes.append(node)
    graph.edges += [
        StreamEdge(source=member.node, target=node.id, input_index=index, ship=Ship.GLOBAL, committables=True)
        for index, member in enumerate(members)
    ]


def _options(name: str, members: list[GroupMember]) -> GroupOptions:
    """Raises ConfigError: two groups of one name, databases that differ, or nowhere for the records."""
    from unistream.connector.common import absolute

    group = members[0].group
    for member in members:
        other = member.group
        if (other.location, other.on_foreign) != (group.location, group.on_foreign):
            raise ConfigError(f"commit group {name!r}: there are two of that name; give sink_to the same one")
    databases: dict[str, str] = {}
    for member in members:
        committer = member.writer.sink.create_committer()
        if isinstance(committer, SharesTransaction):
            databases.setdefault(committer.database_url(), member.uid)
    if len(databases) > 1:
        places = " and ".join(f"{uid!r} in {where}" for where, uid in databases.items())
        raise ConfigError(
            f"commit group {name!r}: its SQL sinks are in several databases ({places}), which have no common "
            "transaction"
        )
    if databases and group.location is not None:
        raise ConfigError(
            f"commit group {name!r}: the records of a group with a SQL sink are in its database, so leave "
            f"out location={group.location!r}"
        )
    if not databases and group.location is None:
        raise ConfigError(
            f"commit group {name!r}: where are its records to be? CommitGroup({name!r}, '/lake/groups')"
        )
    return GroupOptions(
        name=name,
        location="" if group.location is None else absolute(group.location),
        database=next(iter(databases), ""),
        on_foreign=group.on_foreign,
    )
