"""Scheduling strategies: nothing too early, nothing twice, nothing never, on random graphs with failures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conformance.scheduling import HybridConstraint, VertexwiseStrategy
from tests.unit.core.flink_cases import PlayedJob
from tests.unit.core.random_graphs import RUNNABLE, UNGLUED, pairs_of, topologies
from unistream.base.config import SCHEDULING_STRATEGY
from unistream.base.errors import ConfigError, ProtocolError
from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.core.execution import Bulks, SchedulingStrategy, create_strategy
from unistream.core.execution.failover import RestartPipelinedRegion
from unistream.core.execution.scheduling_strategy import (
    EagerStrategy,
    LazyFromSourcesStrategy,
    PipelinedRegionStrategy,
)
from unistream.core.graph import Link, Pattern, Topology, build_regions
from unistream.core.graph.regions import region_circles
from unistream.model.execution_state import ExecutionState
from unistream.model.partition_type import PartitionType

Make = Callable[[Topology, PlayedJob], SchedulingStrategy]
P, B, H = PartitionType.PIPELINED_BOUNDED, PartitionType.BLOCKING, PartitionType.HYBRID_FULL
STARTED = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


def _by_region(topology: Topology, job: PlayedJob) -> SchedulingStrategy:
    return PipelinedRegionStrategy(build_regions(topology), job)


class Cluster:
    """Obeys a strategy: bulks are deployed, run and finish in any order."""

    def __init__(self, topology: Topology, make: Make) -> None:
        self.topology = topology
        self.job = PlayedJob(topology)
        self.regions = build_regions(topology)
        self.strategy = make(topology, self.job)
        self.bulks: list[tuple[SubtaskId, ...]] = []
        self.needs: dict[SubtaskId, list[tuple[Link, SubtaskId]]] = {s: [] for s in topology.all_subtasks()}
        for link in topology.links:
            for producer, consumer in pairs_of(topology, link):
                self.needs[consumer].append((link, producer))

    def start(self) -> None:
        self.obey(self.strategy.start())

    def obey(self, bulks: Bulks) -> None:
        for bulk in bulks:
            assert [self.topology.number(s) for s in bulk] == sorted(self.topology.number(s) for s in bulk)
            for subtask in bulk:
                assert self.job.states[subtask] is ExecutionState.CREATED
                self.job.states[subtask] = ExecutionState.SCHEDULED
        firsts = [self.topology.number(bulk[0]) for bulk in bulks]
        assert firsts == sorted(firsts)
        for subtask in (subtask for bulk in bulks for subtask in bulk):
            self._check_inputs(subtask)
        self.bulks += bulks

    def _check_inputs(self, subtask: SubtaskId) -> None:
        if isinstance(self.strategy, EagerStrategy):
            return
        together = self.regions.of(subtask)
        lazy = isinstance(self.strategy, LazyFromSourcesStrategy)
        for link, producer in self.needs[subtask]:
            if not lazy and producer in together.subtasks:
                continue
            if link.partition.is_blocking:
                assert self.job.is_produced(PartitionId(producer, link.reads))
            elif lazy:
                assert self.job.states[producer] in STARTED
            else:
                assert self.job.states[producer] is not ExecutionState.CREATED

    def at(self, state: ExecutionState) -> list[SubtaskId]:
        return [subtask for subtask, found in self.job.states.items() if found is state]

    def step(self, chance: random.Random) -> bool:
        """One subtask goes on; False: none can."""
        scheduled = self.at(ExecutionState.SCHEDULED)
        running = [s for s in self.at(ExecutionState.RUNNING) if self._may_finish(s)]
        if not scheduled and not running:
            return False
        subtask = chance.choice(scheduled + running)
        if self.job.states[subtask] is ExecutionState.SCHEDULED:
            self.job.states[subtask] = ExecutionState.RUNNING
            self.obey(self.strategy.on_running(subtask))
        else:
            self.job.finish(subtask)
            self.obey(self.strategy.on_finished(subtask))
        return True

    def _may_finish(self, subtask: SubtaskId) -> bool:
        return all(
            self.job.states[producer] is ExecutionState.FINISHED for _, producer in self.needs[subtask]
        )

    def fail(self, subtask: SubtaskId) -> None:
        restarted = RestartPipelinedRegion(self.regions).tasks_to_restart(subtask, None, self.job)
        for each in restarted:
            self.job.reset(each)
        self.obey(self.strategy.restart(restarted))

    def run(self, seed: int, failures: int = 0) -> None:
        chance = random.Random(seed)
        self.start()
        while self.step(chance):
            alive = self.at(ExecutionState.RUNNING)
            if failures and alive and chance.random() < 0.2:
                failures -= 1
                self.fail(chance.choice(alive))


STRATEGIES: dict[str, Make] = {
    "pipelined-region": _by_region,
    "eager": lambda topology, _: EagerStrategy(topology),
    "lazy": LazyFromSourcesStrategy,
}


@given(topologies(), st.sampled_from(list(STRATEGIES)), st.integers(0, 99))
def test_every_subtask_runs_once_unless_regions_wait_for_each_other(
    topology: Topology, name: str, seed: int
) -> None:
    cluster = Cluster(topology, STRATEGIES[name])
    cluster.run(seed)
    scheduled = [subtask for bulk in cluster.bulks for subtask in bulk]
    assert len(scheduled) == len(set(scheduled))
    complete = cluster.at(ExecutionState.FINISHED) == topology.all_subtasks()
    stuck = name == "pipelined-region" and bool(region_circles(topology))
    assert complete is not stuck


@given(topologies(RUNNABLE), st.sampled_from(list(STRATEGIES)), st.integers(0, 999))
def test_jobs_end_after_failures_of_regions(topology: Topology, name: str, seed: int) -> None:
    if region_circles(topology):
        return
    cluster = Cluster(topology, STRATEGIES[name])
    cluster.run(seed, failures=5)
    assert cluster.at(ExecutionState.FINISHED) == topology.all_subtasks()


class VertexwiseCluster(Cluster):
    """Checks inputs by the constraint."""

    def __init__(self, topology: Topology, constraint: HybridConstraint) -> None:
        super().__init__(topology, lambda topology, job: VertexwiseStrategy(topology, job, constraint))
        self._constraint = constraint

    def _check_inputs(self, subtask: SubtaskId) -> None:
        for link, _ in self.needs[subtask]:
            states = [self.job.states[producer] for other, producer in self.needs[subtask] if other is link]
            finished = [state is ExecutionState.FINISHED for state in states]
            if link.partition.is_blocking or self._constraint is HybridConstraint.ALL_PRODUCERS_FINISHED:
                assert all(finished)
            elif self._constraint is HybridConstraint.ONLY_FINISHED_PRODUCERS:
                assert any(finished)
            else:
                assert ExecutionState.CREATED not in states


@given(topologies(UNGLUED), st.sampled_from(HybridConstraint), st.integers(0, 99))
def test_vertexwise_schedules_each_subtask_by_itself(
    topology: Topology, constraint: HybridConstraint, seed: int
) -> None:
    cluster = VertexwiseCluster(topology, constraint)
    cluster.run(seed)
    assert cluster.at(ExecutionState.FINISHED) == topology.all_subtasks()
    assert [len(bulk) for bulk in cluster.bulks] == [1] * topology.size


def _line(kinds: Iterable[PartitionType], pattern: Pattern, parallelism: int = 2) -> Topology:
    names = [VertexId(letter) for letter, _ in zip("abcdefgh", [None, *kinds], strict=False)]
    links = [
        Link(id=EdgeId(f"{a}{b}"), source=a, target=b, pattern=pattern, partition=kind)
        for a, b, kind in zip(names, names[1:], kinds, strict=False)
    ]
    return Topology([(name, parallelism) for name in names], links)


def _texts(bulks: Bulks) -> list[str]:
    return [" ".join(map(str, bulk)) for bulk in bulks]


def test_eager_takes_all_as_one_bulk_and_restarts_what_it_is_told() -> None:
    topology = _line([P, B], Pattern.ALL_TO_ALL)
    strategy = create_strategy("eager", build_regions(topology), PlayedJob(topology))
    assert _texts(strategy.start()) == ["a#0 a#1 b#0 b#1 c#0 c#1"]
    first = topology.all_subtasks()[0]
    assert (strategy.on_running(first), strategy.on_finished(first)) == ((), ())
    assert _texts(strategy.restart(reversed(topology.subtasks(VertexId("b"))))) == ["b#0 b#1"]
    assert strategy.restart([]) == ()


def test_lazy_waits_until_all_producers_run() -> None:
    topology = _line([P, B], Pattern.ALL_TO_ALL)
    job = PlayedJob(topology)
    strategy = LazyFromSourcesStrategy(topology, job)
    assert _texts(strategy.start()) == ["a#0", "a#1"]
    found = []
    for subtask in topology.subtasks(VertexId("a")):
        job.states[subtask] = ExecutionState.RUNNING
        found.append(_texts(strategy.on_running(subtask)))
    assert found == [[], ["b#0", "b#1"]]
    consumers = topology.subtasks(VertexId("b"))
    for subtask in consumers:
        job.states[subtask] = ExecutionState.RUNNING
        assert strategy.on_running(subtask) == ()
    job.finish(consumers[0])
    assert strategy.on_finished(consumers[0]) == ()
    job.finish(consumers[1])
    assert _texts(strategy.on_finished(consumers[1])) == ["c#0", "c#1"]


def test_lazy_follows_a_task_that_was_never_seen_running() -> None:
    topology = _line([P], Pattern.POINTWISE)
    job = PlayedJob(topology)
    strategy = LazyFromSourcesStrategy(topology, job)
    source = topology.subtasks(VertexId("a"))[0]
    assert _texts(strategy.start()) == ["a#0", "a#1"]
    job.states[source] = ExecutionState.FINISHED
    assert _texts(strategy.on_finished(source)) == ["b#0"]


def test_an_input_of_which_the_region_makes_a_part_waits_for_the_rest_only() -> None:
    """Of the group {b#1, b#2} that c#1 reads, b#2 is in its region, and b#1 is not."""
    a, b, c = (VertexId(name) for name in "abc")

    def link(source: VertexId, target: VertexId, kind: PartitionType) -> Link:
        ends = EdgeId(f"{source}{target}")
        return Link(id=ends, source=source, target=target, pattern=Pattern.POINTWISE, partition=kind)

    topology = Topology([(a, 4), (b, 3), (c, 2)], [link(a, b, P), link(b, c, B), link(a, c, P)])
    cluster = Cluster(topology, _by_region)
    cluster.start()
    assert _texts(cluster.bulks) == ["a#0 a#1 b#0 b#1 c#0"]
    cluster.job.finish(SubtaskId(b, 1))
    cluster.obey(cluster.strategy.on_finished(SubtaskId(b, 1)))
    assert _texts(cluster.bulks[1:]) == ["a#2 a#3 b#2 c#1"]


def test_a_region_restarts_alone_while_its_inputs_are_there() -> None:
    topology = _line([B, P], Pattern.POINTWISE)
    cluster = Cluster(topology, _by_region)
    cluster.start()
    assert _texts(cluster.bulks) == ["a#0", "a#1"]
    for subtask in topology.subtasks(VertexId("a")):
        cluster.job.states[subtask] = ExecutionState.RUNNING
        cluster.job.finish(subtask)
        cluster.obey(cluster.strategy.on_finished(subtask))
    assert _texts(cluster.bulks[2:]) == ["b#0 c#0", "b#1 c#1"]
    cluster.fail(SubtaskId(VertexId("c"), 1))
    assert _texts(cluster.bulks[4:]) == ["b#1 c#1"]


def test_a_new_start_takes_up_what_is_already_complete() -> None:
    topology = _line([B], Pattern.ALL_TO_ALL)
    job = PlayedJob(topology)
    for subtask in topology.subtasks(VertexId("a")):
        job.produced |= set(topology.produced(subtask))
    assert _texts(_by_region(topology, job).start()) == ["a#0", "a#1", "b#0", "b#1"]


def test_scheduling_what_is_not_created_is_a_bug() -> None:
    topology = _line([B], Pattern.ALL_TO_ALL)
    job = PlayedJob(topology)
    job.states[SubtaskId(VertexId("a"), 1)] = ExecutionState.RUNNING
    with pytest.raises(ProtocolError, match="a#1 is to be scheduled, but is RUNNING"):
        _by_region(topology, job).start()


def test_each_name_of_the_option_is_a_strategy_and_no_other() -> None:
    topology = _line([P], Pattern.POINTWISE)
    regions, job = build_regions(topology), PlayedJob(topology)
    names = ("pipelined-region", "eager", "lazy-from-sources")
    kinds = [type(create_strategy(SCHEDULING_STRATEGY.parse(name), regions, job)) for name in names]
    assert kinds == [PipelinedRegionStrategy, EagerStrategy, LazyFromSourcesStrategy]
    for parse in (SCHEDULING_STRATEGY.parse, lambda name: create_strategy(name, regions, job)):
        with pytest.raises(ConfigError, match="lazy-from-sources"):
            parse("lazy")


class _Counted(PlayedJob):
    """Counts what it is asked."""

    questions = 0

    def is_produced(self, partition: PartitionId) -> bool:
        self.questions += 1
        return super().is_produced(partition)


@pytest.mark.parametrize("kind", [B, H])
def test_an_all_to_all_exchange_costs_no_question_for_each_pair(kind: PartitionType) -> None:
    topology = _line([kind] * 3, Pattern.ALL_TO_ALL, parallelism=300)
    job = _Counted(topology)
    strategy = _by_region(topology, job)
    scheduled = sum(map(len, strategy.start()))
    for subtask in topology.all_subtasks():
        job.states[subtask] = ExecutionState.FINISHED
        job.produced |= set(topology.produced(subtask))
        scheduled += sum(map(len, strategy.on_finished(subtask)))
    assert scheduled == topology.size
    assert job.questions < 10 * topology.size
