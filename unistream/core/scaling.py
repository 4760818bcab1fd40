"""How wide a job runs: the parallelism that is wanted, and what the slots that are there allow. Pure.

Vertices that a forward edge joins, or that are co-located, always have the same parallelism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core.graph_check import check
from unistream.model.graph import JobGraph, Ship


def with_parallelism(graph: JobGraph, wanted: Mapping[VertexId, int]) -> JobGraph:
    """`graph` with these vertices at another parallelism; vertices joined to them by forward edges follow.

    Raises:
        ConfigError: an unknown vertex, a parallelism out of range, or two vertices that a forward edge (or a
            co-location group) joins were given different ones; named.
    """
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise ConfigError(f"job {graph.name!r} has no vertex {unknown[0]!r}")
    chosen: dict[VertexId, int] = {}
    for component in _equal_parallelism(graph):
        given = {vertex: wanted[vertex] for vertex in component if vertex in wanted}
        if len(set(given.values())) > 1:
            told = ", ".join(f"{names[vertex]!r}={width}" for vertex, width in given.items())
            raise ConfigError(f"forward edges join {told}: they must have the same parallelism")
        for width in given.values():
            chosen |= dict.fromkeys(component, width)
    vertices = tuple(
        structs.replace(vertex, parallelism=chosen.get(vertex.id, vertex.parallelism))
        for vertex in graph.vertices
    )
    scaled = structs.replace(graph, vertices=vertices)
    check(scaled)
    return scaled


def _equal_parallelism(graph: JobGraph) -> list[tuple[VertexId, ...]]:
    """Vertices that must be equally wide: joined by forward edges, or co-located."""
    root = {vertex.id: vertex.id for vertex in graph.vertices}

    def find(vertex: VertexId) -> VertexId:
        while root[vertex] != vertex:
            vertex = root[vertex]
        return vertex

    pairs = [(edge.source, edge.target) for edge in graph.edges if edge.ship is Ship.FORWARD]
    pairs += [(group[0], other) for group in graph.colocations for other in group[1:]]
    for first, second in pairs:
        root[find(second)] = find(first)
    components: dict[VertexId, list[VertexId]] = {}
    for vertex in graph.vertices:
        components.setdefault(find(vertex.id), []).append(vertex.id)
    return [tuple(members) for members in components.values()]


def slots_needed(graph: JobGraph) -> Counter[str]:
    """Slots of each slot sharing group at the parallelism of `graph`."""
    needed: Counter[str] = Counter()
    for vertex in graph.vertices:
        group = vertex.slot_sharing_group
        needed[group] = max(needed[group], vertex.parallelism)
    return needed


def fit(graph: JobGraph, slots: Mapping[str, int]) -> JobGraph | None:
    """The widest graph, up to `graph`, that runs in so many slots of each group; None: not even at 1."""
    if any(slots.get(group, 0) < 1 for group in slots_needed(graph)):
        return None
    wanted: dict[VertexId, int] = {}
    by_id = {vertex.id: vertex for vertex in graph.vertices}
    for component in _equal_parallelism(graph):
        width = min(min(by_id[v].parallelism, slots[by_id[v].slot_sharing_group]) for v in component)
        wanted |= dict.fromkeys(component, width)
    return with_parallelism(graph, wanted)
