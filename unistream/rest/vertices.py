"""GET /unistream/jobs/{id_}/vertices: the graph of a job as people read it.

Chains with the line of the user's program behind each operator, exchanges, what restarts together.
"""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from unistream.base.ids import OperatorUid, VertexId
from unistream.core.graph import Topology, logical_regions
from unistream.master.cluster import Dispatcher
from unistream.model.graph import JobEdge, JobGraph, JobVertex
from unistream.rest.answers import json_answer
from unistream.rest.requests import job_id


class OperatorLine(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of a chain.

    Attributes:
        has_own_uid: The user gave its uid; without one its state is lost when the graph changes.
        stateful: It writes state into checkpoints.
        declared_at: ``FILE:LINE`` of the program that has added it to the pipeline; null: nobody knows.
        writes: URIs of what it writes, if it is a sink that says so.
        reads: URIs of what it reads, if it is a source that says so.
    """

    uid: OperatorUid
    name: str
    has_own_uid: bool
    stateful: bool
    declared_at: str | None
    writes: tuple[str, ...]
    reads: tuple[str, ...]


class InputLine(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange, seen by its consumer. `ship` and `partition`: `unistream.model.graph.JobEdge`."""

    source: VertexId
    input_index: int
    ship: str
    partition: str
    key_columns: tuple[str, ...]


class VertexLine(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of operators, which runs in one task for each subtask.

    Attributes:
        region: Vertices with the same number exchange rows while they are produced, so that they run and
            restart together (an exchange by position may make more and smaller regions of it).
        offloaded: It is of the bounded part of a stream, which runs before the rest.
    """

    id: VertexId
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    region: int
    offloaded: bool
    operators: list[OperatorLine]
    inputs: list[InputLine]


class Vertices(msgspec.Struct, frozen=True, kw_only=True):
    """The vertices of a job in topological order; none if nobody knows the graph of a job that has ended."""

    vertices: list[VertexLine]


class VerticesApi:
    """The handler of a job's vertices."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/jobs/{id_}/vertices")(self.vertices)

    def vertices(self, id_: str) -> Response:
        """Answers with the `Vertices` of a job. Raises NotFound."""
        return json_answer(lines_of(self._dispatcher.graph(job_id(id_))))


def lines_of(graph: JobGraph) -> Vertices:
    """The graph as it is shown. Pure."""
    found = enumerate(logical_regions(Topology.of(graph)))
    regions = {vertex: number for number, members in found for vertex in members}
    return Vertices(vertices=[_line(vertex, graph, regions[vertex.id]) for vertex in graph.vertices])


def _line(vertex: JobVertex, graph: JobGraph, region: int) -> VertexLine:
    return VertexLine(
        id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        slot_sharing_group=vertex.slot_sharing_group,
        region=region,
        offloaded=vertex.offloaded,
        operators=[
            OperatorLine(
                uid=operator.uid,
                name=operator.name,
                has_own_uid=not operator.generated_uid,
                stateful=operator.stateful,
                declared_at=operator.declared_at or None,
                writes=graph.writes.get(operator.uid, ()),
                reads=graph.reads.get(operator.uid, ()),
            )
            for operator in vertex.operators
        ],
        inputs=[_input(edge) for edge in graph.edges if edge.target == vertex.id],
    )


def _input(edge: JobEdge) -> InputLine:
    return InputLine(
        source=edge.source,
        input_index=edge.input_index,
        ship=edge.ship.value,
        partition=edge.partition.value,
        key_columns=edge.key_columns,
    )
