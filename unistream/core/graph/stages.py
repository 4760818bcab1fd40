"""The stages of a BATCH job, or of the bounded part of a stream, for an engine that runs all tasks of one
stage, moves their output to the tasks of the next, and so on, as Spark does.

    stage 0   sources ───────────────┐ pieces of rows, each addressed to a place of the next stage
    stage 1   tasks, relays ◄────────┘
      …
    commit    committers and what is behind them: they run once, over what the attempts that won have staged

A vertex is placed as late as its consumers allow. Where an edge passes a stage by, a relay there sends its
pieces on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.config import BATCH_ENGINE, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, SubtaskId, VertexId
from unistream.model.graph import JobEdge, JobGraph, JobType, JobVertex

SPARK_ENGINE: Final = "spark"
NATIVE_ENGINE: Final = "native"
"""Values of `execution.batch.engine`."""
_NO_BOOTSTRAP: Final = (
    "bootstrap needs Spark's engine: use the target spark, and leave out execution.batch.engine=native"
)


@dataclass(frozen=True, slots=True)
class Relay:
    """Sends on the pieces of one edge for one consumer."""

    edge: EdgeId
    consumer: int


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs at the places of one stage, numbered from 0."""

    vertices: tuple[VertexId, ...]
    places: tuple[SubtaskId | Relay, ...]


def why_no_stages(graph: JobGraph) -> str | None:
    """Why an engine cannot run the job stage by stage, for people; None: it can."""
    if graph.bootstrap is not None:
        return None  # it reads the history alone
    for vertex in graph.vertices:
        if vertex.source is not None and vertex.source.phases:
            return f"source {vertex.name!r} reads what follows its history when all tasks have read that"
    return None


def offloaded_vertices(graph: JobGraph) -> tuple[VertexId, ...]:
    """The bounded part of a STREAMING job."""
    return tuple(vertex.id for vertex in graph.vertices if vertex.offloaded)


def choose_engine(graph: JobGraph, config: Configuration, *, target: str, on_spark: bool) -> str:
    """`SPARK_ENGINE` or `NATIVE_ENGINE`, for a BATCH job or the bounded part of a stream.

    Args:
        graph: Of the job.
        config: Of the job.
        target: Of the cluster, for people.
        on_spark: The cluster is on Spark.

    Raises:
        ConfigError: the engine that is configured cannot run the job.
    """
    part = offloaded_vertices(graph)
    if graph.job_type is not JobType.BATCH and not part:
        return NATIVE_ENGINE
    chosen, reason = config.find(BATCH_ENGINE), None if part else why_no_stages(graph)
    if graph.bootstrap is not None and (chosen == NATIVE_ENGINE or not on_spark):
        raise ConfigError(_NO_BOOTSTRAP)
    if chosen is None:
        return SPARK_ENGINE if on_spark and reason is None else NATIVE_ENGINE
    if chosen == SPARK_ENGINE and not on_spark:
        raise ConfigError(
            f"{BATCH_ENGINE.key}: spark needs a cluster on Spark, and this one has the target {target}; use "
            f"the target spark, or {BATCH_ENGINE.key}=native"
        )
    if chosen == SPARK_ENGINE and reason is not None:
        raise ConfigError(f"{BATCH_ENGINE.key}: spark cannot run this job: {reason}; leave it out")
    return chosen


class StagePlan:
    """Where each vertex runs, and where each piece goes.

    Args:
        part: Only these vertices are run, of which none has a sink, and the whole graph before them. What
            leaves them is stored; where, is one piece for consumer 0 of such an edge. Empty: all.

    Attributes:
        stages: In the order in which they run; each has a place at least.
        committers: Committers and what is behind them, producers first: they run when all stages have.
        stored: Edges that leave the part.
    """

    def __init__(self, graph: JobGraph, part: Collection[VertexId] = ()) -> None:
        vertices = {vertex.id: vertex for vertex in graph.vertices if not part or vertex.id in part}
        self._edges = {edge.id: edge for edge in graph.edges if edge.source in vertices}
        self.stored = frozenset(edge.id for edge in self._edges.values() if edge.target not in vertices)
        self.committers = () if part else _behind_committables(graph)
        in_stages = [vertex for vertex in vertices.values() if vertex.id not in self.committers]
        heights = _heights(in_stages, graph.edges)
        depth = max(heights.values()) + 1
        self._stage_of = {vertex: depth - 1 - height for vertex, height in heights.items()}
        self._stage_of |= dict.fromkeys(self.committers, depth)
        self._stage_of |= {self._edges[edge].target: depth for edge in self.stored}
        self.stages = tuple(self._stage(number, in_stages, vertices) for number in range(depth))
        self._places = [{found: place for place, found in enumerate(stage.places)} for stage in self.stages]

    def place(self, stage: int, edge: EdgeId, consumer: int) -> int | None:
        """Where stage number `stage` gets the pieces of `edge` for `consumer`; None: a committer does, or the
        stream."""
        if stage == len(self.stages):
            return None
        target = self._edges[edge].target
        here = self._places[stage]
        return here[SubtaskId(target, consumer) if self._stage_of[target] == stage else Relay(edge, consumer)]

    def _stage(
        self, number: int, in_stages: Sequence[JobVertex], vertices: Mapping[VertexId, JobVertex]
    ) -> Stage:
        here = tuple(vertex.id for vertex in in_stages if self._stage_of[vertex.id] == number)
        tasks = [SubtaskId(vertex, index) for vertex in here for index in range(vertices[vertex].parallelism)]
        relays = [
            Relay(edge.id, consumer)
            for edge in self._edges.values()
            if self._stage_of[edge.source] < number < self._stage_of[edge.target]
            for consumer in range(1 if edge.id in self.stored else vertices[edge.target].parallelism)
        ]
        return Stage(here, (*tasks, *relays))


def _behind_committables(graph: JobGraph) -> tuple[VertexId, ...]:
    found: set[VertexId] = set()
    for vertex in graph.vertices:  # topological
        inputs = [edge for edge in graph.edges if edge.target == vertex.id]
        if any(edge.committables or edge.source in found for edge in inputs):
            found.add(vertex.id)
    return tuple(vertex.id for vertex in graph.vertices if vertex.id in found)


def _heights(vertices: Sequence[JobVertex], edges: Sequence[JobEdge]) -> dict[VertexId, int]:
    """How many stages follow each vertex."""
    heights = {vertex.id: 0 for vertex in vertices}
    for vertex in reversed(vertices):
        following = [
            heights[edge.target] for edge in edges if edge.source == vertex.id and edge.target in heights
        ]
        if following:
            heights[vertex.id] = max(following) + 1
    return heights
