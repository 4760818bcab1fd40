"""Pipelined regions, the table of partition types, and which producers a pointwise consumer reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from tests.support.conformance.case import Case, Comparison, Json, Shape, entry
from tests.support.conformance.graphs import texts, topology_of
from unistream.base.errors import ConfigError
from unistream.core.graph.regions import Regions, build_regions, divide, logical_regions
from unistream.core.graph.topology import Topology
from unistream.model.partition_type import PartitionType
from unistream.model.plan import pointwise_consumers, pointwise_producers

ILLEGAL: Final = "IllegalStateException"  # Java's name for a `ConfigError` of a graph


def _regions(case: Json) -> Comparison:
    """The order of regions and of their members does not matter."""
    topology = topology_of(case)
    expected = {k: v if k == "error" else _sorted(v) for k, v in case["expected"].items()}
    actual: Json = {
        "logicalRegions": _sorted(logical_regions(topology)),
        "regionsOfWholeGraphAlgorithm": _sorted(r.subtasks for r in whole_graph_regions(topology)),
    }
    try:
        actual["executionRegions"] = _sorted(region.subtasks for region in build_regions(topology))
    except ConfigError as error:
        actual["error"] = _refusal(str(error))
    compared = {*expected, "executionRegions", "error"}
    return Comparison(expected, {k: v for k, v in actual.items() if k in compared})


def whole_graph_regions(topology: Topology) -> Regions:
    """As Flink's SchedulingPipelinedRegionComputeUtil: the rule for subtasks alone, with circles merged over
    the whole graph. A job runs by `core.graph.build_regions`."""
    return Regions(topology, divide(topology, topology.links))


def _refusal(message: str) -> Json:
    """In Flink's words, if ours say the same."""
    apart = re.search(r"strictly co-located, but .* are not in one pipelined region", message)
    return {
        "when": "building the execution topology",
        "kind": ILLEGAL,
        "reason": "co-located tasks are not in one pipelined region" if apart else message,
    }


def _sorted(regions: Iterable[Iterable[object]]) -> list[list[str]]:
    return sorted(texts(members) for members in regions)


def _partition_type(case: Json) -> Comparison:
    found = PartitionType.__members__.get(case["type"])
    if found is None:
        return Comparison(case, "no such type")
    consuming = "CAN_BE_PIPELINED"
    if found.must_be_pipelined:
        consuming = "MUST_BE_PIPELINED"
    elif found.is_blocking:
        consuming = "BLOCKING"
    actual = {
        "type": found.value,
        "reconsumable": found.is_reconsumable,
        "bounded": found.is_bounded,
        "persistent": found.is_persistent,
        "consuming": consuming,
        "releasedBy": "SCHEDULER" if found.is_released_by_scheduler else "UPSTREAM",
    }
    return Comparison({key: case[key] for key in actual}, actual)


def _mapping(_name: str, section: Any, _whole: Any) -> Iterator[Case]:
    """``"U->D"``: the producers that each of D consumers reads; and the other way round."""
    for pair, expected in section["mapping"].items():
        yield Case(pair, partial(_pointwise, pair, expected))


def _pointwise(pair: str, expected: list[list[int]]) -> Comparison:
    producers, consumers = (int(number) for number in pair.split("->"))
    feeds = [[i for i in range(consumers) if p in expected[i]] for p in range(producers)]
    actual = {
        "read by": [list(pointwise_producers(i, producers, consumers)) for i in range(consumers)],
        "feeds": [list(pointwise_consumers(p, producers, consumers)) for p in range(producers)],
    }
    return Comparison({"read by": expected, "feeds": feeds}, actual)


SHAPES: Final[tuple[Shape, ...]] = (
    entry("cases", "vertices", "edges", "expected", play=_regions),
    entry("resultPartitionTypes", "type", "consuming", "releasedBy", play=_partition_type),
    Shape("pointwiseEdgeMapping", frozenset(), _mapping),
)
