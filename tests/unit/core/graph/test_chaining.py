"""Who shares a task: every rule, and every pair of strategies; and who is in which slot sharing group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.graphs import BOUNDED, edges, job_of, line, names, node, resolved
from unistream.model.graph import Ship
from unistream.model.partition_type import PartitionType
from unistream.model.stream_graph import ChainingStrategy, StreamEdge, StreamGraph

ALWAYS, HEAD, NEVER = ChainingStrategy.ALWAYS, ChainingStrategy.HEAD, ChainingStrategy.NEVER
WITH_SOURCES = ChainingStrategy.HEAD_WITH_SOURCES
ACROSS = "pipeline.operator-chaining.chain-operators-with-different-max-parallelism"


@pytest.mark.parametrize(
    ("first", "second", "behind_operator", "behind_source"),
    [
        (ALWAYS, ALWAYS, True, True),
        (ALWAYS, HEAD, False, False),
        (ALWAYS, NEVER, False, False),
        (ALWAYS, WITH_SOURCES, False, True),
        (HEAD, ALWAYS, True, True),
        (HEAD, HEAD, False, False),
        (HEAD, NEVER, False, False),
        (HEAD, WITH_SOURCES, False, True),
        (NEVER, ALWAYS, False, False),
        (NEVER, HEAD, False, False),
        (NEVER, NEVER, False, False),
        (NEVER, WITH_SOURCES, False, False),
        (WITH_SOURCES, ALWAYS, True, True),
        (WITH_SOURCES, HEAD, False, False),
        (WITH_SOURCES, NEVER, False, False),
        (WITH_SOURCES, WITH_SOURCES, False, True),
    ],
    ids=lambda value: value.value if isinstance(value, ChainingStrategy) else "",
)
def test_strategies(
    first: ChainingStrategy, second: ChainingStrategy, behind_operator: bool, behind_source: bool
) -> None:
    inner = line(source={"chaining": NEVER}, a={"chaining": first}, b={"chaining": second})
    assert names(inner) == (["source", "a -> b"] if behind_operator else ["source", "a", "b"])
    outer = line(source={"chaining": first}, a={"chaining": second}, b={"chaining": NEVER})
    assert names(outer) == (["source -> a", "b"] if behind_source else ["source", "a", "b"])


@pytest.mark.parametrize(
    ("graph", "how", "expected", "why"),
    [
        pytest.param(line(), {}, ["source -> a -> b"], None, id="forward neighbours share a task"),
        pytest.param(
            line(*edges(Ship.FORWARD, Ship.FORWARD)), {}, ["source -> a -> b"], None, id="forward()"
        ),
        *(
            pytest.param(
                line(*edges(None, ship)), {}, ["source -> a", "b"], f"the edge is {ship.value}", id=ship.name
            )
            for ship in Ship
            if ship is not Ship.FORWARD
        ),
        pytest.param(
            line(b={"parallelism": 3}), {}, ["source -> a", "b"], "parallelism 2 and 3", id="parallelism"
        ),
        pytest.param(
            line(b={"slot_sharing_group": "x"}),
            {},
            ["source -> a", "b"],
            "slot sharing groups 'default' and 'x'",
            id="slot sharing group",
        ),
        pytest.param(
            line(b={"max_parallelism": 7}), {}, ["source -> a -> b"], None, id="max parallelism may differ"
        ),
        pytest.param(
            line(b={"max_parallelism": 7}),
            {"config": {ACROSS: "false"}},
            ["source -> a", "b"],
            "max parallelism unset and 7",
            id="max parallelism may not differ if so configured",
        ),
        pytest.param(
            line(b={"max_parallelism": 128}),
            {"config": {ACROSS: "false"}},
            ["source -> a", "b"],
            "max parallelism unset and 128",
            id="a derived max parallelism is another one than the same number set",
        ),
        pytest.param(
            line(b={"max_parallelism": 64}),
            {"config": {ACROSS: "false"}, "max_parallelism": 64},
            ["source -> a -> b"],
            None,
            id="max parallelism of the job counts as set",
        ),
        pytest.param(
            line(), {"chaining": False}, ["source", "a", "b"], "chaining is disabled", id="chaining disabled"
        ),
        pytest.param(
            line(*edges(None), StreamEdge(source=1, target=2, partition=PartitionType.BLOCKING)),
            {},
            ["source -> a", "b"],
            "the exchange is blocking",
            id="a blocking exchange",
        ),
        pytest.param(
            line(*edges(None), StreamEdge(source=1, target=2, partition=PartitionType.PIPELINED_BOUNDED)),
            {},
            ["source -> a -> b"],
            None,
            id="an exchange that is asked to be pipelined",
        ),
        pytest.param(
            line(*edges(None, None), StreamEdge(source=0, target=2)),
            {},
            ["source -> a", "b"],
            "'b' has 2 input edges",
            id="a union",
        ),
        pytest.param(
            line(*edges(None, None), StreamEdge(source=0, target=2, input_index=1), b={"inputs": 2}),
            {},
            ["source -> a", "b"],
            "'b' has 2 input edges",
            id="a join",
        ),
    ],
)
def test_rules(graph: StreamGraph, how: dict[str, Any], expected: list[str], why: str | None) -> None:
    assert names(graph, **how) == expected
    obstacles = [found for found in resolved(graph, **how).chains.obstacles if found is not None]
    assert set(obstacles) == ({why} if why else set())


def test_several_consumers_of_one_operator_may_all_be_in_its_task() -> None:
    graph = line(StreamEdge(source=0, target=1), StreamEdge(source=0, target=2))
    assert names(graph) == ["source -> a -> b"]


def test_an_operator_with_two_inputs_never_takes_its_sources_in() -> None:
    graph = StreamGraph(
        nodes=[
            node(0, "left", source=BOUNDED),
            node(1, "right", source=BOUNDED),
            node(2, "join", inputs=2, chaining=WITH_SOURCES),
        ],
        edges=[StreamEdge(source=0, target=2), StreamEdge(source=1, target=2, input_index=1)],
    )
    assert names(graph) == ["left", "right", "join"]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        pytest.param([None, None, None], ["default"] * 3, id="none is said"),
        pytest.param(["x", None, None], ["x"] * 3, id="inherited all the way"),
        pytest.param([None, "x", None], ["default", "x", "x"], id="from the nearest one"),
        pytest.param(["x", "default", None], ["x", "default", "default"], id="back to default"),
    ],
)
def test_a_group_is_inherited(groups: list[str | None], expected: list[str]) -> None:
    fields = {
        name: {"slot_sharing_group": group} for name, group in zip(("source", "a", "b"), groups, strict=True)
    }
    found = resolved(line(**fields))
    assert [found.nodes[place].group for place in range(3)] == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"), [("x", "x", "x"), ("x", "y", "default"), ("x", None, "default")]
)
def test_inputs_must_agree_to_be_inherited_from(left: str, right: str | None, expected: str) -> None:
    graph = StreamGraph(
        nodes=[
            node(0, "left", source=BOUNDED, slot_sharing_group=left),
            node(1, "right", source=BOUNDED, slot_sharing_group=right),
            node(2, "both"),
        ],
        edges=[StreamEdge(source=0, target=2), StreamEdge(source=1, target=2)],
    )
    assert resolved(graph).nodes[2].group == expected


@pytest.mark.parametrize(
    ("own", "of_the_job", "expected", "derived"),
    [
        pytest.param(None, None, 128, True, id="derived from the parallelism"),
        pytest.param(None, -1, 128, True, id="-1 is unset"),
        pytest.param(None, 10, 10, False, id="that of the job"),
        pytest.param(7, 10, 7, False, id="its own comes first"),
    ],
)
def test_max_parallelism(own: int | None, of_the_job: int | None, expected: int, derived: bool) -> None:
    job = job_of(line(source={"max_parallelism": own}), max_parallelism=of_the_job)
    assert (job.vertices[0].max_parallelism, job.vertices[0].max_parallelism_derived) == (expected, derived)


def test_a_task_has_the_max_parallelism_of_its_first_operator() -> None:
    (vertex,) = job_of(line(a={"max_parallelism": 9}, b={"max_parallelism": 300})).vertices
    assert vertex.max_parallelism == 128


def test_co_located_operators_are_told_by_vertex() -> None:
    graph = line(*edges(Ship.REBALANCE, None), source={"colocation_group": "c"}, b={"colocation_group": "c"})
    job = job_of(graph)
    assert job.colocations == (tuple(vertex.id for vertex in job.vertices),)
    assert job_of(line(source={"colocation_group": "c"}, b={"colocation_group": "c"})).colocations == ()
