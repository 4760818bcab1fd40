"""The three graphs of a job as JSON values; stream graph and job graph have the shape of Flink's plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from unistream.base.config import BATCH_ENGINE, Configuration
from unistream.base.ids import EdgeId, VertexId
from unistream.core.graph.execution_graph import ExecutionEdge, execution_graph, members, text
from unistream.core.graph.stages import NATIVE_ENGINE, StagePlan, offloaded_vertices, why_no_stages
from unistream.core.graph.translate import Resolved, vertex_id
from unistream.model.graph import JobEdge, JobGraph, JobType

Json = dict[str, Any]

REGIONS_LISTED: Final = 1_000  # a job of one region per subtask has up to 100,000


def plan_json(resolved: Resolved, job: JobGraph) -> Json:
    """All three, and the engine of a BATCH job or of a bounded part. `job` is what `resolved` was translated
    to."""
    plan: Json = {
        "name": job.name,
        "type": job.job_type.value,
        "streamGraph": stream_plan(resolved),
        "jobGraph": job_plan(job),
        "executionGraph": execution_plan(job),
    }
    if job.job_type is JobType.BATCH:
        plan["engine"] = engine_plan(job)
    part, left = offloaded_vertices(job), resolved.exchanges.part.left
    if part or left:
        plan["boundedPart"] = {"vertices": list(part), "left": list(left)} | (
            engine_plan(job, part) if part else {}
        )
    return plan


def engine_plan(job: JobGraph, part: Sequence[VertexId] = ()) -> Json:
    """The engine that is configured (None: by the target), and the stages if that can be Spark. `part`: of
    the bounded part of a stream."""
    configured, reason = Configuration(job.config).find(BATCH_ENGINE), None if part else why_no_stages(job)
    if reason is not None:
        return {"engine": NATIVE_ENGINE, "reason": reason}
    if configured == NATIVE_ENGINE:
        return {"engine": NATIVE_ENGINE}
    plan = StagePlan(job, part)
    stages = [{"vertices": list(stage.vertices), "tasks": len(stage.places)} for stage in plan.stages]
    return {"engine": configured, "stages": stages, "committers": list(plan.committers)}


def stream_plan(resolved: Resolved) -> Json:
    """What the user wrote. Flink's execution plan; `vertex`, `uid`, `chained` and `obstacle` are added."""
    predecessors: dict[int, list[Json]] = defaultdict(list)
    consumed: set[int] = set()
    for edge, why in zip(resolved.edges, resolved.chains.obstacles, strict=True):
        consumed.add(edge.edge.source)
        predecessor: Json = {
            "id": edge.edge.source,
            "ship_strategy": edge.ship.name,
            "side": "first" if edge.edge.input_index == 0 else "second",
            "input": edge.edge.input_index,
            "chained": why is None,
        }
        if why is not None:
            predecessor["obstacle"] = why
            predecessor["exchange"] = resolved.exchanges.partition(edge.edge, edge.ship).value.lower()
        if edge.edge.tag is not None:
            predecessor["sideOutput"] = edge.edge.tag
        if edge.edge.key_columns:
            predecessor["keys"] = list(edge.edge.key_columns)
        predecessors[edge.edge.target].append(predecessor)
    nodes = []
    for place in resolved.order:
        found = resolved.nodes[place]
        kind = "Operator" if place in consumed else "Data Sink"
        node: Json = {
            "id": place,
            "type": found.node.name,
            "pact": "Data Source" if found.node.source is not None else kind,
            "contents": found.node.name,
            "parallelism": found.parallelism,
            "maxParallelism": found.max_parallelism,
            "uid": found.uid,
            "slotSharingGroup": found.group,
            "chaining": found.node.chaining.value,
            "vertex": vertex_id(resolved, place),
        }
        nodes.append({**node, "predecessors": predecessors[place]} if place in predecessors else node)
    return {"nodes": nodes}


def job_plan(graph: JobGraph, *, jid: str | None = None, name: str | None = None) -> Json:
    """What shares a task: Flink's ``/jobs/:jobid/plan``, without its outer key.

    Args:
        graph: The job.
        jid: Its id; None: it has none yet, and the field is left out.
        name: If it is another one than the graph's.
    """
    inputs: dict[VertexId, list[JobEdge]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target].append(edge)
    nodes = []
    for vertex in graph.vertices:
        node: Json = {
            "id": vertex.id,
            "operator": "",
            "parallelism": vertex.parallelism,
            "operator_strategy": "",
            "description": "<br/>".join(operator.name for operator in vertex.operators) or vertex.name,
            "optimizer_properties": {},
        }
        read = [
            {
                "num": number,
                "id": edge.source,
                "ship_strategy": edge.ship.name,
                "exchange": edge.partition.value.lower(),
            }
            for number, edge in enumerate(inputs[vertex.id])
        ]
        nodes.append({**node, "inputs": read} if read else node)
    head: Json = {} if jid is None else {"jid": jid}
    return {**head, "name": name or graph.name, "type": graph.job_type.value, "nodes": nodes}


def execution_plan(job: JobGraph) -> Json:
    """What runs. Indices of subtasks are written ``first-last``; all-to-all pairs are not listed."""
    graph = execution_graph(job, regions=REGIONS_LISTED)
    produced: dict[VertexId, list[EdgeId]] = defaultdict(list)
    for edge in job.edges:
        produced[edge.source].append(edge.id)
    return {
        "subtasks": graph.subtasks,
        "vertices": [
            {
                "id": vertex.id,
                "name": vertex.name,
                "parallelism": vertex.parallelism,
                "maxParallelism": vertex.max_parallelism,
                "slotSharingGroup": vertex.slot_sharing_group,
                "attempts": [{"subtasks": text(range(vertex.parallelism)), "attempt": 0}],
                "produces": produced[vertex.id],
            }
            for vertex in job.vertices
        ],
        "edges": [_edge(edge) for edge in graph.edges],
        "regions": {
            "count": graph.region_count,
            "subtasksLeast": graph.region_sizes[0],
            "subtasksMost": graph.region_sizes[1],
            "listed": [
                {
                    "id": region.number,
                    "size": len(region.subtasks),
                    "subtasks": {
                        vertex: [text(run) for run in runs] for vertex, runs in members(region).items()
                    },
                }
                for region in graph.regions
            ],
        },
    }


def _edge(edge: ExecutionEdge) -> Json:
    described: Json = {
        "id": edge.edge.id,
        "source": edge.edge.source,
        "target": edge.edge.target,
        "shipStrategy": edge.edge.ship.name,
        "distributionPattern": edge.pattern.value,
        "partitionType": edge.edge.partition.value,
        "partitions": edge.partitions,
        "subpartitions": list(edge.consumers),
        "groups": edge.groups,
    }
    if edge.mapping is not None:
        described["mapping"] = [
            {"producers": text(producers), "consumers": text(consumers)}
            for producers, consumers in edge.mapping
        ]
    return described
