"""What the user wrote: one node per operator, before chaining. Built by the API, held by the client only."""

from __future__ import annotations

from dataclasses import dataclass, field

from unistream.base.ids import OperatorUid
from unistream.model.graph import Ship, SourceInfo


@dataclass(slots=True, kw_only=True)
class StreamNode:
    """One operator.

    Attributes:
        id: Position in the order of creation; a node's inputs have smaller ids.
        operator: see `ChainNode.operator`.
        uid: Given by the user, or None: then derived from name and position at translation.
        parallelism: None = the default of the environment.
        chain: False: always starts and ends its own chain (disable_chaining).
    """

    id: int
    name: str
    operator: object
    uid: OperatorUid | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    slot_sharing_group: str = "default"
    source: SourceInfo | None = None
    inputs: int = 1
    stateful: bool = False
    chain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEdge:
    """Rows of `source` (its side output `tag`, or the main one) feed input `input_index` of `target`.

    `ship` None: forward when parallelism is equal, else rebalance.
    """

    source: int
    target: int
    input_index: int = 0
    ship: Ship | None = None
    key_columns: tuple[str, ...] = ()
    tag: str | None = None


@dataclass(slots=True, kw_only=True)
class StreamGraph:
    """Everything that one `Environment` was told."""

    name: str = "unistream job"
    nodes: list[StreamNode] = field(default_factory=list)
    edges: list[StreamEdge] = field(default_factory=list)
