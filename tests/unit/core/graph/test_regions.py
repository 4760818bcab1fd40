"""Regions against the rules, pair by pair, on random graphs; and what is refused."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conformance.regions import whole_graph_regions
from tests.unit.core.random_graphs import pairs_of, topologies
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, SubtaskId, VertexId
from unistream.core.graph import (
    Link,
    Pattern,
    Regions,
    Topology,
    build_regions,
    logical_regions,
    singletons,
)
from unistream.core.graph.components import connected, strongly_connected
from unistream.core.graph.regions import check_regions, region_circles
from unistream.model.partition_type import PartitionType

Sets = set[frozenset[SubtaskId]]


def _closure(nodes: Iterable[object], arcs: set[tuple[object, object]]) -> dict[object, set[object]]:
    """What can be reached from each node, itself included."""
    reached = {node: {node} for node in nodes}
    changed = True
    while changed:
        changed = False
        for source, target in arcs:
            if not reached[target] <= reached[source]:
                reached[source] |= reached[target]
                changed = True
        for node, found in reached.items():
            larger = set().union(*(reached[other] for other in found))
            if larger != found:
                reached[node] = larger
                changed = True
    return reached


def _classes(nodes: Iterable[object], arcs: set[tuple[object, object]]) -> set[frozenset[object]]:
    """Nodes that reach each other."""
    reached = _closure(nodes, arcs)
    return {frozenset(b for b in reached[a] if a in reached[b]) for a in reached}


def _oracle(topology: Topology, members: Iterable[VertexId], *, sole: bool) -> Sets:
    """Regions of the subtasks of `members`, by the text of the rules."""
    inside = set(members)
    links = [link for link in topology.links if {link.source, link.target} <= inside]
    subtasks = [subtask for vertex in members for subtask in topology.subtasks(vertex)]
    if sole and any(link.pattern is Pattern.ALL_TO_ALL for link in links):
        return {frozenset(subtasks)}
    arcs: set[tuple[object, object]] = set()
    for link in links:
        for producer, consumer in pairs_of(topology, link):
            arcs.add((producer, consumer))
            if link.partition.must_be_pipelined:
                arcs.add((consumer, producer))
    return _classes(subtasks, arcs)


def _sets(regions: Regions) -> Sets:
    return {frozenset(region.subtasks) for region in regions}


@given(topologies())
def test_regions_are_what_the_rules_say(topology: Topology) -> None:
    glue = {(k.source, k.target) for k in topology.links if k.partition.must_be_pipelined}
    logical = logical_regions(topology)
    assert {frozenset(r) for r in logical} == _classes(topology.vertices, glue | {(b, a) for a, b in glue})
    expected = set().union(*(_oracle(topology, members, sole=True) for members in logical))
    assert _sets(build_regions(topology)) == expected
    assert _sets(whole_graph_regions(topology)) == _oracle(topology, topology.vertices, sole=False)


@given(topologies(), st.sampled_from([build_regions, whole_graph_regions, singletons]))
def test_regions_are_in_order_and_know_their_inputs(topology: Topology, build: object) -> None:
    regions = build(topology)
    numbers = [topology.number(region.subtasks[0]) for region in regions]
    assert numbers == sorted(numbers)
    assert sum(len(region.subtasks) for region in regions) == topology.size
    assert [regions[number] for number in range(len(regions))] == list(regions)
    for place, region in enumerate(regions):
        assert region.number == place
        own = [topology.number(subtask) for subtask in region.subtasks]
        assert own == sorted(own)
        assert all(regions.of(subtask) is region for subtask in region.subtasks)
        inputs = regions.inputs(region)
        found = {
            (needed.group.link.id, SubtaskId(needed.group.link.source, producer))
            for needed in inputs
            for producer in needed.producers
        }
        assert found == {
            (link.id, producer)
            for link in topology.links
            for producer, consumer in pairs_of(topology, link)
            if consumer in region.subtasks and producer not in region.subtasks
        }
        assert len({(needed.group.link.id, needed.group.number) for needed in inputs}) == len(inputs)


@given(topologies())
def test_a_whole_input_has_no_producer_in_the_region(topology: Topology) -> None:
    regions = build_regions(topology)
    for region in regions:
        for needed in regions.inputs(region):
            source = needed.group.link.source
            inside = [i for i in needed.group.producers if regions.number_of(source, i) == region.number]
            assert needed.is_whole is (not inside)


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), _arcs(n))))
def test_components(graph: tuple[int, list[tuple[int, int]]]) -> None:
    size, arcs = graph
    both = {*arcs, *((b, a) for a, b in arcs)}
    left, right = (np.array([arc[side] for arc in arcs], dtype=np.int64) for side in (0, 1))
    labels = connected(size, left, right).tolist()
    smallest = {node: min(found) for found in _classes(range(size), both) for node in found}
    assert labels == [smallest[node] for node in range(size)]
    numbers = strongly_connected([[b for a, b in arcs if a == node] for node in range(size)])
    classes = {frozenset(i for i in range(size) if numbers[i] == number) for number in numbers}
    assert classes == _classes(range(size), set(arcs))


def _arcs(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    node = st.integers(0, size - 1)
    return st.lists(st.tuples(node, node), max_size=40)


def test_a_long_line_is_one_component_in_few_rounds() -> None:
    size = 200_000
    order = np.random.Generator(np.random.Philox(7)).permutation(size)
    assert set(connected(size, order[:-1], order[1:]).tolist()) == {0}
    ring = strongly_connected([[(node + 1) % size] for node in range(size)])
    assert len(set(ring)) == 1


# --- what is refused --------------------------------------------------------------------------------


def _job(
    edges: list[tuple[str, PartitionType]],
    *,
    colocations: tuple[tuple[str, ...], ...] = (),
    pattern: Pattern = Pattern.POINTWISE,
) -> Topology:
    names = sorted({name for ends, _ in edges for name in ends})
    return Topology(
        [(VertexId(name), 2) for name in names],
        [
            Link(
                id=EdgeId(f"e{place}"),
                source=VertexId(ends[0]),
                target=VertexId(ends[1]),
                pattern=pattern,
                partition=kind,
            )
            for place, (ends, kind) in enumerate(edges)
        ],
        colocations=tuple(tuple(VertexId(v) for v in group) for group in colocations),
        names={VertexId(name): f"op {name}" for name in names},
    )


P, B, H = PartitionType.PIPELINED_BOUNDED, PartitionType.BLOCKING, PartitionType.HYBRID_FULL


@pytest.mark.parametrize(
    ("edges", "named"),
    [
        pytest.param([("ab", B), ("ac", P), ("bd", B), ("cd", P)], "acdb", id="around a pipelined path"),
        pytest.param([("ab", P), ("cd", P), ("ad", B), ("cb", B)], "abcd", id="two that feed each other"),
        pytest.param([("ab", P), ("cd", P), ("ad", H), ("cb", H)], "abcd", id="over hybrid exchanges"),
    ],
)
@pytest.mark.parametrize("pattern", Pattern)
def test_regions_that_wait_for_each_other_are_refused_by_name(
    edges: list[tuple[str, PartitionType]], named: str, pattern: Pattern
) -> None:
    topology = _job(edges, pattern=pattern)
    (circle,) = region_circles(topology)
    assert sorted("".join("".join(members) for members in circle)) == sorted(named)
    with pytest.raises(ConfigError, match="never start") as refused:
        check_regions(topology)
    for vertex in named:
        assert f"'op {vertex}'" in str(refused.value)
    for ends, kind in edges:
        listed = f"'op {ends[0]}' -> 'op {ends[1]}'" in str(refused.value)
        assert listed is not kind.must_be_pipelined


@pytest.mark.parametrize(
    "edges",
    [
        pytest.param([("ab", B), ("ac", B), ("bd", B), ("cd", B)], id="all blocking"),
        pytest.param([("ab", P), ("ac", P), ("bd", P), ("cd", P)], id="all pipelined"),
        pytest.param([("ab", P), ("bc", P), ("ac", B)], id="a blocking exchange inside a region"),
        pytest.param([("ab", P), ("bc", B), ("cd", P)], id="two stages"),
    ],
)
@pytest.mark.parametrize("pattern", Pattern)
def test_others_are_not(edges: list[tuple[str, PartitionType]], pattern: Pattern) -> None:
    topology = _job(edges, colocations=(("a",),), pattern=pattern)
    assert region_circles(topology) == ()
    check_regions(topology)


@pytest.mark.parametrize(
    ("kind", "refused"), [pytest.param(P, False, id="pipelined"), pytest.param(B, True, id="blocking")]
)
def test_strict_colocation_across_regions(kind: PartitionType, refused: bool) -> None:
    topology = _job([("ab", kind)], colocations=(("a", "b"),))
    if not refused:
        check_regions(topology)
        return
    for check in (check_regions, build_regions):
        with pytest.raises(ConfigError, match=r"'op a', 'op b' are strictly co-located.*subtasks 0"):
            check(topology)
