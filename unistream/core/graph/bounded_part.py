"""The bounded part of a STREAMING job: operators that read bounded sources only, and run to their end before
the stream that reads from them begins.

    files ─ clean ─ aggregate ═ stored ═► join ─ sink          ─ pipelined, ═ stored
                                Kafka ────┘
    └────── bounded part ─────┘

Bounded operators that are connected belong together: all of them are in the part, or none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unistream.base.config import OFFLOAD_BOUNDED, Configuration
from unistream.core.graph.components import joined
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode


@dataclass(frozen=True, slots=True)
class BoundedPart:
    """
    Attributes:
        nodes: Ids of its operators.
        left: Why other bounded operators stay in the stream, for people.
    """

    nodes: frozenset[int] = frozenset()
    left: tuple[str, ...] = ()

    def leaves(self, edge: StreamEdge) -> bool:
        """The stream reads `edge`."""
        return edge.source in self.nodes and edge.target not in self.nodes

    def contains(self, edge: StreamEdge) -> bool:
        return edge.source in self.nodes and edge.target in self.nodes


def bounded_part(graph: StreamGraph, config: Configuration) -> BoundedPart:
    """The part of a STREAMING job, if `execution.batch.offload-bounded-regions` is set; else none."""
    if not config.get(OFFLOAD_BOUNDED) or not any(map(_is_endless, graph.nodes)):
        return BoundedPart()
    nodes = {node.id: node for node in graph.nodes}
    bounded = _bounded(graph)
    outputs: dict[int, list[StreamEdge]] = defaultdict(list)
    for edge in graph.edges:
        outputs[edge.source].append(edge)
    inner = [(edge.source, edge.target) for edge in graph.edges if edge.target in bounded]
    found: set[int] = set()
    left = []
    for members in joined(sorted(bounded), inner):
        reason = next(_reasons([nodes[one] for one in members], bounded, outputs), None)
        if reason is None:
            found.update(members)
        else:
            left.append(f"{', '.join(repr(nodes[one].name) for one in members)}: {reason}")
    return BoundedPart(frozenset(found), tuple(left))


def _is_endless(node: StreamNode) -> bool:
    return node.source is not None and (node.endless or not node.source.bounded)


def _bounded(graph: StreamGraph) -> frozenset[int]:
    """Operators before which there is no unbounded source."""
    endless = {node.id for node in graph.nodes if _is_endless(node)}
    grown = True
    while grown:
        more = {edge.target for edge in graph.edges if edge.source in endless} - endless
        endless |= more
        grown = bool(more)
    return frozenset(node.id for node in graph.nodes) - endless


def _reasons(
    members: Sequence[StreamNode], bounded: frozenset[int], outputs: Mapping[int, Sequence[StreamEdge]]
) -> Iterator[str]:
    """Why these connected operators cannot be in the part."""
    for node in members:
        if node.source is not None and node.source.phases:
            yield f"source {node.name!r} reads what follows its history when all tasks have read that"
        if node.colocation_group is not None:
            yield f"{node.name!r} is co-located with other operators"
        if not outputs[node.id]:
            yield f"nothing reads {node.name!r}, so it would write before the stream begins"
        for edge in outputs[node.id]:
            if edge.target not in bounded and edge.partition is not None and not edge.partition.is_blocking:
                yield f"the exchange behind {node.name!r} is PIPELINED"
