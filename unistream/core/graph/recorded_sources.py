"""The sources up to whose positions a sink's commits have everything. Pure.

With the commit of checkpoint n a table has all rows that came to the sink before the barrier of n. That is
everything before the positions of a source at n only if nothing on the way keeps rows over a barrier:

    source ─► filter ─► map ─► writer ─► committer          recorded
    source ─► window ─► writer ─► committer                 not: the last rows are in the state of the window
    source ─┬─► filter ─► writer ─► committer               not: some of its rows go through the window
            └─► window ──┘
    dimension ─► join ─► writer                             not, and neither is the other input of the join

An operator that has state counts as one that keeps rows, also one that merely counts them: what it emits for
a row depends on rows before it, so a job that goes on from the positions without its state has other results.
Rows that a barrier has overtaken are not known here: see `unistream.core.checkpoint.positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from unistream.model.graph import SourceInfo
from unistream.model.stream_graph import StreamGraph


def recorded_sources(graph: StreamGraph) -> dict[int, tuple[int, ...]]:
    """Committer that records positions -> the sources whose positions it may record; both by node."""
    committers = [node for node in graph.nodes if node.records_positions]
    if not committers:
        return {}
    producers: dict[int, set[int]] = {node.id: set() for node in graph.nodes}
    consumers: dict[int, set[int]] = {node.id: set() for node in graph.nodes}
    for edge in graph.edges:
        producers[edge.target].add(edge.source)
        consumers[edge.source].add(edge.target)
    found: dict[int, tuple[int, ...]] = {}
    for committer in committers:
        before = _reached([committer.id], producers.__getitem__)
        keeping = {
            k for k in before if graph.nodes[k].stateful and graph.nodes[k].sink != committer.sink
        }  # its own writer has prepared all of its rows when the barrier has passed
        sources = [k for k in sorted(before) if _is_recorded(graph.nodes[k].source)]
        found[committer.id] = tuple(
            k for k in sources if not keeping & _reached(consumers[k], consumers.__getitem__)
        )
    return found


def _is_recorded(source: SourceInfo | None) -> bool:
    return source is not None and bool(source.last_phase.recorded_as)


def _reached(start: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    """`start`, and all nodes that follow."""
    found: set[int] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(following(node))
    return found
