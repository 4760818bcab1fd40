"""What a seed stands for: the jobs, the cluster, the user's wishes and the intensities of faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.sink import CommitterOperator, SinkWriterOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.testing.sim.faults import Faults, draw
from unistream.testing.sim.pipeline import CountOperator, FragileOperator, Input, SimSource
from unistream.testing.sim.table import Table, TableSink

MAX_PARALLELISM: Final = 8  # key groups: few, so that snapshots are small
HEARTBEAT_MS: Final = 2_000
HEARTBEAT_TIMEOUT_MS: Final = 7_000

SHAPES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "chained": (("source", "map", "writer", "committer"),),
    "keyed": (("source", "map"), ("count", "writer", "committer")),
    "global": (("source",), ("map", "count", "writer"), ("committer",)),
    "long": (("source",), ("map",), ("count", "writer"), ("committer",)),
}
"""Vertices of a pipeline, each the roles that are chained in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Source to sink. `parallelism`: of each vertex. `name`: of its sink, and before all its other names."""

    name: str
    shape: str
    parallelism: tuple[int, ...]
    contents: Input
    pointwise: bool

    @property
    def has_counts(self) -> bool:
        return self.shape != "chained"

    @property
    def whole(self) -> bool:
        """One committer for all writers."""
        return SHAPES[self.shape][-1] == ("committer",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user asks for, `at_ms` after the start: a snapshot, or (None) to cancel the job."""

    at_ms: float
    kind: SnapshotKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run.

    Attributes:
        jobs: Pipelines of each job.
        slots: Of each worker.
        faulty_ms: How long the safety phase takes.
        wishes: For the first job.
        resubmits: How often the same request comes again.
        go_on: A stopped job is started again from its savepoint.
    """

    jobs: tuple[tuple[Pipeline, ...], ...]
    slots: int
    config: Mapping[str, str]
    faults: Faults
    faulty_ms: float
    wishes: tuple[Wish, ...]
    resubmits: int
    go_on: bool

    def text(self) -> str:
        """All that was drawn, on one line."""
        jobs = "; ".join(
            " + ".join(
                f"{p.shape}{p.parallelism} {p.contents.splits}x{p.contents.rows} rows"
                f"{'' if p.contents.bounded else ' unbounded'}{' pull' if p.contents.pull else ''}"
                for p in job
            )
            for job in self.jobs
        )
        wishes = ", ".join(f"{w.kind.value if w.kind else 'cancel'}@{w.at_ms:.0f}" for w in self.wishes)
        return (
            f"jobs: {jobs} | slots {self.slots} | wishes: {wishes or 'none'} | faults: {self.faults.text()}"
        )


def scenario_of(random: Random) -> Scenario:
    """Draws a run."""
    faults = draw(random)
    jobs: list[tuple[Pipeline, ...]] = []
    first = 0
    for job in range(2 if random.random() < 0.15 else 1):
        pipelines: list[Pipeline] = []
        bounded = random.random() < 0.75
        for place in range(2 if random.random() < 0.25 else 1):
            pipeline = _pipeline(random, f"s{job}{place}", first, bounded=bounded)
            first += pipeline.contents.splits
            pipelines.append(pipeline)
        jobs.append(tuple(pipelines))
    return Scenario(
        jobs=tuple(jobs),
        slots=random.choice((1, 1, 2, 3)),
        config=_config(random),
        faults=faults,
        faulty_ms=random.choice((4_000, 7_000, 10_000, 16_000)),
        wishes=_wishes(random),
        resubmits=random.choice((0, 0, 1, 3)),
        go_on=random.random() < 0.7,
    )


def _pipeline(random: Random, name: str, first: int, *, bounded: bool) -> Pipeline:
    shape = random.choice(tuple(SHAPES))
    widths = (1, 1, 2, 2, 3)
    vertices = SHAPES[shape]
    parallelism = [random.choice(widths) for _ in vertices]
    if vertices[-1] == ("committer",):
        parallelism[-1] = 1
    contents = Input(
        first=first,
        splits=random.choice((1, 2, 3)),
        rows=random.choice((4, 8, 16)),
        batch=random.choice((1, 3, 6)),
        pace_ms=random.choice((100, 300, 800)),
        keys=random.choice((1, 3, 8)),
        bounded=bounded,
        pull=bounded and random.random() < 0.4,
    )
    return Pipeline(
        name=name,
        shape=shape,
        parallelism=tuple(parallelism),
        contents=contents,
        pointwise=random.random() < 0.4,
    )


def _config(random: Random) -> dict[str, str]:
    return {
        "pipeline.auto-watermark-interval": "1 h",
        "execution.buffer-timeout.interval": random.choice(("0 ms", "20 ms", "200 ms")),
        "execution.checkpointing.interval": random.choice(("400 ms", "1 s", "2 s")),
        "execution.checkpointing.timeout": random.choice(("2 s", "5 s")),
        "execution.checkpointing.min-pause": random.choice(("0 ms", "0 ms", "500 ms")),
        "execution.checkpointing.tolerable-failed-checkpoints": random.choice(("0", "2", "100")),
        "execution.checkpointing.num-retained": random.choice(("1", "1", "3")),
        "restart-strategy.type": random.choice(("fixed-delay", "exponential-delay")),
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.exponential-delay.initial-backoff": "100 ms",
        "restart-strategy.exponential-delay.max-backoff": "3 s",
        "restart-strategy.fixed-delay.delay": random.choice(("0 ms", "100 ms", "1 s")),
        "slot.request.timeout": random.choice(("3 s", "20 s")),
        "heartbeat.interval": f"{HEARTBEAT_MS} ms",
        "heartbeat.timeout": f"{HEARTBEAT_TIMEOUT_MS} ms",
        "task.cancellation.timeout": "5 s",
        "taskmanager.network.partition-request-timeout": "3 s",
        "sink.committer.retries": "2",
    }


def _wishes(random: Random) -> tuple[Wish, ...]:
    drawn = random.random()
    at_ms = 1_000 + 12_000 * random.random()
    if drawn < 0.6:
        return ()
    if drawn < 0.7:
        return (Wish(at_ms=at_ms, kind=None),)
    wishes = [Wish(at_ms=at_ms, kind=SnapshotKind.SAVEPOINT)]
    if drawn >= 0.78:
        kind = random.choice((SnapshotKind.SUSPEND, SnapshotKind.TERMINATE))
        wishes.append(Wish(at_ms=at_ms + 4_000 * random.random(), kind=kind))
    return tuple(wishes)


# --- graphs -----------------------------------------------------------------------------------------


def graph_of(name: str, pipelines: tuple[Pipeline, ...], config: Mapping[str, str]) -> JobGraph:
    """The job as its master sees it."""
    vertices: list[JobVertex] = []
    edges: list[JobEdge] = []
    for pipeline in pipelines:
        for place, roles in enumerate(SHAPES[pipeline.shape]):
            vertices.append(
                JobVertex(
                    id=_vertex(pipeline, place),
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
    return JobGraph(name=name, vertices=tuple(vertices), edges=tuple(edges), config=dict(config))


def _edge(pipeline: Pipeline, place: int) -> JobEdge:
    roles = SHAPES[pipeline.shape][place]
    ship = Ship.RESCALE if pipeline.pointwise else Ship.REBALANCE
    if roles[0] == "committer":
        ship = Ship.GLOBAL
    elif "count" in roles:
        ship = Ship.HASH
    return JobEdge(
        id=_edge_id(pipeline, place),
        source=_vertex(pipeline, place - 1),
        target=_vertex(pipeline, place),
        ship=ship,
        key_columns=("k",) if ship is Ship.HASH else (),
    )


def chains_of(pipelines: tuple[Pipeline, ...], table: Table) -> dict[VertexId, Callable[[], Chain]]:
    """Vertex -> new operators for one task of it."""
    return {
        _vertex(pipeline, place): _chain_factory(pipeline, place, table)
        for pipeline in pipelines
        for place in range(len(pipeline.parallelism))
    }


def _chain_factory(pipeline: Pipeline, place: int, table: Table) -> Callable[[], Chain]:
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


def _operator(pipeline: Pipeline, role: str, table: Table) -> object:
    sink = TableSink(table, whole=pipeline.whole)
    sink_uid = OperatorUid(pipeline.name)
    match role:
        case "source":
            source = SimSource(pipeline.contents, table.world)
            return SourceOperatorSpec(source=source, watermarks=WatermarkStrategy.no_watermarks())
        case "map":
            return FragileOperator(table.world)
        case "count":
            return CountOperator()
        case "writer":
            return SinkWriterOperator(sink, sink_uid)
        case _:
            return CommitterOperator(sink, sink_uid)


def _vertex(pipeline: Pipeline, place: int) -> VertexId:
    return VertexId(f"{pipeline.name}v{place}")


def _edge_id(pipeline: Pipeline, place: int) -> EdgeId:
    return EdgeId(f"{pipeline.name}e{place}")


def _uid(pipeline: Pipeline, role: str) -> OperatorUid:
    return OperatorUid(f"{pipeline.name}-{role}")
