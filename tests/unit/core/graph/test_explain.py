"""The three graphs as text and as JSON; large ones are summarised, and fast."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.unit.core.graphs import BOUNDED, edges, job_of, line, node, resolved
from unistream.core.graph import explain, plan_json
from unistream.model.graph import Ship
from unistream.model.partition_type import PartitionType
from unistream.model.stream_graph import ChainingStrategy, StreamGraph

COUNTS = {"uid": "counts", "stateful": True, "chaining": ChainingStrategy.HEAD}


def test_text() -> None:
    graph = line(*edges(None, Ship.HASH), b=COUNTS)
    assert explain(resolved(graph), job_of(graph)).splitlines() == [
        "stream graph 'line': 3 operators, 2 edges",
        "  0: source  (parallelism 2, slots default)",
        "  1: a  (parallelism 2, slots default)",
        "  2: b  (parallelism 2, slots default, chaining HEAD)",
        "  0 -> 1 forward: chained",
        "  1 -> 2 hash by k: exchange, chaining of 'b' is HEAD",
        "",
        "job graph 'line': 2 vertices, 1 exchange, STREAMING",
        "[1] source -> a  (parallelism 2 of 128, slots default)",
        "    source static, bounded",
        "    source-0: source  (generated uid)",
        "    a-1: a  (generated uid)",
        "[2] b  (parallelism 2 of 128, slots default)",
        "    input 0 <- [1] hash by k",
        "    counts: b  (stateful)",
        "",
        "execution graph: 4 subtasks, 1 region",
        "  [1] subtasks 0-1 attempt 0",
        "  [2] subtasks 0-1 attempt 0",
        "  [1] -> [2] ALL_TO_ALL: 2 partitions PIPELINED_BOUNDED of 2 subpartitions",
        "  region 0: [1] 0-1; [2] 0-1",
    ]


def test_text_of_regions_and_pointwise_partitions() -> None:
    graph = line(
        *edges(None, Ship.RESCALE, partition=None),
        source={"parallelism": 3},
        a={"parallelism": 3},
        b={"parallelism": 10},
    )
    text = explain(resolved(graph), job_of(graph))
    assert "3 partitions PIPELINED_BOUNDED of 3 to 4 subpartitions: 0 -> 0-3, 1 -> 4-6, 2 -> 7-9\n" in text
    assert text.endswith("region 0: [1] 0; [2] 0-3\n  region 1: [1] 1; [2] 4-6\n  region 2: [1] 2; [2] 7-9")


def test_text_says_what_is_stored() -> None:
    graph = line(*edges(Ship.HASH, Ship.RESCALE, partition=PartitionType.BLOCKING))
    text = explain(resolved(graph), job_of(graph))
    assert "    input 0 <- [1] hash by k, blocking\n" in text
    assert "  [1] -> [2] ALL_TO_ALL: 2 partitions BLOCKING of 2 subpartitions\n" in text
    assert text.endswith("region 5: [3] 1")


AS_BATCH = {"execution.runtime-mode": "BATCH"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            {},
            "engine: spark if the target is Spark, 2 stages; otherwise native, the built-in runtime\n"
            "  stage 0: [1]: 2 tasks\n  stage 1: [2]: 2 tasks",
            id="by the target",
        ),
        pytest.param(
            {"execution.batch.engine": "spark"},
            "engine: spark (execution.batch.engine), 2 stages\n  stage 0: [1]: 2 tasks\n"
            "  stage 1: [2]: 2 tasks",
            id="spark",
        ),
        pytest.param(
            {"execution.batch.engine": "native"},
            "engine: native, the built-in runtime (execution.batch.engine)",
            id="native",
        ),
    ],
)
def test_the_engine_of_a_batch_job(config: dict[str, str], expected: str) -> None:
    graph = line(*edges(None, Ship.HASH), b=COUNTS)
    job = job_of(graph, config=AS_BATCH | config)
    assert explain(resolved(graph, config=AS_BATCH | config), job).split("\n\n")[-1] == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"engine": None, "tasks": [2, 2]}),
        ({"execution.batch.engine": "spark"}, {"engine": "spark", "tasks": [2, 2]}),
        ({"execution.batch.engine": "native"}, {"engine": "native", "tasks": []}),
    ],
    ids=str,
)
def test_the_engine_of_a_batch_job_as_json(config: dict[str, str], expected: dict[str, Any]) -> None:
    graph = line(*edges(None, Ship.HASH), b=COUNTS)
    job = job_of(graph, config=AS_BATCH | config)
    found = plan_json(resolved(graph, config=AS_BATCH | config), job)["engine"]
    stages = found.get("stages", [])
    assert {"engine": found["engine"], "tasks": [stage["tasks"] for stage in stages]} == expected
    assert [stage["vertices"] for stage in stages] == [[vertex.id] for vertex in job.vertices][: len(stages)]


def test_json() -> None:
    graph = line(*edges(None, Ship.HASH), b=COUNTS)
    job = job_of(graph)
    plan = plan_json(resolved(graph), job)
    assert json.loads(json.dumps(plan)) == plan
    first, second = (vertex.id for vertex in job.vertices)
    operators = plan["streamGraph"]["nodes"]
    assert [operator["pact"] for operator in operators] == ["Data Source", "Operator", "Data Sink"]
    assert [operator["vertex"] for operator in operators] == [first, first, second]
    assert operators[1]["predecessors"] == [
        {"id": 0, "ship_strategy": "FORWARD", "side": "first", "input": 0, "chained": True}
    ]
    assert operators[2]["predecessors"][0]["exchange"] == "pipelined_bounded"
    assert plan["jobGraph"]["nodes"][1]["inputs"] == [
        {"num": 0, "id": first, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}
    ]
    execution = plan["executionGraph"]
    assert execution["subtasks"] == 4
    assert execution["vertices"][0]["attempts"] == [{"subtasks": "0-1", "attempt": 0}]
    assert execution["edges"][0]["mapping"] == [{"producers": "0-1", "consumers": "0-1"}]
    assert execution["regions"]["listed"] == [
        {"id": 0, "size": 4, "subtasks": {first: ["0-1"], second: ["0-1"]}}
    ]


def wide(vertices: int, parallelism: int, ship: Ship) -> tuple[StreamGraph, dict[str, Any]]:
    nodes = [node(i, f"n{i}", source=BOUNDED if i == 0 else None) for i in range(vertices)]
    graph = StreamGraph(name="wide", nodes=nodes, edges=edges(*([ship] * (vertices - 1))))
    return graph, {"parallelism": parallelism, "max_parallelism": 4096}


def explained(vertices: int, parallelism: int, ship: Ship) -> tuple[str, dict[str, Any]]:
    graph, how = wide(vertices, parallelism, ship)
    found = resolved(graph, **how)
    job = job_of(graph, **how)
    return explain(found, job), plan_json(found, job)


def lines_run(function: Callable[[], object]) -> int:
    """Steps of Python that it takes. Unlike seconds, they are the same on every machine."""
    count = 0

    def on_line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("ship", [Ship.HASH, Ship.RESCALE])
def test_explaining_takes_steps_in_proportion_to_the_subtasks(ship: Ship) -> None:
    few = lines_run(lambda: explained(25, 400, ship))
    many = lines_run(lambda: explained(25, 4000, ship))
    assert few <= many < 11 * few


@pytest.mark.parametrize("ship", [Ship.HASH, Ship.RESCALE])
def test_a_hundred_thousand_subtasks_are_summarised(ship: Ship) -> None:
    text, plan = explained(25, 4000, ship)
    assert len(text) < 20_000
    assert "execution graph: 100,000 subtasks" in text
    assert len(plan["executionGraph"]["regions"]["listed"]) <= 1_000
    if ship is Ship.RESCALE:
        assert "... and 3,980 more regions; all have 25 subtasks" in text


def test_a_job_of_many_vertices_is_cut_off() -> None:
    graph, how = wide(300, 2, Ship.HASH)
    text = explain(resolved(graph, **how), job_of(graph, **how))
    assert "  ... and 200 more operators\n" in text
    assert "... and 200 more vertices\n" in text
    assert "  ... and 199 more edges\n" in text
    assert "and 200 more vertices" in text.splitlines()[-1]
