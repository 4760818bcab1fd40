"""The three graphs of a job as text: what was written, what shares a task, what runs.

Of a large graph the first part is shown, and how much is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from unistream.base.config import BATCH_ENGINE, Configuration
from unistream.base.ids import VertexId
from unistream.core.graph.execution_graph import (
    ExecutionEdge,
    ExecutionGraph,
    execution_graph,
    members,
    text,
)
from unistream.core.graph.regions import Region
from unistream.core.graph.stages import NATIVE_ENGINE, StagePlan, offloaded_vertices, why_no_stages
from unistream.core.graph.topology import Pattern
from unistream.core.graph.translate import Resolved
from unistream.model.graph import JobEdge, JobGraph, JobType, JobVertex
from unistream.model.stream_graph import ChainingStrategy, StreamEdge

LISTED: Final = 100  # vertices, operators or edges of one list
RUNS_LISTED: Final = 8  # runs of indices of one vertex in one region


def explain(resolved: Resolved, job: JobGraph) -> str:
    """All three, one after the other, and the engine of a BATCH job or of a bounded part. `job` is what
    `resolved` was translated to."""
    parts = [explain_stream(resolved), explain_job(job), explain_execution(execution_graph(job), job)]
    if job.job_type is JobType.BATCH:
        parts.append(explain_engine(job))
    parts += explain_bounded_part(resolved, job)
    return "\n\n".join(parts)


def explain_submitted(job: JobGraph) -> str:
    """What is known of a job that was submitted: all but the stream graph, which is what its user wrote."""
    parts = [explain_job(job), explain_execution(execution_graph(job), job)]
    if job.job_type is JobType.BATCH:
        parts.append(explain_engine(job))
    return "\n\n".join(parts)


def explain_stream(resolved: Resolved) -> str:
    """What the user wrote: operators, and for each edge why it is an exchange."""
    graph = resolved.graph
    lines = [
        f"stream graph {graph.name!r}: {_count(len(graph.nodes), 'operator')}, "
        f"{_count(len(graph.edges), 'edge')}"
    ]
    lines += _first(_operators(resolved), len(graph.nodes), "operators")
    edges = (
        _stream_edge(edge.edge, edge.ship.value, why)
        for edge, why in zip(resolved.edges, resolved.chains.obstacles, strict=True)
    )
    lines += _first(edges, len(graph.edges), "edges")
    return "\n".join(lines)


def _operators(resolved: Resolved) -> Iterator[str]:
    for place in resolved.order:
        found = resolved.nodes[place]
        marks = [f"parallelism {found.parallelism}", f"slots {found.group}"]
        if found.node.chaining is not ChainingStrategy.ALWAYS:
            marks.append(f"chaining {found.node.chaining.value}")
        if found.node.colocation_group is not None:
            marks.append(f"co-located {found.node.colocation_group}")
        if found.node.left_out:
            marks.append(f"without {', '.join(found.node.left_out)}, which nobody uses")
        if found.node.expression:
            marks.append(found.node.expression)
        if found.node.selection:
            marks.append(f"where {found.node.selection}, as far as statistics say")
        yield f"  {place}: {found.node.name}  ({', '.join(marks)})"


def _stream_edge(edge: StreamEdge, ship: str, why: str | None) -> str:
    tag = f" of side output {edge.tag!r}" if edge.tag is not None else ""
    keys = f" by {', '.join(edge.key_columns)}" if edge.key_columns else ""
    return f"  {edge.source} -> {edge.target} {ship}{keys}{tag}: " + (
        "chained" if why is None else f"exchange, {why}"
    )


def explain_job(graph: JobGraph) -> str:
    """What shares a task: one vertex after the other, with its operators and inputs."""
    numbers = _numbers(graph)
    inputs: dict[VertexId, list[JobEdge]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target].append(edge)
    lines = [
        f"job graph {graph.name!r}: {_count(len(graph.vertices), 'vertex', 'vertices')}, "
        f"{_count(len(graph.edges), 'exchange')}, {graph.job_type.value}"
    ]
    for vertex in graph.vertices[:LISTED]:
        lines += _vertex(vertex, inputs[vertex.id], numbers)
    return "\n".join(lines + _left_out(len(graph.vertices), "vertices"))


def _vertex(vertex: JobVertex, inputs: Sequence[JobEdge], numbers: dict[VertexId, int]) -> Iterator[str]:
    yield (
        f"[{numbers[vertex.id]}] {vertex.name}  "
        f"(parallelism {vertex.parallelism} of {vertex.max_parallelism}, slots {vertex.slot_sharing_group})"
    )
    if vertex.source is not None:
        kind = "bounded" if vertex.source.bounded else "unbounded"
        yield f"    source {vertex.source.connector}, {kind}"
    for edge in inputs[:LISTED]:
        keys = f" by {', '.join(edge.key_columns)}" if edge.key_columns else ""
        stored = ", blocking" if edge.partition.is_blocking else ""
        yield f"    input {edge.input_index} <- [{numbers[edge.source]}] {edge.ship.value}{keys}{stored}"
    yield from (f"    {line}" for line in _left_out(len(inputs), "inputs"))
    for operator in vertex.operators[:LISTED]:
        marks = ["stateful"] * operator.stateful + ["generated uid"] * operator.generated_uid
        yield f"    {operator.uid}: {operator.name}" + (f"  ({', '.join(marks)})" if marks else "")
    yield from (f"    {line}" for line in _left_out(len(vertex.operators), "operators"))


def explain_execution(graph: ExecutionGraph, job: JobGraph) -> str:
    """What runs: subtasks, partitions, regions."""
    numbers = _numbers(job)
    lines = [f"execution graph: {_count(graph.subtasks, 'subtask')}, {_count(graph.region_count, 'region')}"]
    vertices = (f"[{numbers[v.id]}] subtasks {text(range(v.parallelism))} attempt 0" for v in job.vertices)
    lines += _first(vertices, len(job.vertices), "vertices")
    lines += _first((_partitions(edge, numbers) for edge in graph.edges), len(graph.edges), "edges")
    lines += [_region(region, numbers) for region in graph.regions]
    if graph.region_count > len(graph.regions):
        least, most = graph.region_sizes
        lines.append(
            f"  ... and {graph.region_count - len(graph.regions):,} more regions; "
            f"all have {_between(least, most, 'subtask')}"
        )
    return "\n".join(lines)


def explain_engine(graph: JobGraph, part: Sequence[VertexId] = ()) -> str:
    """What runs a BATCH job, or the bounded part of a stream, and its stages if that can be Spark."""
    configured, reason = (
        Configuration(graph.config).find(BATCH_ENGINE),
        None if part else why_no_stages(graph),
    )
    if reason is not None:
        return f"engine: native, the built-in runtime: {reason}"
    if configured == NATIVE_ENGINE:
        return f"engine: native, the built-in runtime ({BATCH_ENGINE.key})"
    numbers, plan = _numbers(graph), StagePlan(graph, part)
    stages = _count(len(plan.stages), "stage")
    lines = [f"engine: spark ({BATCH_ENGINE.key}), {stages}"]
    if configured is None:
        lines = [f"engine: spark if the target is Spark, {stages}; otherwise native, the built-in runtime"]
    listed = (
        f"  stage {number}: {_listed(stage.vertices, numbers)}: {_count(len(stage.places), 'task')}"
        for number, stage in enumerate(plan.stages)
    )
    lines += _first(listed, len(plan.stages), "stages")
    if plan.committers:
        lines.append(f"  commit: {_listed(plan.committers, numbers)}")
    return "\n".join(lines)


def explain_bounded_part(resolved: Resolved, job: JobGraph) -> list[str]:
    """What of a stream runs before it, and which bounded operators do not, with the reason."""
    part = offloaded_vertices(job)
    lines = []
    if part:
        lines.append(f"bounded part, runs before the stream: {_listed(part, _numbers(job))}")
        lines += [f"  {line}" for line in explain_engine(job, part).splitlines()]
    left = resolved.exchanges.part.left
    lines += _first((f"not in the bounded part: {why}" for why in left), len(left), "reasons")
    return ["\n".join(lines)] if lines else []


def _listed(vertices: Sequence[VertexId], numbers: dict[VertexId, int]) -> str:
    more = f" and {len(vertices) - LISTED:,} more" if len(vertices) > LISTED else ""
    return ", ".join(f"[{numbers[vertex]}]" for vertex in vertices[:LISTED]) + more


def _partitions(edge: ExecutionEdge, numbers: dict[VertexId, int]) -> str:
    what = (
        f"[{numbers[edge.edge.source]}] -> [{numbers[edge.edge.target]}] {edge.pattern.value}: "
        f"{_count(edge.partitions, 'partition')} {edge.edge.partition.value} of "
        f"{_between(*edge.consumers, 'subpartition')}"
    )
    if edge.pattern is Pattern.ALL_TO_ALL:
        return what
    if edge.mapping is not None:
        pairs = ", ".join(f"{text(producers)} -> {text(consumers)}" for producers, consumers in edge.mapping)
        return f"{what}: {pairs}"
    return (
        f"{what}, in {_count(edge.groups, 'group')} of {_between(*edge.producers, 'producer')} and "
        f"{_between(*edge.consumers, 'consumer')}"
    )


def _region(region: Region, numbers: dict[VertexId, int]) -> str:
    parts = [
        f"[{numbers[vertex]}] "
        + ", ".join(text(run) for run in found[:RUNS_LISTED])
        + (", ..." if len(found) > RUNS_LISTED else "")
        for vertex, found in members(region).items()
    ]
    more = f"; and {len(parts) - LISTED:,} more vertices" if len(parts) > LISTED else ""
    return f"  region {region.number}: {'; '.join(parts[:LISTED])}{more}"


def _numbers(graph: JobGraph) -> dict[VertexId, int]:
    return {vertex.id: number for number, vertex in enumerate(graph.vertices, 1)}


def _first(lines: Iterable[str], total: int, what: str) -> list[str]:
    shown = [
        line if line.startswith(" ") else f"  {line}" for line, _ in zip(lines, range(LISTED), strict=False)
    ]
    return shown + [f"  {line}" for line in _left_out(total, what)]


def _left_out(total: int, what: str) -> list[str]:
    return [f"... and {total - LISTED:,} more {what}"] if total > LISTED else []


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _between(least: int, most: int, noun: str) -> str:
    return _count(most, noun) if least == most else f"{least:,} to {_count(most, noun)}"
