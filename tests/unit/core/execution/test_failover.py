"""Failover against the rules, pair by pair, on random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.flink_cases import PlayedJob
from tests.unit.core.random_graphs import pairs_of, topologies
from unistream.base.config import FAILOVER_STRATEGY
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.core.execution import create_failover
from unistream.core.execution.failover import RestartAll, RestartPipelinedRegion
from unistream.core.graph import Link, Pattern, Topology, build_regions
from unistream.model.execution_state import ExecutionState
from unistream.model.partition_type import PartitionType


@st.composite
def failures(draw: st.DrawFn) -> tuple[Topology, PlayedJob, SubtaskId, PartitionId | None]:
    """A job in some state, a failed subtask, and perhaps a partition that it could not read."""
    topology = draw(topologies())
    job = PlayedJob(topology, ExecutionState.RUNNING)
    states = st.sampled_from([ExecutionState.CREATED, ExecutionState.RUNNING, ExecutionState.FINISHED])
    for subtask in topology.all_subtasks():
        job.states[subtask] = draw(states)
    partitions = [p for subtask in topology.all_subtasks() for p in topology.produced(subtask)]
    if partitions:
        job.lost = draw(st.sets(st.sampled_from(partitions), max_size=3))
    failed = draw(st.sampled_from(topology.all_subtasks()))
    read = [
        PartitionId(SubtaskId(group.link.source, producer), group.link.reads)
        for link in topology.inputs[failed.vertex]
        for group in [topology.group(link, topology.group_of_consumer(link, failed.index))]
        for producer in group.producers
    ]
    return topology, job, failed, draw(st.sampled_from([None, *read]))


def _oracle(
    topology: Topology, job: PlayedJob, failed: SubtaskId, lost: PartitionId | None
) -> set[SubtaskId]:
    """The rules, repeated over all pairs until nothing is added."""
    regions = build_regions(topology)
    found = set(regions.of(failed).subtasks)
    pairs = [(link, *pair) for link in topology.links for pair in pairs_of(topology, link)]
    size = 0
    while size != len(found):
        size = len(found)
        for link, producer, consumer in pairs:
            partition = PartitionId(producer, link.reads)
            kept = link.partition.is_reconsumable or link.partition is PartitionType.PIPELINED_APPROXIMATE
            available = kept and partition != lost and partition not in job.lost
            if producer in found:
                found |= set(regions.of(consumer).subtasks)
            if consumer in found and not available:
                found |= set(regions.of(producer).subtasks)
    return {subtask for subtask in found if job.states[subtask] is not ExecutionState.CREATED}


@given(failures())
def test_restarts_are_what_the_rules_say(
    failure: tuple[Topology, PlayedJob, SubtaskId, PartitionId | None],
) -> None:
    topology, job, failed, lost = failure
    strategy = RestartPipelinedRegion(build_regions(topology))
    expected = _oracle(topology, job, failed, lost)
    assert strategy.tasks_to_restart(failed, lost, job) == expected
    assert strategy.tasks_to_restart(failed, lost, job) == expected  # it remembers nothing
    everything = {s for s, state in job.states.items() if state is not ExecutionState.CREATED}
    assert RestartAll(topology).tasks_to_restart(failed, lost, job) == everything


def test_the_other_of_two_pipelines_is_left_alone() -> None:
    names = [VertexId(name) for name in "abcd"]
    links = [
        Link(
            id=EdgeId(f"{a}{b}"),
            source=a,
            target=b,
            pattern=Pattern.ALL_TO_ALL,
            partition=PartitionType.PIPELINED_BOUNDED,
        )
        for a, b in (names[:2], names[2:])
    ]
    topology = Topology([(name, 2) for name in names], links)
    job = PlayedJob(topology, ExecutionState.RUNNING)
    strategy = create_failover("region", build_regions(topology))
    found = strategy.tasks_to_restart(SubtaskId(names[3], 0), None, job)
    assert sorted(map(str, found)) == ["c#0", "c#1", "d#0", "d#1"]


def test_a_shared_data_set_that_is_lost_takes_all_its_readers_along() -> None:
    a, b, c = (VertexId(name) for name in "abc")
    links = [
        Link(
            id=EdgeId(f"a{target}"),
            source=a,
            target=target,
            pattern=Pattern.POINTWISE,
            partition=PartitionType.BLOCKING,
            dataset=EdgeId("x"),
        )
        for target in (b, c)
    ]
    topology = Topology([(a, 2), (b, 2), (c, 2)], links)
    job = PlayedJob(topology, ExecutionState.RUNNING)
    strategy = RestartPipelinedRegion(build_regions(topology))
    lost = PartitionId(SubtaskId(a, 1), EdgeId("x"))
    assert sorted(map(str, strategy.tasks_to_restart(SubtaskId(b, 1), lost, job))) == ["a#1", "b#1", "c#1"]
    assert strategy.tasks_to_restart(SubtaskId(b, 1), None, job) == {SubtaskId(b, 1)}


def test_each_name_of_the_option_is_a_strategy_and_no_other() -> None:
    regions = build_regions(Topology([(VertexId("a"), 1)], []))
    kinds = [type(create_failover(FAILOVER_STRATEGY.parse(name), regions)) for name in ("region", "full")]
    assert kinds == [RestartPipelinedRegion, RestartAll]
    with pytest.raises(ConfigError, match=r"jobmanager\.execution\.failover-strategy.*'all'"):
        create_failover("all", regions)
