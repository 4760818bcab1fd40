"""The stream graph: one node per operator, before chaining. Built by the API; only the client has it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from unistream.base.ids import OperatorUid
from unistream.model.graph import Ship, SourceInfo
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile

DEFAULT_SLOT_SHARING_GROUP: Final = "default"


class ChainingStrategy(Enum):
    """Whether an operator may share a task with its neighbours."""

    ALWAYS = "ALWAYS"  # with the one before it and with those behind it
    HEAD = "HEAD"  # only with those behind it: it starts a chain
    NEVER = "NEVER"  # with none
    HEAD_WITH_SOURCES = "HEAD_WITH_SOURCES"  # as HEAD, but a source may be before it

    def takes(self, *, source: bool) -> bool:
        """The operator may be put behind its producer, which is a source or not."""
        return self is ChainingStrategy.ALWAYS or (self is ChainingStrategy.HEAD_WITH_SOURCES and source)


class StreamExchangeMode(Enum):
    """How a user can set one exchange."""

    PIPELINED = "PIPELINED"  # read while it is written
    BATCH = "BATCH"  # read when all of it has been written
    HYBRID_FULL = "HYBRID_FULL"  # not implemented
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"  # not implemented
    UNDEFINED = "UNDEFINED"  # by the mode of the job

    @property
    def partition(self) -> PartitionType | None:
        """Type of the exchange; None: it depends on the job."""
        return _PARTITIONS.get(self)


_PARTITIONS: Final = {
    StreamExchangeMode.PIPELINED: PartitionType.PIPELINED_BOUNDED,
    StreamExchangeMode.BATCH: PartitionType.BLOCKING,
    StreamExchangeMode.HYBRID_FULL: PartitionType.HYBRID_FULL,
    StreamExchangeMode.HYBRID_SELECTIVE: PartitionType.HYBRID_SELECTIVE,
}


class GlobalStreamExchangeMode(Enum):
    """Which exchanges of a job are pipelined, unless they have a mode of their own."""

    ALL_EDGES_BLOCKING = "ALL_EDGES_BLOCKING"
    FORWARD_EDGES_PIPELINED = "FORWARD_EDGES_PIPELINED"
    POINTWISE_EDGES_PIPELINED = "POINTWISE_EDGES_PIPELINED"
    ALL_EDGES_PIPELINED = "ALL_EDGES_PIPELINED"

    def partition(self, ship: Ship) -> PartitionType:
        """The type of an exchange that ships in this way."""
        pipelined = {
            GlobalStreamExchangeMode.ALL_EDGES_PIPELINED: True,
            GlobalStreamExchangeMode.POINTWISE_EDGES_PIPELINED: ship.is_pointwise,
            GlobalStreamExchangeMode.FORWARD_EDGES_PIPELINED: ship is Ship.FORWARD,
            GlobalStreamExchangeMode.ALL_EDGES_BLOCKING: False,
        }[self]
        return PartitionType.PIPELINED_BOUNDED if pipelined else PartitionType.BLOCKING


@dataclass(slots=True, kw_only=True)
class StreamNode:
    """One operator.

    Attributes:
        id: Position in the order of creation; a node's inputs have smaller ids.
        operator: see `ChainNode.operator`.
        uid: Given by the user, or None: then derived from name and position at translation.
        uid_name: The name from which it is derived, where the one that people read has become another one;
            empty: it has not.
        parallelism: None = the default of the environment.
        max_parallelism: None = that of the job, or derived from the parallelism.
        slot_sharing_group: None = that of its inputs if they agree, else ``default``.
        colocation_group: Subtasks i of the vertices with the same name here run in one slot; None: anywhere.
        sink: The writer of the sink that it belongs to; None: it is of none.
        records_positions: A committer that records the positions of sources with its commits.
        endless: Its source stands for one that is unbounded, as in simulations.
        left_out: Of a source: its columns that nobody uses, and that it does not give.
        selection: Of a source: true for the rows that its readers need; empty: all of them.
        expression: What it computes or keeps, where that is said by expressions; empty: by a function.
        needs_batch_form: It may have no watermark before its end: the error if it has.
        declared_at: ``FILE:LINE`` of the user's program that has added it; empty: nobody knows.
    """

    id: int
    name: str
    operator: object
    uid: OperatorUid | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    slot_sharing_group: str | None = None
    colocation_group: str | None = None
    endless: bool = False
    needs_batch_form: str | None = None
    left_out: tuple[str, ...] = ()
    selection: str = ""
    expression: str = ""
    source: SourceInfo | None = None
    inputs: int = 1
    stateful: bool = False
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    sink: int | None = None
    records_positions: bool = False
    declared_at: str = ""
    uid_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEdge:
    """Rows of `source` (its side output `tag`, or the main one) feed input `input_index` of `target`.

    Attributes:
        ship: None: forward when parallelism is equal, else rebalance.
        partition: None: by the mode of the job.
        committables: It carries a sink's committables. No barrier overtakes them, and in a batch job the
            master keeps them, so that a committer that restarts commits the same ones.
    """

    source: int
    target: int
    input_index: int = 0
    ship: Ship | None = None
    key_columns: tuple[str, ...] = ()
    tag: str | None = None
    partition: PartitionType | None = None
    committables: bool = False


@dataclass(slots=True, kw_only=True)
class StreamGraph:
    """The whole pipeline of one `Environment`.

    Attributes:
        profiles: Slot sharing group -> resources of one slot, if they are given.
        registered_groups: Groups that operators may use; None: any name makes a group.
        exchange_mode: Which exchanges are pipelined; None: by ``execution.runtime-mode``.
    """

    name: str = "unistream job"
    nodes: list[StreamNode] = field(default_factory=list)
    edges: list[StreamEdge] = field(default_factory=list)
    profiles: dict[str, ResourceProfile] = field(default_factory=dict)
    registered_groups: frozenset[str] | None = None
    exchange_mode: GlobalStreamExchangeMode | None = None

    def upstream(self, of: Iterable[int]) -> frozenset[int]:
        """These nodes, and all whose rows reach them."""
        found: set[int] = set()
        new = set(of)
        while new:
            found |= new
            new = {edge.source for edge in self.edges if edge.target in new} - found
        return frozenset(found)

    def dangling(self) -> list[StreamNode]:
        """The nodes whose rows go nowhere: nobody reads an output of theirs, and they are of no sink."""
        read = {edge.source for edge in self.edges}
        return [node for node in self.nodes if node.id not in read and node.sink is None]

    def part(self, nodes: Collection[int]) -> tuple[StreamGraph, Mapping[int, int]]:
        """A graph of these nodes alone, with copies of them, and old id -> new one: they are in the same
        order."""
        ids = {old: new for new, old in enumerate(sorted(nodes))}
        kept = [
            replace(node, id=ids[node.id], sink=None if node.sink is None else ids.get(node.sink))
            for node in self.nodes
            if node.id in ids
        ]
        edges = [
            replace(edge, source=ids[edge.source], target=ids[edge.target])
            for edge in self.edges
            if edge.source in ids and edge.target in ids
        ]
        return replace(self, nodes=kept, edges=edges), ids
