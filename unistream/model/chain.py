"""What a worker runs: the operators of one task and their connections.

These objects contain the user's functions. They are sent only in the artifact (see `pack`), which a master
stores and forwards as bytes and never opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from unistream.base.ids import EdgeId, OperatorUid, VertexId


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOutput:
    """Rows are passed to another operator of the same chain. `tag` None: the main output."""

    target: int
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOutput:
    """Rows are sent to the exchange `edge`. `tag` None: the main output."""

    edge: EdgeId
    tag: str | None = None


@runtime_checkable
class HasBatchForm(Protocol):
    """An operator, or the specification of a source, that is another one in a bounded job."""

    def batch_form(self) -> object:
        """The other one; `self` is not changed."""


@runtime_checkable
class HasBootstrapForm(Protocol):
    """A batch form that is another one where its state is stored at the end of the input."""

    def bootstrap_form(self) -> object:
        """The other one; `self` is not changed."""


@runtime_checkable
class SortsInput(Protocol):
    """A batch form that sorts its rows by key, and processes those of a bucket when all of them are there."""

    def end_bucket(self, number: int, count: int) -> None:
        """All rows of the buckets up to `number`, of `count`, have come (`model.elements.EndOfBucket`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainNode:
    """One operator of a chain: a node of a tree whose root is index 0.

    Attributes:
        operator: An un-opened `unistream.port.operator.Operator` (for index 0 of a source vertex:
            a `unistream.port.operator.SourceOperatorSpec`). Picklable until set up.
    """

    uid: OperatorUid
    name: str
    operator: object
    outputs: tuple[LocalOutput | EdgeOutput, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The operators of one vertex; a node's consumers have higher indices than the node."""

    nodes: tuple[ChainNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCode:
    """Content of an artifact: the chain of every vertex."""

    chains: Mapping[VertexId, Chain] = field(default_factory=dict)
