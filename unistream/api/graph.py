"""The stream graph under construction, with schemas and uids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from unistream.api.call_site import call_site
from unistream.api.commit_group import GroupMember, add_group_committers
from unistream.api.projection import Schemas, narrow_sources, select_in_sources
from unistream.api.slots import SlotSharingGroup
from unistream.base.config import OFFLOAD_BOUNDED
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.base.limits import KEY_GROUPS_MAX, PARALLELISM_MAX
from unistream.core.graph import check_group_name
from unistream.model.columns.column_names import refused_names
from unistream.model.columns.event_time import is_event_time
from unistream.model.graph import Ship, SourceInfo
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.common import AssignTimestampsAndWatermarks
from unistream.operator.process import KeyedBatchOperator, KeyedProcessOperator, ProcessOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import DEAD_LETTERS_TAG

if TYPE_CHECKING:
    from unistream.client.remote.job_client import JobClient


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a node: its main one or the side output `tag`.

    Attributes:
        ship: None: forward if possible.
        partition: None: by `execution.runtime-mode`.
        key_columns: By which it ships, if it does so by key.
    """

    node: int
    tag: str | None = None
    ship: Ship | None = None
    partition: PartitionType | None = None
    key_columns: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """It has no settings of an exchange, so it represents the operator itself."""
        return self.ship is None and self.partition is None


@dataclass(slots=True)
class GraphBuilder:
    """Nodes and edges as the user adds them.

    Attributes:
        started: Starts the pipeline under a name, with these options for this time; inside it runs.
        follows: Node -> node whose parallelism it takes when the graph is read, so that the two chain.
        profiles: Slot sharing group -> resources of one slot, if they are given.
        registered: Registered slot sharing groups; None: there are none, so any name makes a group.
        schemas: (node, tag) -> schema of a side output, or with None of the main one, if it is known.
        offloads: A bounded part of a stream runs before it.
        group_members: Sinks of commit groups; their committers are added when the graph is read.
        looked_at: Nodes that have run for a look (`execute_and_collect`, …); those that lead to nothing else
            are left out of the job.
        look: The first node of the look that is running; None: none is.
    """

    started: Callable[[str | None, Mapping[str, str]], AbstractContextManager[JobClient]]
    graph: StreamGraph = field(default_factory=StreamGraph)
    follows: dict[int, int] = field(default_factory=dict)
    profiles: dict[str, ResourceProfile] = field(default_factory=dict)
    registered: set[str] | None = None
    schemas: dict[tuple[int, str | None], pa.Schema | None] = field(default_factory=dict)
    offloads: bool = False
    group_members: list[GroupMember] = field(default_factory=list)
    looked_at: set[int] = field(default_factory=set)
    look: int | None = None

    def add(
        self,
        name: str,
        operator: object,
        inputs: Sequence[Sequence[Port]] = (),
        *,
        stateful: bool = False,
        ship: Ship | None = None,
        key_columns: Sequence[str] = (),
        committables: bool = False,
    ) -> StreamNode:
        """A node whose logical input i is fed by all ports of `inputs[i]`; `ship` replaces theirs."""
        node = StreamNode(
            id=len(self.graph.nodes),
            name=name,
            operator=operator,
            inputs=len(inputs),
            stateful=stateful,
            declared_at=call_site(),
        )
        self.graph.nodes.append(node)
        for index, ports in enumerate(inputs):
            for port in ports:
                shipped = ship or port.ship
                edge = StreamEdge(
                    source=port.node,
                    target=node.id,
                    input_index=index,
                    ship=shipped,
                    key_columns=(tuple(key_columns) or port.key_columns) if shipped is Ship.HASH else (),
                    tag=port.tag,
                    partition=port.partition,
                    committables=committables,
                )
                self.graph.edges.append(edge)
        return node

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What is added to the graph inside is a look: until it is removed again, the pipeline is what leads
        to it, and nothing else."""
        nodes, edges, follows = len(self.graph.nodes), len(self.graph.edges), dict(self.follows)
        members = len(self.group_members)
        self.look = nodes
        try:
            yield
        finally:
            self.looked_at |= {node for node in self.used() if node < nodes}
            self.look = None
            del self.graph.nodes[nodes:]
            del self.graph.edges[edges:]
            del self.group_members[members:]
            self.follows = follows

    def used(self) -> frozenset[int]:
        """The nodes that run: those of the look, or all but those that only looks have read."""
        nodes = range(len(self.graph.nodes))
        if self.look is not None:
            return self.graph.upstream(nodes[self.look :])
        return self.graph.upstream(node for node in nodes if node not in self.looked_at) or frozenset(nodes)

    def followed(self) -> dict[int, int]:
        """`follows`, by the ids of the finished graph."""
        ids = {old: new for new, old in enumerate(sorted(self.used()))}
        return {ids[one]: ids[other] for one, other in self.follows.items() if one in ids}

    def sources(self) -> list[StreamNode]:
        """The sources among the nodes that run."""
        return [self.graph.nodes[n] for n in sorted(self.used()) if self.graph.nodes[n].source is not None]

    def check_same(self, other: GraphBuilder) -> None:
        """Raises ConfigError unless `other` is this one."""
        if other is not self:
            raise ConfigError("streams of different environments cannot be combined")

    def set_uid(self, node: StreamNode, uid: str) -> None:
        """Raises ConfigError if another operator has it, or it is no text."""
        if not isinstance(uid, str):
            raise ConfigError(f"operator {node.name!r}: a uid is text, not {uid!r}")
        if not uid or len(uid) > UID_LENGTH_MAX:
            raise ConfigError(f"a uid has 1 to {UID_LENGTH_MAX} characters, not {len(uid)}")
        if not uid.isprintable():
            raise ConfigError(f"uid {uid!r} contains a line break or another control character")
        for other in self.graph.nodes:
            if other.uid == uid and other is not node:
                raise ConfigError(
                    f"uid {uid!r} is given to two operators, {other.name!r} and {node.name!r}; each needs "
                    "its own, because state is found by uid"
                )
        node.uid = OperatorUid(uid)

    def declare(self, group: str | SlotSharingGroup) -> str:
        """Name of the group; its resources are kept.

        Raises:
            ConfigError: it is not a group, has no name or a reserved one, or had other resources before.
        """
        if isinstance(group, str):
            if not group:
                raise ConfigError("a slot sharing group needs a name")
            check_group_name(group)
            return group
        if not isinstance(group, SlotSharingGroup):
            raise ConfigError(f"a slot sharing group is a name or a SlotSharingGroup, not {group!r}")
        profile = group.profile
        if not profile.is_unknown and self.profiles.setdefault(group.name, profile) != profile:
            raise ConfigError(
                f"slot sharing group {group.name!r} is given two different resource profiles, "
                f"{self.profiles[group.name]} and {profile}; create its SlotSharingGroup(...) once"
            )
        if self.registered is not None:
            self.registered.add(group.name)
        return group.name

    def register(self, group: SlotSharingGroup) -> None:
        """Registers a group; from now on operators may only use registered ones."""
        self.registered = self.registered or set(self.profiles)
        self.declare(group)

    def finished(self, name: str) -> StreamGraph:
        """A copy of the graph as it is now, whose sources leave out what nobody uses."""
        return self.finished_with_schemas(name)[0]

    def finished_with_schemas(self, name: str) -> tuple[StreamGraph, Schemas]:
        """A copy of the graph as `finished` makes it, and the schemas of its outputs, by its ids."""
        nodes = [replace(node) for node in self.graph.nodes]
        for follower, leader in sorted(self.follows.items()):
            nodes[follower].parallelism = nodes[leader].parallelism
            nodes[follower].max_parallelism = nodes[leader].max_parallelism
        whole = StreamGraph(
            name=name,
            nodes=nodes,
            edges=list(self.graph.edges),
            profiles=dict(self.profiles),
            registered_groups=None if self.registered is None else frozenset(self.registered),
        )
        found, ids = whole.part(self.used())
        schemas = {(ids[node], tag): schema for (node, tag), schema in self.schemas.items() if node in ids}
        members = [replace(one, node=ids[one.node]) for one in self.group_members if one.node in ids]
        add_group_committers(found, members)
        select_in_sources(found, schemas)
        narrow_sources(found, schemas)
        return found, schemas

    def check_side_output(self, node: StreamNode, tag: str) -> None:
        """Raises ConfigError if the operator can send no rows to it."""
        declared = sorted(other for at, other in self.schemas if at == node.id and other is not None)
        free = isinstance(node.operator, _WITH_ANY_TAG) and not set(declared) - {DEAD_LETTERS_TAG}
        if tag in declared or (free and tag != DEAD_LETTERS_TAG):
            return
        if tag == DEAD_LETTERS_TAG:
            why = 'it sends none: give it on_error="dead-letter" (a source: on_bad_record="dead-letter")'
        elif declared:
            why = f"it has {', '.join(map(repr, declared))}"
        else:
            why = "it has none"
        raise ConfigError(f"get_side_output: {node.name!r} has no side output {tag!r}; {why}")

    def check_complete_before_time(self, ports: Sequence[Port], what: str) -> None:
        """Raises ConfigError unless the stream is bounded and has no watermark before its end. A bounded part
        of the job has none; whether the stream is in that is checked with the whole graph."""
        for node in self.upstream(ports):
            operator = node.operator
            if isinstance(operator, AssignTimestampsAndWatermarks):
                self._refuse_in_stream(
                    node, f"{what}: {node.name!r} assigns watermarks; a dimension must have none"
                )
            if not isinstance(operator, SourceOperatorSpec):
                continue
            if node.source is not None and not node.source.bounded:
                raise ConfigError(
                    f"{what}: source {node.name!r} is unbounded, so rows without a match would wait for "
                    "ever; a dimension must be bounded"
                )
            strategy = operator.watermarks
            if strategy.out_of_orderness_ms is not None or strategy.idle_ms is not None:
                self._refuse_in_stream(
                    node,
                    f"{what}: source {node.name!r} of the dimension has watermarks or idleness; use "
                    "WatermarkStrategy.no_watermarks(), so that event time waits until it is read",
                )

    def _refuse_in_stream(self, node: StreamNode, why: str) -> None:
        if not self.offloads:
            raise ConfigError(f"{why}; or set {OFFLOAD_BOUNDED.key}, so that it is read as in a BATCH job")
        node.needs_batch_form = why

    def reads_splits_in_turn(self, ports: Sequence[Port]) -> bool:
        """A source of the stream reads its splits in turn, in an order that is not that of time.

        Raises:
            ConfigError: and after those it goes on for ever, so that there would never be a watermark.
        """
        found = False
        for node in self.upstream(ports):
            source = node.source
            if source is None or not any(map(_reads_in_turn, source.phases or (source,))):
                continue
            if not source.bounded:
                raise ConfigError(
                    f"assign_timestamps_and_watermarks: the history of source {node.name!r} is read in the "
                    "order of its splits, so event times have to be known there: pass the strategy to "
                    "from_source, or use a history that is in_order"
                )
            found = True
        return found

    def upstream(self, ports: Sequence[Port]) -> list[StreamNode]:
        """The nodes that make these streams."""
        return [self.graph.nodes[n] for n in sorted(self.graph.upstream(port.node for port in ports))]


_WITH_ANY_TAG: Final = (KeyedBatchOperator, KeyedProcessOperator, ProcessOperator, type(None))
"""What their functions emit to is known when they run. None: the operator is not known either."""


def _reads_in_turn(source: SourceInfo) -> bool:
    return source.bounded and source.pull and not source.in_order


UID_LENGTH_MAX = 512
NODE_NAME_LENGTH_MAX = 1_000


def check_parallelism(parallelism: int, max_parallelism: int | None, what: str) -> int:
    """Raises ConfigError unless 1 <= parallelism <= max_parallelism and both are within the limits."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int):
        raise ConfigError(f"{what}: parallelism {parallelism!r} is not a whole number")
    if not 1 <= parallelism <= PARALLELISM_MAX:
        raise ConfigError(
            f"{what}: parallelism {parallelism} is not between 1 and {PARALLELISM_MAX}; change "
            "set_parallelism(...) or parallelism.default"
        )
    if max_parallelism is not None and parallelism > max_parallelism:
        raise ConfigError(
            f"{what}: parallelism {parallelism} is above the max parallelism {max_parallelism}; change "
            "set_parallelism(...) or set_max_parallelism(...)"
        )
    return parallelism


def check_max_parallelism(max_parallelism: int, parallelism: int | None, what: str) -> int:
    """Raises ConfigError unless parallelism <= max_parallelism <= number of key groups there can be."""
    if isinstance(max_parallelism, bool) or not isinstance(max_parallelism, int):
        raise ConfigError(f"{what}: max parallelism {max_parallelism!r} is not a whole number")
    if not 1 <= max_parallelism <= KEY_GROUPS_MAX:
        raise ConfigError(f"{what}: max parallelism {max_parallelism} is not between 1 and {KEY_GROUPS_MAX}")
    if parallelism is not None and parallelism > max_parallelism:
        raise ConfigError(f"{what}: max parallelism {max_parallelism} is below the parallelism {parallelism}")
    return max_parallelism


def check_node_name(name: str) -> str:
    """Raises ConfigError unless a line of a log can have it."""
    if not isinstance(name, str) or not 0 < len(name) <= NODE_NAME_LENGTH_MAX or not name.isprintable():
        raise ConfigError(
            f"an operator's name has 1 to {NODE_NAME_LENGTH_MAX} printable characters, not {name!r:.80}"
        )
    return name


def check_columns(schema: pa.Schema | None, columns: Sequence[str], what: str) -> None:
    """Raises ConfigError if the schema is known and a column is not in it."""
    for column in columns:
        if schema is not None and column not in schema.names:
            raise ConfigError(f"{what}: there is no column {column!r} among {', '.join(schema.names)}")


def check_names(names: Sequence[str], what: str) -> None:
    """Raises ConfigError if two columns have one name."""
    why = refused_names(names)
    if why is not None:
        raise ConfigError(f"{what}: its rows have {why}")


def check_timestamp_column(schema: pa.Schema | None, column: str, what: str) -> None:
    """Raises ConfigError if the schema is known and the column is not in it, or has no event times."""
    check_columns(schema, [column], what)
    if schema is not None and not is_event_time(schema.field(column).type):
        raise ConfigError(
            f"{what}: the timestamp column {column!r} is {schema.field(column).type}; it must be int64 "
            "milliseconds, or an Arrow timestamp or date"
        )
