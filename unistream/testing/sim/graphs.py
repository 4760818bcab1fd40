"""The drawn pipelines, as a graph for the master and as operators for the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput
from unistream.model.graph import JobEdge, JobGraph, JobType, JobVertex, OperatorInfo, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.process import ProcessOperator
from unistream.operator.sink import CommitterOperator, SinkWriterOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.testing.sim.pipeline import (
    ROWS,
    CountOperator,
    FiledCountOperator,
    FragileOperator,
    InGroups,
    SimSource,
)
from unistream.testing.sim.scenario import MAX_PARALLELISM, SHAPES, SimPipeline
from unistream.testing.sim.table import Table, TableSink


def graph_of(
    name: str,
    pipelines: tuple[SimPipeline, ...],
    config: Mapping[str, str],
    job_type: JobType = JobType.STREAMING,
) -> JobGraph:
    """The graph of the job."""
    vertices: list[JobVertex] = []
    edges: list[JobEdge] = []
    for pipeline in pipelines:
        for place, roles in enumerate(SHAPES[pipeline.shape]):
            vertices.append(
                JobVertex(
                    id=vertex_id(pipeline, place),
                    name=f"{pipeline.name}-{'-'.join(roles)}",
                    operators=tuple(OperatorInfo(uid=_uid(pipeline, role), name=role) for role in roles),
                    parallelism=pipeline.parallelism[place],
                    max_parallelism=MAX_PARALLELISM,
                    source=pipeline.contents.info() if place == 0 else None,
                    inputs=1 if place else 0,
                )
            )
            if place:
                edges.append(_edge(pipeline, place))
    return JobGraph(
        name=name, vertices=tuple(vertices), edges=tuple(edges), config=dict(config), job_type=job_type
    )


def _edge(pipeline: SimPipeline, place: int) -> JobEdge:
    roles = SHAPES[pipeline.shape][place]
    ship = Ship.RESCALE if pipeline.pointwise else Ship.REBALANCE
    if roles[0] == "committer":
        ship = Ship.GLOBAL
    elif "count" in roles:
        ship = Ship.HASH
    return JobEdge(
        id=_edge_id(pipeline, place),
        source=vertex_id(pipeline, place - 1),
        target=vertex_id(pipeline, place),
        ship=ship,
        key_columns=("k",) if ship is Ship.HASH else (),
        partition=PartitionType.BLOCKING if place in pipeline.blocking else PartitionType.PIPELINED_BOUNDED,
    )


def chains_of(pipelines: tuple[SimPipeline, ...], table: Table) -> dict[VertexId, Callable[[], Chain]]:
    """Vertex -> creates the operators of one task."""
    return {
        vertex_id(pipeline, place): _chain_factory(pipeline, place, table)
        for pipeline in pipelines
        for place in range(len(pipeline.parallelism))
    }


def _chain_factory(pipeline: SimPipeline, place: int, table: Table) -> Callable[[], Chain]:
    shape = SHAPES[pipeline.shape]
    roles = shape[place]

    def make() -> Chain:
        nodes = []
        for index, role in enumerate(roles):
            last = index == len(roles) - 1
            outputs: tuple[LocalOutput | EdgeOutput, ...] = ()
            if not last:
                outputs = (LocalOutput(target=index + 1),)
            elif place + 1 < len(shape):
                outputs = (EdgeOutput(edge=_edge_id(pipeline, place + 1)),)
            operator = _operator(pipeline, role, table)
            nodes.append(ChainNode(uid=_uid(pipeline, role), name=role, operator=operator, outputs=outputs))
        return Chain(nodes=tuple(nodes))

    return make


def _operator(pipeline: SimPipeline, role: str, table: Table) -> object:
    sink = TableSink(table, whole=pipeline.whole)
    sink_uid = OperatorUid(pipeline.name)
    match role:
        case "source":
            source = SimSource(pipeline.contents, table.world)
            return SourceOperatorSpec(source=source, watermarks=WatermarkStrategy.no_watermarks())
        case "map" if pipeline.holds:
            return ProcessOperator(InGroups(), returns=ROWS)
        case "map":
            return FragileOperator(table.world)
        case "count":
            if pipeline.merge_at is None:
                return CountOperator()
            return FiledCountOperator(table.world, pipeline.merge_at)
        case "writer":
            return SinkWriterOperator(sink, sink_uid)
        case _:
            return CommitterOperator(sink, sink_uid)


def vertex_id(pipeline: SimPipeline, place: int) -> VertexId:
    return VertexId(f"{pipeline.name}v{place}")


def _edge_id(pipeline: SimPipeline, place: int) -> EdgeId:
    return EdgeId(f"{pipeline.name}e{place}")


def _uid(pipeline: SimPipeline, role: str) -> OperatorUid:
    return OperatorUid(f"{pipeline.name}-{role}")
