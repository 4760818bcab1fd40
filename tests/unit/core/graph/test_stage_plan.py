"""Stages of a BATCH job for an engine such as Spark: what runs in which, and where each piece goes."""

from __future__ import annotations

import pytest

from unistream.base.ids import EdgeId, OperatorUid, SubtaskId, VertexId
from unistream.core.graph import Relay, StagePlan
from unistream.model.graph import JobEdge, JobGraph, JobType, JobVertex, OperatorInfo, Ship, SourceInfo


def graph(vertices: str, edges: str, *, parallelism: int = 2) -> JobGraph:
    """`vertices`: their names, producers first. `edges`: "ab a=c", with "=" for committables."""
    targets = {edge[-1] for edge in edges.split()}
    return JobGraph(
        name="job",
        vertices=tuple(
            JobVertex(
                id=VertexId(name),
                name=name,
                operators=(OperatorInfo(uid=OperatorUid(name), name=name),),
                parallelism=parallelism,
                max_parallelism=128,
                source=None
                if name in targets
                else SourceInfo(connector="file", options={}, bounded=True, pull=True),
                inputs=int(name in targets),
            )
            for name in vertices
        ),
        edges=tuple(
            JobEdge(
                id=EdgeId(edge),
                source=VertexId(edge[0]),
                target=VertexId(edge[-1]),
                ship=Ship.REBALANCE,
                committables="=" in edge,
            )
            for edge in edges.split()
        ),
        job_type=JobType.BATCH,
    )


CASES = {
    "one vertex": ("a", "", ["a"], ""),
    "a chain of exchanges": ("abc", "ab bc", ["a", "b", "c"], ""),
    "as late as consumers allow": ("abcd", "ab bd cd", ["a", "bc", "d"], ""),
    "two ends": ("abc", "ab ac", ["a", "bc"], ""),
    "committers are behind all stages": ("abc", "ab b=c", ["a", "b"], "c"),
    "what is behind a committer too": ("abcd", "ab b=c c=d", ["a", "b"], "cd"),
    "a sink before the last stage": ("abcd", "ab ac a=d", ["a", "bc"], "d"),
}


@pytest.mark.parametrize("case", CASES)
def test_stages(case: str) -> None:
    vertices, edges, stages, committers = CASES[case]
    plan = StagePlan(graph(vertices, edges))
    assert ["".join(stage.vertices) for stage in plan.stages] == stages
    assert "".join(plan.committers) == committers


def test_places_are_the_subtasks_of_a_stage_and_relays_of_edges_that_pass_it_by() -> None:
    plan = StagePlan(graph("abc", "ab bc ac"))
    middle = plan.stages[1].places
    relays = [Relay(EdgeId("ac"), consumer) for consumer in (0, 1)]
    assert list(middle) == [SubtaskId(VertexId("b"), 0), SubtaskId(VertexId("b"), 1), *relays]
    assert [plan.place(1, EdgeId("ac"), consumer) for consumer in (0, 1)] == [2, 3]
    assert [plan.place(2, EdgeId("ac"), consumer) for consumer in (0, 1)] == [0, 1]
    assert [plan.place(1, EdgeId("ab"), consumer) for consumer in (0, 1)] == [0, 1]


def test_committables_of_an_early_stage_are_relayed_to_the_end() -> None:
    plan = StagePlan(graph("abcd", "ab bc a=d"))
    assert [place for place in plan.stages[1].places if isinstance(place, Relay)] == [
        Relay(EdgeId("a=d"), consumer) for consumer in (0, 1)
    ]
    assert plan.place(3, EdgeId("a=d"), 0) is None
    assert plan.place(2, EdgeId("a=d"), 1) == 3
