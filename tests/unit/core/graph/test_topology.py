"""Order, numbering, groups and data sets of a topology."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from tests.unit.core.random_graphs import pairs_of, topologies
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.core.graph import Link, Pattern, Topology
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.partition_type import PartitionType


def _link(
    ends: str,
    *,
    dataset: str | None = None,
    partition: PartitionType = PartitionType.BLOCKING,
    number: int = 0,
) -> Link:
    source, target = ends
    return Link(
        id=EdgeId(f"{ends}{number}"),
        source=VertexId(source),
        target=VertexId(target),
        pattern=Pattern.POINTWISE,
        partition=partition,
        dataset=None if dataset is None else EdgeId(dataset),
    )


def _topology(vertices: str, links: list[Link]) -> Topology:
    return Topology([(VertexId(v), 2) for v in vertices], links)


@pytest.mark.parametrize(
    ("vertices", "edges", "order"),
    [
        pytest.param("abc", [], "abc", id="unconnected vertices stay as given"),
        pytest.param("abcd", ["ab", "cd"], "acbd", id="sources come first"),
        pytest.param("abcde", ["ab", "ac", "bd", "be"], "abdec", id="depth first along the outputs"),
        pytest.param("abcd", ["ac", "ab", "cd"], "acdb", id="outputs in the order of the edges"),
        pytest.param("abcd", ["ab", "ad", "bc", "cd"], "abcd", id="after its last producer"),
        pytest.param("cba", ["ab", "bc"], "abc", id="whatever order is given"),
        pytest.param("ab", ["ab", "ab"], "ab", id="two edges between the same vertices"),
    ],
)
def test_vertices_are_in_the_order_that_flink_schedules_in(
    vertices: str, edges: list[str], order: str
) -> None:
    topology = _topology(vertices, [_link(ends, number=number) for number, ends in enumerate(edges)])
    assert "".join(topology.vertices) == order
    assert list(topology.parallelism) == list(order)


def test_consumers_of_one_data_set_follow_each_other() -> None:
    links = [_link("ab", dataset="x"), _link("ac"), _link("ad", dataset="x")]
    assert "".join(_topology("abcd", links).vertices) == "abdc"


def test_a_deep_graph_is_no_deep_recursion() -> None:
    names = [VertexId(f"v{place:05}") for place in range(5_000)]
    links = [
        Link(
            id=EdgeId(a),
            source=a,
            target=b,
            pattern=Pattern.POINTWISE,
            partition=PartitionType.PIPELINED,
        )
        for a, b in pairwise(names)
    ]
    assert list(Topology([(name, 1) for name in reversed(names)], links).vertices) == names


@pytest.mark.parametrize(
    ("links", "words"),
    [
        pytest.param([_link("ab"), _link("bc"), _link("cb")], "'b', 'c'.*cycle", id="a cycle"),
        pytest.param([_link("az")], "edge 'az0'.*does not exist", id="an unknown vertex"),
    ],
)
def test_what_is_no_topology_is_refused(links: list[Link], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _topology("abc", links)


def test_links_of_one_data_set_read_the_same_partitions() -> None:
    links = [_link("ab", dataset="x"), _link("ac", dataset="x"), _link("ad")]
    topology = _topology("abcd", links)
    producer = SubtaskId(VertexId("a"), 1)
    shared, own = topology.produced(producer)
    assert (shared, own) == (PartitionId(producer, EdgeId("x")), PartitionId(producer, EdgeId("ad0")))


def test_a_job_graph_is_seen_with_its_names_patterns_and_partitions() -> None:
    def vertex(name: str) -> JobVertex:
        operator = OperatorInfo(uid=name, name=name)
        return JobVertex(
            id=VertexId(name), name=f"the {name}", operators=(operator,), parallelism=2, max_parallelism=128
        )

    edges = [
        JobEdge(id=EdgeId(ship.value), source=VertexId("a"), target=VertexId("b"), ship=ship) for ship in Ship
    ]
    topology = Topology.of(JobGraph(name="job", vertices=(vertex("a"), vertex("b")), edges=tuple(edges)))
    assert topology.name(VertexId("a")) == "the a"
    pointwise = {link.id for link in topology.links if link.pattern is Pattern.POINTWISE}
    assert pointwise == {"forward", "rescale"}
    assert {link.partition for link in topology.links} == {PartitionType.PIPELINED_BOUNDED}


@given(topologies())
def test_groups_are_the_pairs_of_a_link(topology: Topology) -> None:
    for link in topology.links:
        groups = [topology.group(link, number) for number in range(topology.groups(link))]
        pairs = [
            (SubtaskId(link.source, producer), SubtaskId(link.target, consumer))
            for group in groups
            for producer in group.producers
            for consumer in group.consumers
        ]
        assert sorted(pairs) == sorted(pairs_of(topology, link))
        for group in groups:
            assert {topology.group_of_producer(link, p) for p in group.producers} == {group.number}
            assert {topology.group_of_consumer(link, c) for c in group.consumers} == {group.number}


@given(topologies())
def test_subtasks_are_numbered_in_order(topology: Topology) -> None:
    subtasks = topology.all_subtasks()
    assert topology.size == len(subtasks)
    assert [topology.number(subtask) for subtask in subtasks] == list(range(topology.size))
    for link in topology.links:
        assert topology.vertices.index(link.source) < topology.vertices.index(link.target)
