"""How what the user wrote becomes what runs: parallelism, slot sharing, chains, exchanges, identities.

The rules are Flink's; `docs/reference/translation.md` lists them. `chaining` decides which operators share a
task, `exchange_modes` which exchanges are stored, `slot_sharing` which vertices may share a slot.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.config import CHAINING_ACROSS_MAX_PARALLELISM, CHECKPOINT_INTERVAL, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.base.limits import KEY_GROUPS_MAX
from unistream.core.graph.bootstrap import BootstrapPlan
from unistream.core.graph.chaining import ChainingRules, Chains, ResolvedEdge, ResolvedNode, build_chains
from unistream.core.graph.exchange_modes import ExchangePlan, exchange_plan, why_no_checkpoints
from unistream.core.graph.graph_check import check, check_parallelism, topological
from unistream.core.graph.recorded_sources import recorded_sources
from unistream.core.graph.slot_sharing import colocations, group_profiles, resolve_groups, split_by_region
from unistream.model.chain import (
    Chain,
    ChainNode,
    EdgeOutput,
    HasBatchForm,
    HasBootstrapForm,
    JobCode,
    LocalOutput,
    SortsInput,
)
from unistream.model.graph import Bootstrap, JobEdge, JobGraph, JobType, JobVertex, OperatorInfo, Ship
from unistream.model.key_groups import default_max_parallelism
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

EDGE_ID_CHARS: Final = 16  # 64 bits of the digest; edges of one job are at most thousands


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A stream graph with every default filled in and every decision taken.

    Attributes:
        order: Node ids, producers first.
        edges: In the graph's order, as are `edge_ids` and `chains.obstacles`.
        members: Head of a chain -> its nodes, both in topological order.
    """

    graph: StreamGraph
    order: Sequence[int]
    nodes: Mapping[int, ResolvedNode]
    edges: Sequence[ResolvedEdge]
    edge_ids: Sequence[EdgeId]
    chains: Chains
    members: Mapping[int, Sequence[int]]
    exchanges: ExchangePlan
    bootstrap: BootstrapPlan | None = None


def translate_resolved(resolved: Resolved, config: dict[str, str]) -> tuple[JobGraph, JobCode]:
    """The job as data, and the user's operators for the artifact.

    Args:
        resolved: Made with the same `config`.
        config: The job's own configuration, kept in the graph (without the checkpoint interval in BATCH).

    Raises:
        ConfigError: the graph cannot run; names the operator.
    """
    job = _job_graph(resolved, config)
    check(job)
    return job, _code(resolved)


def resolve(
    graph: StreamGraph,
    *,
    parallelism: int,
    max_parallelism: int | None,
    chaining: bool,
    config: dict[str, str],
    bootstrap: BootstrapPlan | None = None,
) -> Resolved:
    """All decisions of the translation.

    Args:
        graph: As built by the API; node ids are positions.
        parallelism: Of nodes that set none.
        max_parallelism: Of nodes that set none; None or -1: derived from each node's parallelism.
        chaining: False: every operator is a vertex of its own.
        config: The job's own configuration.
        bootstrap: The job writes a savepoint of the history.

    Raises:
        ConfigError: the graph cannot run; names the operator.
    """
    options = Configuration(config)
    exchanges = exchange_plan(graph, options, bootstrap=bootstrap is not None)
    _check_batch_forms(graph, exchanges)
    order = topological(graph)
    groups = resolve_groups(graph, order)
    shared_max = None if max_parallelism == -1 else max_parallelism
    nodes = {node.id: _resolve_node(node, groups[node.id], parallelism, shared_max) for node in graph.nodes}
    edges = [ResolvedEdge(exchanges.stored(edge), _ship(edge, nodes)) for edge in graph.edges]
    rules = ChainingRules(
        enabled=chaining, across_max_parallelism=options.get(CHAINING_ACROSS_MAX_PARALLELISM)
    )
    chains = build_chains(order, nodes, edges, rules)
    members: dict[int, list[int]] = {}
    for node in order:
        members.setdefault(chains.heads[node], []).append(node)
    return Resolved(
        graph=graph,
        order=order,
        nodes=nodes,
        edges=edges,
        edge_ids=_edge_ids(graph, nodes),
        chains=chains,
        members=members,
        exchanges=exchanges,
        bootstrap=bootstrap,
    )


def _check_batch_forms(graph: StreamGraph, exchanges: ExchangePlan) -> None:
    for node in graph.nodes:
        if node.needs_batch_form is not None and not exchanges.in_batch_form(node.id):
            left = "".join(f"; not in the bounded part: {reason}" for reason in exchanges.part.left)
            raise ConfigError(node.needs_batch_form + left)


def _resolve_node(
    node: StreamNode, group: str, parallelism: int, max_parallelism: int | None
) -> ResolvedNode:
    width = node.parallelism if node.parallelism is not None else parallelism
    given = node.max_parallelism if node.max_parallelism is not None else max_parallelism
    groups = given
    if groups is None:  # a parallelism out of range is refused by name just below
        groups = default_max_parallelism(width) if 1 <= width <= KEY_GROUPS_MAX else KEY_GROUPS_MAX
    check_parallelism(f"operator {node.name!r}", width, groups)
    return ResolvedNode(
        node=node,
        uid=uid_of(node),
        parallelism=width,
        max_parallelism=groups,
        max_parallelism_set=given,
        group=group,
    )


def uid_of(node: StreamNode) -> OperatorUid:
    """That which the user gave it, or a generated one."""
    return node.uid if node.uid is not None else _generated_uid(node)


def _generated_uid(node: StreamNode) -> OperatorUid:
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", node.uid_name or node.name).strip("-")
    return OperatorUid(f"{slug or 'operator'}-{node.id}")


def _ship(edge: StreamEdge, nodes: Mapping[int, ResolvedNode]) -> Ship:
    if edge.ship is not None:
        return edge.ship
    equal = nodes[edge.source].parallelism == nodes[edge.target].parallelism
    return Ship.FORWARD if equal else Ship.REBALANCE


def _edge_ids(graph: StreamGraph, nodes: Mapping[int, ResolvedNode]) -> list[EdgeId]:
    """Stable while the uids at both ends, the input and the tag are the same; parallel equal edges are
    numbered."""
    seen: Counter[tuple[object, ...]] = Counter()
    ids = []
    for edge in graph.edges:
        key = (nodes[edge.source].uid, edge.tag, nodes[edge.target].uid, edge.input_index)
        ids.append(EdgeId(_digest(repr((*key, seen[key])))[:EDGE_ID_CHARS]))
        seen[key] += 1
    return ids


def vertex_id(resolved: Resolved, node: int) -> VertexId:
    """The vertex of a node of the stream graph."""
    return _vertex_id(resolved.nodes[resolved.chains.heads[node]].uid)


def _vertex_id(head: OperatorUid) -> VertexId:
    return VertexId(_digest(head))


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _job_graph(resolved: Resolved, config: dict[str, str]) -> JobGraph:
    exchanges = resolved.exchanges
    recorded = recorded_sources(resolved.graph)
    vertices = [
        _vertex(
            [resolved.nodes[i] for i in nodes],
            [tuple(resolved.nodes[k].uid for k in recorded.get(i, ())) for i in nodes],
            offloaded=head in exchanges.part.nodes,
        )
        for head, nodes in resolved.members.items()
    ]
    edges = tuple(
        JobEdge(
            id=resolved.edge_ids[place],
            source=vertex_id(resolved, edge.edge.source),
            target=vertex_id(resolved, edge.edge.target),
            ship=edge.ship,
            input_index=edge.edge.input_index,
            key_columns=edge.edge.key_columns,
            partition=exchanges.partition(edge.edge, edge.ship),
            committables=edge.edge.committables,
            sorted=edge.ship is Ship.HASH and _sorts_at_once(resolved, edge.edge),
        )
        for place, edge in enumerate(resolved.edges)
        if resolved.chains.obstacles[place] is not None
    )
    if exchanges.job_type is JobType.BATCH:
        vertices = split_by_region(vertices, edges)
    dropped = set[str]() if why_no_checkpoints(exchanges) is None else {CHECKPOINT_INTERVAL.key}
    members = resolved.members
    return JobGraph(
        name=resolved.graph.name,
        vertices=tuple(vertices),
        edges=edges,
        config={key: value for key, value in config.items() if key not in dropped},
        profiles=group_profiles(resolved.graph, vertices),
        colocations=colocations(
            [
                (v.id, [resolved.nodes[i].node for i in members[h]])
                for v, h in zip(vertices, members, strict=True)
            ]
        ),
        job_type=exchanges.job_type,
        bootstrap=_bootstrap(resolved),
    )


def _bootstrap(resolved: Resolved) -> Bootstrap | None:
    plan = resolved.bootstrap
    if plan is None:
        return None
    watermarks = {vertex_id(resolved, node): watermark for node, watermark in plan.watermarks.items()}
    return Bootstrap(directory=plan.directory, watermarks=watermarks)


def _vertex(
    members: Sequence[ResolvedNode], recorded: Sequence[tuple[OperatorUid, ...]], *, offloaded: bool
) -> JobVertex:
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
                records=records,
                declared_at=member.node.declared_at,
            )
            for member, records in zip(members, recorded, strict=True)
        ),
        parallelism=head.parallelism,
        max_parallelism=head.max_parallelism,
        slot_sharing_group=head.group,
        source=head.node.source,
        inputs=0 if head.node.source is not None else head.node.inputs,
        max_parallelism_derived=head.max_parallelism_set is None,
        offloaded=offloaded,
    )


def _form(operator: object, resolved: Resolved, node: int) -> object:
    """The operator as it is in this job: in a bounded one, or in a stream."""
    if resolved.exchanges.in_batch_form(node) and isinstance(operator, HasBatchForm):
        operator = operator.batch_form()
    if resolved.bootstrap is not None and isinstance(operator, HasBootstrapForm):
        operator = operator.bootstrap_form()
    return operator


def _sorts_at_once(resolved: Resolved, edge: StreamEdge) -> bool:
    """The target sorts this input and processes its rows as soon as they are sorted. One with other inputs
    waits for those; in a bootstrap it waits for the watermark."""
    node = resolved.nodes[edge.target].node
    if resolved.bootstrap is not None or node.inputs != 1:
        return False
    return isinstance(_form(node.operator, resolved, edge.target), SortsInput)


def _code(resolved: Resolved) -> JobCode:
    """The operators of every vertex; edges inside a chain become calls, the others exchanges."""
    places = {node: place for nodes in resolved.members.values() for place, node in enumerate(nodes)}
    outputs: dict[int, list[LocalOutput | EdgeOutput]] = {node: [] for node in resolved.nodes}
    for number, edge in enumerate(resolved.graph.edges):
        local = resolved.chains.obstacles[number] is None
        outputs[edge.source].append(
            LocalOutput(target=places[edge.target], tag=edge.tag)
            if local
            else EdgeOutput(edge=resolved.edge_ids[number], tag=edge.tag)
        )

    def chained(node: int) -> ChainNode:
        found = resolved.nodes[node]
        return ChainNode(
            uid=found.uid,
            name=found.node.name,
            operator=_form(found.node.operator, resolved, node),
            outputs=tuple(outputs[node]),
        )

    return JobCode(
        chains={
            _vertex_id(resolved.nodes[head].uid): Chain(nodes=tuple(chained(node) for node in nodes))
            for head, nodes in resolved.members.items()
        }
    )
