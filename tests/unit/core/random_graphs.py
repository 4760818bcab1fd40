"""Random small graphs for properties of regions, scheduling and failover, with all pairs of subtasks."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from unistream.base.ids import EdgeId, SubtaskId, VertexId
from unistream.core.graph import Link, Pattern, Topology
from unistream.model.partition_type import PartitionType

RUNNABLE = (PartitionType.PIPELINED_BOUNDED, PartitionType.BLOCKING)
UNGLUED = tuple(kind for kind in PartitionType if not kind.must_be_pipelined)


@st.composite
def topologies(draw: st.DrawFn, types: tuple[PartitionType, ...] = tuple(PartitionType)) -> Topology:
    """Up to 6 vertices of up to 5 subtasks; later vertices may read earlier ones."""
    widths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    vertices = [VertexId(f"v{place}") for place in range(len(widths))]
    pairs = [(a, b) for b in range(len(widths)) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    links = [
        Link(
            id=EdgeId(f"e{place}"),
            source=vertices[source],
            target=vertices[target],
            pattern=draw(st.sampled_from(Pattern)),
            partition=draw(st.sampled_from(types)),
        )
        for place, (source, target) in enumerate(chosen)
    ]
    return Topology(list(zip(vertices, widths, strict=True)), links)


def pairs_of(topology: Topology, link: Link) -> Iterator[tuple[SubtaskId, SubtaskId]]:
    """Every producer with every one of its consumers, by the rule that the conformance cases give."""
    upstream, downstream = topology.parallelism[link.source], topology.parallelism[link.target]
    for consumer in range(downstream):
        first, end = consumer * upstream // downstream, (consumer + 1) * upstream // downstream
        producers = range(first, max(end, first + 1)) if upstream >= downstream else [first]
        if link.pattern is Pattern.ALL_TO_ALL:
            producers = range(upstream)
        for producer in producers:
            yield SubtaskId(link.source, producer), SubtaskId(link.target, consumer)
