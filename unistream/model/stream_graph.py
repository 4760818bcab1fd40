"""What the user wrote: one node per operator, before chaining. Built by the API, held by the client only."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """What a user can ask of one exchange."""

    PIPELINED = "PIPELINED"  # read while it is written
    BATCH = "BATCH"  # read when all of it has been written
    HYBRID_FULL = "HYBRID_FULL"  # known by name, not built
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"  # known by name, not built
    UNDEFINED = "UNDEFINED"  # as the mode of the whole job says

    @property
    def partition(self) -> PartitionType | None:
        """What it makes of an exchange; None: it depends on the job."""
        return _PARTITIONS.get(self)


_PARTITIONS: Final = {
    StreamExchangeMode.PIPELINED: PartitionType.PIPELINED_BOUNDED,
    StreamExchangeMode.BATCH: PartitionType.BLOCKING,
    StreamExchangeMode.HYBRID_FULL: PartitionType.HYBRID_FULL,
    StreamExchangeMode.HYBRID_SELECTIVE: PartitionType.HYBRID_SELECTIVE,
}


class GlobalStreamExchangeMode(Enum):
    """Which exchanges of a job are pipelined, where the exchange itself says nothing."""

    ALL_EDGES_BLOCKING = "ALL_EDGES_BLOCKING"
    FORWARD_EDGES_PIPELINED = "FORWARD_EDGES_PIPELINED"
    POINTWISE_EDGES_PIPELINED = "POINTWISE_EDGES_PIPELINED"
    ALL_EDGES_PIPELINED = "ALL_EDGES_PIPELINED"

    def partition(self, ship: Ship) -> PartitionType:
        """The type of an exchange that ships in this way."""
        match self:
            case GlobalStreamExchangeMode.ALL_EDGES_PIPELINED:
                pipelined = True
            case GlobalStreamExchangeMode.POINTWISE_EDGES_PIPELINED:
                pipelined = ship.is_pointwise
            case GlobalStreamExchangeMode.FORWARD_EDGES_PIPELINED:
                pipelined = ship is Ship.FORWARD
            case GlobalStreamExchangeMode.ALL_EDGES_BLOCKING:
                pipelined = False
        return PartitionType.PIPELINED_BOUNDED if pipelined else PartitionType.BLOCKING


@dataclass(slots=True, kw_only=True)
class StreamNode:
    """One operator.

    Attributes:
        id: Position in the order of creation; a node's inputs have smaller ids.
        operator: see `ChainNode.operator`.
        uid: Given by the user, or None: then derived from name and position at translation.
        parallelism: None = the default of the environment.
        max_parallelism: None = that of the job, or derived from the parallelism.
        slot_sharing_group: None = that of its inputs if they agree, else ``default``.
        colocation_group: Subtasks i of the vertices with the same name here run in one slot; None: anywhere.
    """

    id: int
    name: str
    operator: object
    uid: OperatorUid | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    slot_sharing_group: str | None = None
    colocation_group: str | None = None
    source: SourceInfo | None = None
    inputs: int = 1
    stateful: bool = False
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEdge:
    """Rows of `source` (its side output `tag`, or the main one) feed input `input_index` of `target`.

    Attributes:
        ship: None: forward when parallelism is equal, else rebalance.
        partition: None: as the mode of the whole job says.
        committables: It carries what a sink has prepared to what commits it. No barrier overtakes it, and in
            a batch job it is stored, so that a committer that runs again commits the same once more.
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
    """Everything that one `Environment` was told.

    Attributes:
        profiles: What one slot of a slot sharing group needs, where that was told.
        registered_groups: Names that operators may refer to; None: any name makes a group.
        exchange_mode: Which exchanges are pipelined; None: as ``execution.runtime-mode`` says.
    """

    name: str = "unistream job"
    nodes: list[StreamNode] = field(default_factory=list)
    edges: list[StreamEdge] = field(default_factory=list)
    profiles: dict[str, ResourceProfile] = field(default_factory=dict)
    registered_groups: frozenset[str] | None = None
    exchange_mode: GlobalStreamExchangeMode | None = None
