"""Scheduling's picture of a job and the plan that tasks are deployed by agree on who reads whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.graphs import BOUNDED, job_of, node
from unistream.base.ids import AttemptId, JobId, PartitionId, SubtaskId
from unistream.core.graph import Pattern, Topology
from unistream.core.graph.execution_graph import execution_graph
from unistream.core.graph.plan import ExecutionPlan
from unistream.model.graph import JobGraph, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.stream_graph import StreamEdge, StreamGraph

SHIPS = [ship for ship in Ship if ship is not Ship.FORWARD]
TYPES = [None, PartitionType.BLOCKING]


@st.composite
def job_graphs(draw: st.DrawFn) -> JobGraph:
    """Up to six vertices of up to seven subtasks, each fed by any of those before it, some of them twice."""
    count = draw(st.integers(1, 6))
    inputs = [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(count)]
    nodes = [
        node(
            i,
            f"n{i}",
            parallelism=draw(st.integers(1, 7)),
            max_parallelism=64,
            source=None if inputs[i] else BOUNDED,
        )
        for i in range(count)
    ]
    edges = [
        StreamEdge(
            source=source,
            target=i,
            ship=draw(st.sampled_from(SHIPS)),
            key_columns=("k",),
            partition=draw(st.sampled_from(TYPES)) if source == 0 else None,
        )
        for i in range(count)
        for source in inputs[i]
    ]
    return job_of(StreamGraph(nodes=nodes, edges=edges), chaining=False)


@given(job_graphs())
def test_topology_and_plan_agree(graph: JobGraph) -> None:
    topology, plan = Topology.of(graph), ExecutionPlan(graph)
    assert set(topology.all_subtasks()) == set(plan.subtasks)
    assert topology.size == len(plan.subtasks)
    links = {link.id: link for link in topology.links}
    assert list(links) == [edge.id for edge in graph.edges]
    for edge in graph.edges:
        link = links[edge.id]
        assert (link.source, link.target, link.partition) == (edge.source, edge.target, edge.partition)
        for consumer in range(topology.parallelism[edge.target]):
            assert topology.producers(link, consumer) == plan.producers(edge, consumer)
        for producer in range(topology.parallelism[edge.source]):
            assert topology.consumers(link, producer) == plan.consumers(edge, producer)
    attempts = {s: AttemptId(JobId("j"), s.vertex, s.index, 0) for s in plan.subtasks}
    for subtask in plan.subtasks:
        made = [PartitionId(subtask, partition.edge) for partition in plan.partitions(subtask)]
        assert sorted(made) == sorted(topology.produced(subtask))
        gates = plan.gates(subtask, attempts, {})
        read = {(c.edge, c.producer.subtask) for gate in gates for c in gate.channels}
        inputs = topology.inputs[subtask.vertex]
        groups = [topology.group(link, topology.group_of_consumer(link, subtask.index)) for link in inputs]
        assert read == {(g.link.id, SubtaskId(g.link.source, p)) for g in groups for p in g.producers}


@given(job_graphs())
def test_the_described_partitions_are_those_of_the_plan(graph: JobGraph) -> None:
    plan = ExecutionPlan(graph)
    described = execution_graph(graph, regions=1_000)
    assert (
        sum(len(region.subtasks) for region in described.regions) == described.subtasks == len(plan.subtasks)
    )
    for edge, found in zip(graph.edges, described.edges, strict=True):
        widths = [len(plan.consumers(edge, producer)) for producer in range(found.partitions)]
        if found.pattern is Pattern.ALL_TO_ALL or found.partitions <= found.groups:
            assert (min(widths), max(widths)) == found.consumers
        assert found.mapping is not None
        pairs = {(p, c) for producers, consumers in found.mapping for p in producers for c in consumers}
        assert pairs == {(p, c) for p in range(found.partitions) for c in plan.consumers(edge, p)}
