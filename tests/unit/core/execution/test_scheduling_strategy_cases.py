"""Order of scheduling against what Flink 2.3.0 does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance.scheduling import HybridConstraint, VertexwiseStrategy
from tests.unit.core.flink_cases import PlayedJob, load, subtask_of, topology_of
from unistream.core.execution import Bulks, SchedulingStrategy
from unistream.core.execution.scheduling_strategy import PipelinedRegionStrategy
from unistream.core.graph import build_regions
from unistream.model.execution_state import ExecutionState

CASES = load("scheduling.json")["cases"]


def _strategy(case: dict[str, Any], job: PlayedJob) -> SchedulingStrategy:
    if case["strategy"] == "vertexwise":
        constraint = HybridConstraint(case["hybridPartitionDataConsumeConstraint"])
        return VertexwiseStrategy(job.topology, job, constraint)
    assert case["strategy"] == "pipelined-region"
    return PipelinedRegionStrategy(build_regions(job.topology), job)


def _play(strategy: SchedulingStrategy, job: PlayedJob, step: dict[str, Any]) -> Bulks:
    match step["action"]:
        case "start":
            return strategy.start()
        case "running":
            subtask = subtask_of(step["target"])
            job.states[subtask] = ExecutionState.RUNNING
            return strategy.on_running(subtask)
        case "finish" | "finishStateOnly" as action:
            subtask = subtask_of(step["target"])
            job.finish(subtask, produced=action == "finish")
            return strategy.on_finished(subtask)
        case "restart":
            subtasks = [subtask_of(text) for text in step["target"]]
            for subtask in subtasks:
                job.reset(subtask)
            return strategy.restart(subtasks)
    raise AssertionError(f"unknown action {step['action']}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_scheduling(case: dict[str, Any]) -> None:
    job = PlayedJob(topology_of(case))
    strategy = _strategy(case, job)
    for number, step in enumerate(case["steps"]):
        bulks = _play(strategy, job, step)
        found = [[str(subtask) for subtask in bulk] for bulk in bulks]
        assert found == step["newlyScheduled"], f"step {number}: {step['action']} {step.get('target', '')}"
        for bulk in bulks:
            job.states.update(dict.fromkeys(bulk, ExecutionState.SCHEDULED))
