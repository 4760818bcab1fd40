"""Regions against what Flink 2.3.0 builds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.conformance.regions import whole_graph_regions
from tests.unit.core.flink_cases import load, topology_of
from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, VertexId
from unistream.core.graph import (
    Link,
    Pattern,
    Region,
    Topology,
    build_regions,
    logical_regions,
)
from unistream.core.graph.regions import region_circles
from unistream.model.partition_type import PartitionType

FILE = load("regions.json")


def _sets(regions: Iterable[Region]) -> set[frozenset[str]]:
    return {frozenset(map(str, region.subtasks)) for region in regions}


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["name"])
def test_regions(case: dict[str, Any]) -> None:
    topology, expected = topology_of(case), case["expected"]
    assert {frozenset(r) for r in logical_regions(topology)} == {
        frozenset(r) for r in expected["logicalRegions"]
    }
    if "error" in expected:
        with pytest.raises(ConfigError, match="co-located"):
            build_regions(topology)
        return
    assert _sets(build_regions(topology)) == {frozenset(r) for r in expected["executionRegions"]}
    assert _sets(whole_graph_regions(topology)) == {
        frozenset(r) for r in expected["regionsOfWholeGraphAlgorithm"]
    }


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["name"])
def test_what_only_the_whole_graph_merges_is_a_circle_of_logical_regions(case: dict[str, Any]) -> None:
    topology, expected = topology_of(case), case["expected"]
    if "differs" in case.get("note", ""):
        assert region_circles(topology)
    if "error" not in expected and expected["executionRegions"] == expected["regionsOfWholeGraphAlgorithm"]:
        assert not region_circles(topology)


@pytest.mark.parametrize("row", FILE["resultPartitionTypes"], ids=lambda row: row["type"])
def test_partition_types(row: dict[str, Any]) -> None:
    kind = PartitionType(row["type"])
    assert kind.is_reconsumable is row["reconsumable"]
    assert kind.is_released_by_scheduler is (row["releasedBy"] == "SCHEDULER")
    consuming = (
        "BLOCKING"
        if kind.is_blocking
        else "MUST_BE_PIPELINED"
        if kind.must_be_pipelined
        else "CAN_BE_PIPELINED"
    )
    assert consuming == row["consuming"]


@pytest.mark.parametrize(("pair", "mapping"), FILE["pointwiseEdgeMapping"]["mapping"].items())
def test_pointwise_mapping(pair: str, mapping: list[list[int]]) -> None:
    upstream, downstream = map(int, pair.split("->"))
    link = Link(
        id=EdgeId("e"),
        source=VertexId("u"),
        target=VertexId("d"),
        pattern=Pattern.POINTWISE,
        partition=PartitionType.BLOCKING,
    )
    topology = Topology([(link.source, upstream), (link.target, downstream)], [link])
    assert [list(topology.producers(link, i)) for i in range(downstream)] == mapping
    assert [list(topology.consumers(link, p)) for p in range(upstream)] == [
        [i for i in range(downstream) if p in mapping[i]] for p in range(upstream)
    ]
    groups = [topology.group(link, number) for number in range(topology.groups(link))]
    assert [p for group in groups for p in group.producers] == list(range(upstream))
    assert [i for group in groups for i in group.consumers] == list(range(downstream))
    for group in groups:
        assert all(list(group.producers) == mapping[i] for i in group.consumers)
        assert {topology.group_of_producer(link, p) for p in group.producers} == {group.number}
        assert {topology.group_of_consumer(link, i) for i in group.consumers} == {group.number}
