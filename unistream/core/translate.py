"""From what the user wrote to what runs: parallelism, chains, shipping, identities.

Two neighbours share a task (a chain) when the edge is forward, parallelism, max parallelism and slot sharing
group are equal, both allow it, and the second has exactly one input edge and one logical input.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.core.graph_check import check
from unistream.model.chain import Chain, ChainNode, EdgeOutput, JobCode, LocalOutput
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.key_groups import default_max_parallelism
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

EDGE_ID_CHARS: Final = 16  # 64 bits of the digest; edges of one job are at most thousands


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node with everything filled in."""

    node: StreamNode
    uid: OperatorUid
    parallelism: int
    max_parallelism: int


def translate(
    graph: StreamGraph,
    *,
    parallelism: int,
    max_parallelism: int | None,
    chaining: bool,
    config: dict[str, str],
) -> tuple[JobGraph, JobCode]:
    """The job as data, and the user's operators for the artifact.

    Args:
        graph: As built by the API; node ids are positions.
        parallelism: Of nodes that set none.
        max_parallelism: Of nodes that set none; None or -1: derived from each node's parallelism.
        chaining: False: every operator is a vertex of its own.
        config: The job's own configuration, kept in the graph.

    Raises:
        ConfigError: the graph cannot run; names the operator.
    """
    nodes = {
        node.id: _resolve(node, parallelism, None if max_parallelism == -1 else max_parallelism)
        for node in graph.nodes
    }
    order = _topological(graph)
    edges = [(edge, _ship(edge, nodes)) for edge in graph.edges]
    heads = _heads(graph, order, nodes, edges, chaining=chaining)
    identities = _edge_ids(graph, nodes)
    chains: dict[int, list[int]] = {}
    for node in order:
        chains.setdefault(heads[node], []).append(node)

    def exchange(place: int, edge: StreamEdge, ship: Ship) -> JobEdge:
        return JobEdge(
            id=identities[place],
            source=_vertex_id(nodes[heads[edge.source]].uid),
            target=_vertex_id(nodes[edge.target].uid),
            ship=ship,
            input_index=edge.input_index,
            key_columns=edge.key_columns,
        )

    job = JobGraph(
        name=graph.name,
        vertices=tuple(_vertex([nodes[i] for i in members]) for members in chains.values()),
        edges=tuple(
            exchange(place, edge, ship)
            for place, (edge, ship) in enumerate(edges)
            if heads[edge.source] != heads[edge.target]
        ),
        config=dict(config),
    )
    check(job)
    return job, _code(graph, chains, nodes, heads, identities)


def _resolve(node: StreamNode, parallelism: int, max_parallelism: int | None) -> _Node:
    width = node.parallelism if node.parallelism is not None else parallelism
    groups = node.max_parallelism if node.max_parallelism is not None else max_parallelism
    if groups is None:
        groups = default_max_parallelism(width) if 1 <= width <= 2**15 else 2**15  # graph_check names it
    return _Node(node=node, uid=node.uid or _generated_uid(node), parallelism=width, max_parallelism=groups)


def _generated_uid(node: StreamNode) -> OperatorUid:
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", node.name).strip("-")
    return OperatorUid(f"{slug or 'operator'}-{node.id}")


def _topological(graph: StreamGraph) -> list[int]:
    """Node ids, producers first, otherwise in order of creation."""
    known = {node.id for node in graph.nodes}
    if len(known) != len(graph.nodes):
        raise ConfigError(f"job {graph.name!r}: two nodes have the same position")
    names = {node.id: node.name for node in graph.nodes}
    for edge in graph.edges:
        if edge.source not in known or edge.target not in known:
            raise ConfigError(f"job {graph.name!r}: an edge {edge.source} -> {edge.target} has no such end")
    order: list[int] = []
    placed: set[int] = set()
    sources: dict[int, set[int]] = {node: set() for node in known}
    for edge in graph.edges:
        sources[edge.target].add(edge.source)
    waiting = sorted(known)
    while waiting:
        ready = [node for node in waiting if sources[node] <= placed]
        if not ready:
            stuck = ", ".join(repr(names[node]) for node in waiting)
            raise ConfigError(f"operators {stuck} form or follow a cycle: a job has none")
        order += ready
        placed.update(ready)
        waiting = [node for node in waiting if node not in placed]
    return order


def _ship(edge: StreamEdge, nodes: dict[int, _Node]) -> Ship:
    if edge.ship is not None:
        return edge.ship
    equal = nodes[edge.source].parallelism == nodes[edge.target].parallelism
    return Ship.FORWARD if equal else Ship.REBALANCE


def _heads(
    graph: StreamGraph,
    order: list[int],
    nodes: dict[int, _Node],
    edges: list[tuple[StreamEdge, Ship]],
    *,
    chaining: bool,
) -> dict[int, int]:
    """Node -> head of the chain that it is in."""
    fan_in = Counter(edge.target for edge in graph.edges)
    into = {edge.target: (edge, ship) for edge, ship in edges}
    heads: dict[int, int] = {}
    for node in order:
        heads[node] = node
        if chaining and fan_in[node] == 1:
            edge, ship = into[node]
            fits = ship is Ship.FORWARD and edge.input_index == 0
            if fits and _may_chain(nodes[edge.source], nodes[node]):
                heads[node] = heads[edge.source]
    return heads


def _may_chain(first: _Node, second: _Node) -> bool:
    return (
        first.node.chain
        and second.node.chain
        and second.node.source is None
        and second.node.inputs == 1
        and first.parallelism == second.parallelism
        and first.max_parallelism == second.max_parallelism
        and first.node.slot_sharing_group == second.node.slot_sharing_group
    )


def _edge_ids(graph: StreamGraph, nodes: dict[int, _Node]) -> list[EdgeId]:
    """Stable while the uids at both ends, the input and the tag stay; parallel equal edges are numbered."""
    seen: Counter[tuple[object, ...]] = Counter()
    ids = []
    for edge in graph.edges:
        key = (nodes[edge.source].uid, edge.tag, nodes[edge.target].uid, edge.input_index)
        ids.append(EdgeId(_digest(repr((*key, seen[key])))[:EDGE_ID_CHARS]))
        seen[key] += 1
    return ids


def _vertex_id(head: OperatorUid) -> VertexId:
    return VertexId(_digest(head))


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _vertex(members: list[_Node]) -> JobVertex:
    head = members[0]
    return JobVertex(
        id=_vertex_id(head.uid),
        name=" -> ".join(member.node.name for member in members),
        operators=tuple(
            OperatorInfo(
                uid=member.uid,
                name=member.node.name,
                generated_uid=member.node.uid is None,
                stateful=member.node.stateful,
            )
            for member in members
        ),
        parallelism=head.parallelism,
        max_parallelism=head.max_parallelism,
        slot_sharing_group=head.node.slot_sharing_group,
        source=head.node.source,
        inputs=0 if head.node.source is not None else head.node.inputs,
    )


def _code(
    graph: StreamGraph,
    chains: dict[int, list[int]],
    nodes: dict[int, _Node],
    heads: dict[int, int],
    identities: list[EdgeId],
) -> JobCode:
    """The operators of every vertex; edges inside a chain become calls, the others exchanges."""
    places = {node: place for members in chains.values() for place, node in enumerate(members)}
    outputs: dict[int, list[LocalOutput | EdgeOutput]] = {node: [] for node in nodes}
    for number, edge in enumerate(graph.edges):
        local = heads[edge.source] == heads[edge.target]
        outputs[edge.source].append(
            LocalOutput(target=places[edge.target], tag=edge.tag)
            if local
            else EdgeOutput(edge=identities[number], tag=edge.tag)
        )

    def chained(node: int) -> ChainNode:
        return ChainNode(
            uid=nodes[node].uid,
            name=nodes[node].node.name,
            operator=nodes[node].node.operator,
            outputs=tuple(outputs[node]),
        )

    return JobCode(
        chains={
            _vertex_id(nodes[head].uid): Chain(nodes=tuple(chained(node) for node in members))
            for head, members in chains.items()
        }
    )


def explain(graph: JobGraph) -> str:
    """The plan for people: one vertex after the other, with its operators and inputs."""
    numbers = {vertex.id: number for number, vertex in enumerate(graph.vertices, 1)}
    lines = [f"job {graph.name!r}: {len(graph.vertices)} vertices, {len(graph.edges)} exchanges"]
    for vertex in graph.vertices:
        lines.append(
            f"[{numbers[vertex.id]}] {vertex.name}  "
            f"(parallelism {vertex.parallelism} of {vertex.max_parallelism}, "
            f"slots {vertex.slot_sharing_group})"
        )
        if vertex.source is not None:
            kind = "bounded" if vertex.source.bounded else "unbounded"
            lines.append(f"    source {vertex.source.connector}, {kind}")
        for edge in graph.inputs_of(vertex.id):
            keys = f" by {', '.join(edge.key_columns)}" if edge.key_columns else ""
            lines.append(f"    input {edge.input_index} <- [{numbers[edge.source]}] {edge.ship.value}{keys}")
        for operator in vertex.operators:
            marks = [mark for mark, on in (("stateful", operator.stateful),) if on]
            marks += ["generated uid"] if operator.generated_uid else []
            lines.append(
                f"    {operator.uid}: {operator.name}" + (f"  ({', '.join(marks)})" if marks else "")
            )
    return "\n".join(lines)
