"""Graphs as the case files write them: ``[name, parallelism]`` vertices, and edges by pattern and type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.support.conformance.case import Json
from unistream.base.ids import EdgeId, OperatorUid, PartitionId, SubtaskId, VertexId
from unistream.core.graph.topology import Link, Pattern, Topology
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship, SourceInfo
from unistream.model.partition_type import PartitionType

SHIPS: Final = {"ALL_TO_ALL": Ship.REBALANCE, "POINTWISE": Ship.RESCALE}


def vertex(
    name: str,
    parallelism: int,
    *uids: str,
    max_parallelism: int = 128,
    source: SourceInfo | None = None,
    inputs: int = 1,
) -> JobVertex:
    """A vertex of operators with these uids; without any, of one that has the name of the vertex."""
    return JobVertex(
        id=VertexId(name),
        name=name,
        operators=tuple(OperatorInfo(uid=OperatorUid(uid), name=uid) for uid in uids or (name,)),
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        source=source,
        inputs=0 if source is not None else inputs,
    )


def edge(
    name: object, source: str, target: str, pattern: str = "ALL_TO_ALL", input_index: int = 0
) -> JobEdge:
    """A pipelined edge."""
    return JobEdge(
        id=EdgeId(str(name)),
        source=VertexId(source),
        target=VertexId(target),
        ship=SHIPS[pattern],
        input_index=input_index,
    )


def graph_of(vertices: Iterable[JobVertex], edges: Iterable[JobEdge]) -> JobGraph:
    """A job of these vertices and edges."""
    return JobGraph(name="case", vertices=tuple(vertices), edges=tuple(edges))


def topology_of(case: Json) -> Topology:
    """`vertices`, `edges` and `strictColocation` of a case. Edges of one `dataset` consume one result."""
    return Topology(
        [(VertexId(name), parallelism) for name, parallelism in case["vertices"]],
        [
            Link(
                id=EdgeId(e["id"]),
                source=VertexId(e["from"]),
                target=VertexId(e["to"]),
                pattern=Pattern[e["pattern"]],
                partition=PartitionType[e["type"]],
                dataset=EdgeId(e["dataset"]) if "dataset" in e else None,
            )
            for e in case["edges"]
        ],
        [tuple(VertexId(name) for name in group) for group in case.get("strictColocation", [])],
    )


def subtask(name: str) -> SubtaskId:
    """``v1#0``."""
    head, _, index = name.rpartition("#")
    return SubtaskId(VertexId(head), int(index))


def partition(name: str, topology: Topology) -> PartitionId:
    """``e1#0``: what subtask 0 of the producer of edge e1 produces for it."""
    head, _, index = name.rpartition("#")
    link = next(link for link in topology.links if link.id == head)
    return PartitionId(SubtaskId(link.source, int(index)), link.reads)


def texts(items: Iterable[object]) -> list[str]:
    """Printed and in order, so that sets can be compared and read."""
    return sorted(map(str, items))
