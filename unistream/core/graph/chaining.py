"""Which operators share a task.

An operator is chained to its producer if every row of the table in `docs/reference/translation.md` allows it;
`obstacle` returns the first one that does not, for plans.

A chain has one head. In Flink an operator with several inputs can also be chained to its sources
(HEAD_WITH_SOURCES); a task here has either one source or gates, so with several inputs that strategy is HEAD.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unistream.base.ids import OperatorUid
from unistream.model.graph import Ship
from unistream.model.stream_graph import ChainingStrategy, StreamEdge, StreamNode


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedNode:
    """An operator with all defaults.

    Attributes:
        max_parallelism: Derived from the parallelism if it is not set.
        max_parallelism_set: As set for the operator or the job.
        group: Its slot sharing group.
    """

    node: StreamNode
    uid: OperatorUid
    parallelism: int
    max_parallelism: int
    max_parallelism_set: int | None
    group: str


@dataclass(frozen=True, slots=True)
class ResolvedEdge:
    """An edge of the stream graph, and how its rows are distributed."""

    edge: StreamEdge
    ship: Ship


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainingRules:
    enabled: bool = True
    across_max_parallelism: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """The result.

    Attributes:
        heads: Node -> first node of its chain; topological order.
        obstacles: For each edge, in the graph's order: why it is an exchange; None: it is a call.
    """

    heads: Mapping[int, int]
    obstacles: Sequence[str | None]


def build_chains(
    order: Sequence[int],
    nodes: Mapping[int, ResolvedNode],
    edges: Sequence[ResolvedEdge],
    rules: ChainingRules,
) -> Chains:
    """Chains of a graph whose nodes come in topological `order`."""
    inputs: dict[int, list[int]] = defaultdict(list)
    for place, edge in enumerate(edges):
        inputs[edge.edge.target].append(place)
    heads: dict[int, int] = {}
    obstacles: list[str | None] = [None] * len(edges)
    for node in order:
        heads[node] = node
        for place in inputs[node]:
            edge = edges[place]
            why = obstacle(nodes[edge.edge.source], nodes[node], edge, len(inputs[node]), rules)
            obstacles[place] = why
            if why is None:
                heads[node] = heads[edge.edge.source]
    return Chains(heads=heads, obstacles=obstacles)


def obstacle(
    first: ResolvedNode, second: ResolvedNode, edge: ResolvedEdge, fan_in: int, rules: ChainingRules
) -> str | None:
    """Why `second`, which has `fan_in` input edges, cannot be in the task of `first`; None: it can."""
    if fan_in != 1:
        return f"{second.node.name!r} has {fan_in} input edges"
    if second.node.source is not None:
        return f"{second.node.name!r} is a source"
    if second.node.inputs != 1 or edge.edge.input_index != 0:
        return f"{second.node.name!r} has {second.node.inputs} inputs"
    if not rules.enabled:
        return "chaining is disabled"
    if first.group != second.group:
        return f"slot sharing groups {first.group!r} and {second.group!r}"
    return (
        _strategy_obstacle(first.node, second.node)
        or _parallelism_obstacle(first, second, rules)
        or _exchange_obstacle(edge)
    )


def _strategy_obstacle(first: StreamNode, second: StreamNode) -> str | None:
    if first.chaining is ChainingStrategy.NEVER:
        return f"chaining of {first.name!r} is NEVER"
    if not second.chaining.takes(source=first.source is not None):
        return f"chaining of {second.name!r} is {second.chaining.value}"
    return None


def _parallelism_obstacle(first: ResolvedNode, second: ResolvedNode, rules: ChainingRules) -> str | None:
    if first.parallelism != second.parallelism:
        return f"parallelism {first.parallelism} and {second.parallelism}"
    if not rules.across_max_parallelism and first.max_parallelism_set != second.max_parallelism_set:
        return f"max parallelism {_shown(first)} and {_shown(second)}"
    return None


def _shown(node: ResolvedNode) -> str:
    return "unset" if node.max_parallelism_set is None else str(node.max_parallelism_set)


def _exchange_obstacle(edge: ResolvedEdge) -> str | None:
    if edge.ship is not Ship.FORWARD:
        return f"the edge is {edge.ship.value}"
    if edge.edge.partition is not None and edge.edge.partition.is_blocking:
        return "the exchange is blocking"
    return None
