"""How long does scheduling take: deciding, starting a job in slots that are there, recovering a lost worker?

    python -m benchmarks.scheduling                       every sub-benchmark
    python -m benchmarks.scheduling planning              a graph of 100,000 subtasks, in three shapes
    python -m benchmarks.scheduling planning --shape blocking --subtasks 10000
    python -m benchmarks.scheduling schedule              4 vertices of 64 subtasks on a MiniCluster
    python -m benchmarks.scheduling recovery              a local worker is killed, and one is stopped
    python -m benchmarks.scheduling recovery --target spark

schedule: seconds from submission to RUNNING, with new workers and with the slots of workers that are there.
Where they go, and what they were before: docs/decision/bundled-messages.md. With --exchange rebalance every
task reads every other one, and the whole cluster is one process: 9,216 channels in 576 streams at width 64.
recovery: ms from SIGKILL or SIGSTOP of a worker to its detection, and to all tasks RUNNING again.

planning: one JSON line for each shape. planned_s is what a submission waits for: chaining, plan, regions;
start_s is the first answer of the scheduling strategy, finish_s all its answers until every subtask has
finished, and failover_s the decision about one failure. Each number is the smallest of the runs, peak_rss_mb
the largest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from benchmarks import cluster_times
from benchmarks.harness import measure
from unistream.base.ids import OperatorUid, PartitionId, SubtaskId
from unistream.core.execution import ExecutionState
from unistream.core.execution.failover import RestartPipelinedRegion
from unistream.core.execution.scheduling_strategy import PipelinedRegionStrategy
from unistream.core.graph import Regions, Topology, build_regions, resolve, translate_resolved
from unistream.core.graph.plan import ExecutionPlan
from unistream.core.graph.regions import check_regions
from unistream.model.graph import JobGraph, Ship, SourceInfo
from unistream.model.partition_type import PartitionType
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

T = TypeVar("T")

SUBTASKS = 100_000
VERTICES = 25  # so that none is wider than a vertex may be
CHAINED = 4  # operators of each vertex
RUNS = 3
SHAPES: Mapping[str, str] = {
    "pipelined": "a stream: every exchange is all-to-all and pipelined; one region",
    "blocking": "a batch job: every exchange is all-to-all and blocking; as many regions as subtasks",
    "mixed": "all-to-all and blocking, then pointwise and pipelined, in turn",
}


class Job:
    """States and finished partitions of a job that only exists here."""

    def __init__(self) -> None:
        self.finished: set[SubtaskId] = set()

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return ExecutionState.FINISHED if subtask in self.finished else ExecutionState.CREATED

    def is_produced(self, partition: PartitionId) -> bool:
        return partition.producer in self.finished

    def is_available(self, partition: PartitionId) -> bool:
        return True


def stream_graph(shape: str, subtasks: int) -> StreamGraph:
    """A pipeline of `VERTICES` vertices, each a chain of `CHAINED` operators."""
    graph = StreamGraph(name=f"{shape} planning")
    for place in range(VERTICES * CHAINED):
        vertex, step = divmod(place, CHAINED)
        source = SourceInfo(connector="datagen", options={}, bounded=True, pull=True)
        graph.nodes.append(
            StreamNode(
                id=place,
                name=f"operator {place}",
                operator=None,
                uid=OperatorUid(f"operator-{place}"),
                parallelism=subtasks // VERTICES,
                source=source if place == 0 else None,
            )
        )
        if place:
            ship = Ship.FORWARD if step else Ship.HASH
            if not step and shape == "mixed" and vertex % 2:
                ship = Ship.RESCALE
            keys = ("key",) if ship is Ship.HASH else ()
            graph.edges.append(StreamEdge(source=place - 1, target=place, ship=ship, key_columns=keys))
    return graph


def with_partitions(graph: JobGraph, shape: str) -> JobGraph:
    """The exchanges stored where the shape wants them to be."""

    def partition(ship: Ship) -> PartitionType:
        stored = shape == "blocking" or (shape == "mixed" and ship is Ship.HASH)
        return PartitionType.BLOCKING if stored else PartitionType.PIPELINED_BOUNDED

    edges = tuple(msgspec.structs.replace(edge, partition=partition(edge.ship)) for edge in graph.edges)
    return msgspec.structs.replace(graph, edges=edges)


def plan_once(shape: str, subtasks: int) -> dict[str, float]:
    """Plans, schedules and fails one job; seconds by step."""
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = work()
        seconds[f"{step}_s"] = round(time.perf_counter() - started, 3)
        return result

    stream = stream_graph(shape, subtasks)
    graph, _ = timed(
        "chaining",
        lambda: translate_resolved(
            resolve(stream, parallelism=1, max_parallelism=None, chaining=True, config={}), {}
        ),
    )
    graph = with_partitions(graph, shape)
    plan = timed("plan", lambda: ExecutionPlan(graph))
    regions = timed("regions", lambda: _regions(graph))
    if len(plan.subtasks) != subtasks // VERTICES * VERTICES or len(graph.vertices) != VERTICES:
        raise SystemExit(
            f"{len(graph.vertices)} vertices of {len(plan.subtasks)} subtasks: not what was meant"
        )
    seconds["planned_s"] = round(seconds["chaining_s"] + seconds["plan_s"] + seconds["regions_s"], 3)
    job = Job()
    strategy = PipelinedRegionStrategy(regions, job)
    scheduled = timed("start", lambda: sum(map(len, strategy.start())))
    scheduled += timed("finish", lambda: sum(_finish(job, strategy, plan.subtasks)))
    if scheduled != len(plan.subtasks):
        raise SystemExit(f"{scheduled} of {len(plan.subtasks)} subtasks were scheduled")
    failover = RestartPipelinedRegion(regions)
    restarted = timed("failover", lambda: failover.tasks_to_restart(plan.subtasks[0], None, job))
    return {"regions": len(regions), "restarted": len(restarted), **seconds}


def _regions(graph: JobGraph) -> Regions:
    topology = Topology.of(graph)
    check_regions(topology)
    return build_regions(topology)


def _finish(job: Job, strategy: PipelinedRegionStrategy, subtasks: Sequence[SubtaskId]) -> Sequence[int]:
    """All subtasks finish, one after the other; how many each of them caused to be scheduled."""
    counts = []
    for subtask in subtasks:
        job.finished.add(subtask)
        counts.append(sum(map(len, strategy.on_finished(subtask))))
    return counts


def planning(options: argparse.Namespace) -> None:
    """Prints one line for each shape."""
    for shape in [options.shape] if options.shape else SHAPES:
        arguments = ["planning", "--shape", shape, "--subtasks", str(options.subtasks), "--once"]
        runs = [measure(["benchmarks.scheduling", *arguments]) for _ in range(RUNS)]
        results = [json.loads(run.output) for run in runs]
        line = {
            "benchmark": "scheduling",
            "part": "planning",
            "shape": shape,
            "subtasks": options.subtasks,
            **{key: min(result[key] for result in results) for key in results[0]},
            "peak_rss_mb": max(run.peak_rss_mb for run in runs),
        }
        print(json.dumps(line), flush=True)


PARTS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "planning": planning,
    "schedule": cluster_times.schedule,
    "recovery": cluster_times.recovery,
}
"""Sub-benchmark -> what prints its lines."""


def main(arguments: Sequence[str] | None = None) -> None:
    shapes = "\n".join(f"    {name:<10} {what}" for name, what in SHAPES.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nShapes:\n{shapes}", formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=list(PARTS), help="only this sub-benchmark")
    parser.add_argument("--shape", choices=list(SHAPES), help="planning: only this shape")
    parser.add_argument("--subtasks", type=int, default=SUBTASKS, help="planning: size of the graph")
    width, exchanges = cluster_times.WIDTH, cluster_times.EXCHANGES
    parser.add_argument("--width", type=int, default=width, help="schedule: subtasks of a vertex")
    parser.add_argument("--exchange", choices=exchanges, default=exchanges[0], help="schedule: how rows go")
    parser.add_argument("--target", choices=("local", "spark"), default="local", help="recovery: workers")
    parser.add_argument("--once", action="store_true", help="planning: one run of --shape in this process")
    options = parser.parse_args(arguments)
    if options.once:
        print(json.dumps(plan_once(options.shape or "pipelined", options.subtasks)))
        return
    for part in [options.part] if options.part else PARTS:
        PARTS[part](options)


if __name__ == "__main__":
    sys.exit(main())
