"""What restarts after a failure, against what Flink 2.3.0 restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.flink_cases import PlayedJob, load, partition_of, subtask_of, topology_of
from unistream.core.execution import create_failover
from unistream.core.graph import build_regions
from unistream.model.execution_state import ExecutionState

CASES = load("failover.json")["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_failover(case: dict[str, Any]) -> None:
    topology = topology_of(case)
    regions = build_regions(topology)
    if "regions" in case:
        assert {frozenset(map(str, r.subtasks)) for r in regions} == {frozenset(r) for r in case["regions"]}
    job = PlayedJob(topology, ExecutionState.RUNNING)
    for subtask, state in case.get("states", {}).items():
        job.states[subtask_of(subtask)] = ExecutionState[state]
    for failure in case["failures"]:
        job.lost = {partition_of(topology, text) for text in failure.get("unavailablePartitions", ())}
        cause = failure.get("cause")
        found = create_failover(failure.get("strategy", "region"), regions).tasks_to_restart(
            subtask_of(failure["failed"]),
            partition_of(topology, cause.rpartition(" on ")[2]) if cause else None,
            job,
        )
        assert sorted(map(str, found)) == sorted(failure["restarts"]), failure
