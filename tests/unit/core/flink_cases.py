"""Topologies from the conformance cases, and a view that plays the job for strategies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.core.graph import Link, Pattern, Topology
from unistream.model.execution_state import ExecutionState
from unistream.model.partition_type import PartitionType

FOLDER = Path(__file__).resolve().parents[2] / "conformance"


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())


def topology_of(case: Mapping[str, Any]) -> Topology:
    return Topology(
        [(VertexId(name), parallelism) for name, parallelism in case["vertices"]],
        [
            Link(
                id=EdgeId(edge["id"]),
                source=VertexId(edge["from"]),
                target=VertexId(edge["to"]),
                pattern=Pattern(edge["pattern"]),
                partition=PartitionType(edge["type"]),
                dataset=EdgeId(edge["dataset"]) if "dataset" in edge else None,
            )
            for edge in case["edges"]
        ],
        tuple(tuple(VertexId(v) for v in pair) for pair in case.get("strictColocation", ())),
    )


def subtask_of(text: str) -> SubtaskId:
    vertex, _, index = text.rpartition("#")
    return SubtaskId(VertexId(vertex), int(index))


def partition_of(topology: Topology, text: str) -> PartitionId:
    """Partition ``edge#index``."""
    edge, _, index = text.rpartition("#")
    link = next(link for link in topology.links if link.id == edge)
    return PartitionId(SubtaskId(link.source, int(index)), link.reads)


class PlayedJob:
    """States and partitions of a job, as the strategies see them."""

    def __init__(self, topology: Topology, state: ExecutionState = ExecutionState.CREATED) -> None:
        self.topology = topology
        self.states = dict.fromkeys(topology.all_subtasks(), state)
        self.produced: set[PartitionId] = set()
        self.lost: set[PartitionId] = set()

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return self.states[subtask]

    def is_produced(self, partition: PartitionId) -> bool:
        return partition in self.produced

    def is_available(self, partition: PartitionId) -> bool:
        return partition not in self.lost

    def finish(self, subtask: SubtaskId, *, produced: bool = True) -> None:
        """The recorded runs also "finish" subtasks that never started: those stay CREATED."""
        if self.states[subtask] is not ExecutionState.CREATED:
            self.states[subtask] = ExecutionState.FINISHED
        types = {link.reads: link.partition for link in self.topology.outputs[subtask.vertex]}
        if produced:
            self.produced |= {p for p in self.topology.produced(subtask) if types[p.edge].is_blocking}

    def reset(self, subtask: SubtaskId) -> None:
        self.states[subtask] = ExecutionState.CREATED
        self.produced -= set(self.topology.produced(subtask))
