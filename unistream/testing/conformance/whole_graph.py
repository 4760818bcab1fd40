"""Regions as Flink's SchedulingPipelinedRegionComputeUtil gives them for a whole graph; a job runs by
`core.graph.build_regions`."""

from __future__ import annotations

from unistream.core.graph.regions import Regions, divide
from unistream.core.graph.topology import Topology


def whole_graph_regions(topology: Topology) -> Regions:
    """By the rule for subtasks alone, with circles merged over the whole graph."""
    return Regions(topology, divide(topology, topology.links))
