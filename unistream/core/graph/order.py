"""Order of a graph's nodes, producers first; a cycle is told as the way around it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from unistream.base.errors import ConfigError
from unistream.model.stream_graph import StreamGraph

N = TypeVar("N", bound=Hashable)


def topological(graph: StreamGraph) -> list[int]:
    """Node ids, producers first: by distance from the sources, then in order of creation.

    Raises:
        ConfigError: a cycle, a position that is used twice, or an edge without an end.
    """
    known = {node.id: node.name for node in graph.nodes}
    if len(known) != len(graph.nodes):
        raise ConfigError(f"job {graph.name!r}: two nodes have the same position")
    for edge in graph.edges:
        if edge.source not in known or edge.target not in known:
            raise ConfigError(f"job {graph.name!r}: an edge {edge.source} -> {edge.target} has no such end")
    edges = [(edge.source, edge.target) for edge in graph.edges]
    order = sorted_by_level(sorted(known), edges)
    if len(order) < len(known):
        refuse_cycle(known, edges)
    return order


def sorted_by_level(nodes: Sequence[N], edges: Iterable[tuple[N, N]]) -> list[N]:
    """Nodes level by level, each level in the given order; those on or behind a cycle are left out.

    >>> sorted_by_level("abcd", [("a", "c"), ("c", "b")])
    ['a', 'd', 'c', 'b']
    """
    places = {node: place for place, node in enumerate(nodes)}
    outputs: dict[N, list[N]] = {node: [] for node in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for source, target in edges:
        outputs[source].append(target)
        waiting[target] += 1
    order: list[N] = []
    level = [node for node in nodes if waiting[node] == 0]
    while level:
        order += level
        following = []
        for node in level:
            for target in outputs[node]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    following.append(target)
        level = sorted(following, key=places.__getitem__)
    return order


def refuse_cycle(names: Mapping[N, str], edges: Iterable[tuple[N, N]]) -> None:
    """Raises ConfigError with the operators on a cycle of a graph that has one."""
    pairs = list(edges)
    fine = set(sorted_by_level(list(names), pairs))
    producers = {target: source for source, target in pairs if source not in fine and target not in fine}
    node = next(iter(producers))
    seen: dict[N, None] = {}
    while node not in seen:
        seen[node] = None
        node = producers[node]
    path = list(seen)
    around = [*path[path.index(node) :], node][::-1]
    raise ConfigError(
        f"operators {' -> '.join(repr(names[n]) for n in around)} form a cycle; no edge of a job "
        "is a feedback edge, so take out the one that goes back"
    )
