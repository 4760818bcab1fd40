"""Translation: parallelism, shipping, chains, identities; and what a graph is refused for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.core.graphs import translated
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, VertexId
from unistream.core.graph import check
from unistream.core.graph.graph_check import operators_without_uid
from unistream.model.chain import EdgeOutput, LocalOutput
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship, SourceInfo
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

SOURCE = SourceInfo(connector="static", options={}, bounded=True, pull=False)


def node(number: int, name: str, **fields: Any) -> StreamNode:
    return StreamNode(id=number, name=name, operator=f"<{name}>", **fields)


def line(*edges: StreamEdge, **changes: dict[str, Any]) -> StreamGraph:
    """source -> a -> b; `changes`: fields by node name."""
    return StreamGraph(
        name="line",
        nodes=[
            node(0, "source", source=SOURCE, **changes.get("source", {})),
            node(1, "a", **changes.get("a", {})),
            node(2, "b", **changes.get("b", {})),
        ],
        edges=list(edges) or [StreamEdge(source=0, target=1), StreamEdge(source=1, target=2)],
    )


@pytest.mark.parametrize(
    ("graph", "names"),
    [
        pytest.param(line(), ["source -> a -> b"], id="forward neighbours share a task"),
        pytest.param(line(b={"parallelism": 3}), ["source -> a", "b"], id="another parallelism cuts"),
        pytest.param(
            line(a={"slot_sharing_group": "x"}), ["source", "a -> b"], id="another slot sharing group cuts"
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1, ship=Ship.REBALANCE), StreamEdge(source=1, target=2)),
            ["source", "a -> b"],
            id="an exchange cuts",
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1), StreamEdge(source=0, target=2)),
            ["source -> a -> b"],
            id="a chain is a tree",
        ),
        pytest.param(
            line(
                StreamEdge(source=0, target=1),
                StreamEdge(source=0, target=2),
                StreamEdge(source=1, target=2),
            ),
            ["source -> a", "b"],
            id="a union starts a task",
        ),
        pytest.param(
            line(
                StreamEdge(source=0, target=1),
                StreamEdge(source=0, target=2),
                StreamEdge(source=1, target=2, input_index=1),
                b={"inputs": 2},
            ),
            ["source -> a", "b"],
            id="a join starts a task",
        ),
    ],
)
def test_chains(graph: StreamGraph, names: list[str]) -> None:
    job, code = translated(graph)
    assert [vertex.name for vertex in job.vertices] == names
    assert list(code.chains) == [vertex.id for vertex in job.vertices]
    for vertex in job.vertices:
        chain = code.chains[vertex.id]
        assert [n.uid for n in chain.nodes] == [operator.uid for operator in vertex.operators]
        for place, chained in enumerate(chain.nodes):
            locals_ = [o.target for o in chained.outputs if isinstance(o, LocalOutput)]
            assert all(target > place for target in locals_), "consumers come later"


def test_without_chaining_every_operator_is_a_vertex() -> None:
    job, _ = translated(line(), chaining=False)
    assert [vertex.name for vertex in job.vertices] == ["source", "a", "b"]
    assert [edge.ship for edge in job.edges] == [Ship.FORWARD, Ship.FORWARD]


def test_shipping_is_rebalance_where_parallelism_differs() -> None:
    job, _ = translated(line(b={"parallelism": 5}))
    assert [edge.ship for edge in job.edges] == [Ship.REBALANCE]
    assert [vertex.parallelism for vertex in job.vertices] == [2, 5]


@pytest.mark.parametrize(
    ("parallelism", "given", "expected"), [(2, None, 128), (2, -1, 128), (2, 10, 10), (200, None, 512)]
)
def test_max_parallelism(parallelism: int, given: int | None, expected: int) -> None:
    job, _ = translated(line(), parallelism=parallelism, max_parallelism=given)
    assert job.vertices[0].max_parallelism == expected


def test_identities_are_stable_and_the_users_uid_wins() -> None:
    first, code = translated(
        line(a={"uid": "mine", "stateful": True}, b={"parallelism": 3, "stateful": True})
    )
    again, _ = translated(line(a={"uid": "mine", "stateful": True}, b={"parallelism": 4, "stateful": True}))
    assert [v.id for v in first.vertices] == [v.id for v in again.vertices]
    assert [e.id for e in first.edges] == [e.id for e in again.edges]
    assert all(len(v.id) == 32 for v in first.vertices)
    operators = [operator for vertex in first.vertices for operator in vertex.operators]
    assert [(o.uid, o.generated_uid) for o in operators] == [
        ("source-0", True),
        ("mine", False),
        ("b-2", True),
    ]
    assert operators_without_uid(first) == ["source", "b"]
    (output,) = code.chains[first.vertices[0].id].nodes[1].outputs
    assert output == EdgeOutput(edge=first.edges[0].id)


def test_side_outputs_and_equal_edges_have_ids_of_their_own() -> None:
    edges = [
        StreamEdge(source=0, target=1),
        StreamEdge(source=1, target=2, tag="late"),
        StreamEdge(source=1, target=2),
        StreamEdge(source=1, target=2),
    ]
    job, code = translated(line(*edges))
    assert len({edge.id for edge in job.edges}) == 3
    tags = [output.tag for output in code.chains[job.vertices[0].id].nodes[1].outputs]
    assert tags == ["late", None, None]


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        pytest.param(StreamGraph(name="nothing"), "has no operators", id="an empty job"),
        pytest.param(
            line(a={"uid": "x"}, b={"uid": "x"}), "'a' and 'b' have the same uid 'x'", id="twice one uid"
        ),
        pytest.param(line(a={"parallelism": 0}), "parallelism 0 is less than 1", id="parallelism 0"),
        pytest.param(line(a={"parallelism": 5000}), "above the limit 4096", id="parallelism over the limit"),
        pytest.param(
            line(a={"parallelism": 9, "max_parallelism": 8}),
            "parallelism 9 is above max parallelism 8; .*pipeline.max-parallelism",
            id="parallelism above max parallelism",
        ),
        pytest.param(line(a={"max_parallelism": 40000}), "not between 1 and 32768", id="too many key groups"),
        pytest.param(
            line(
                StreamEdge(source=0, target=1, ship=Ship.FORWARD),
                StreamEdge(source=1, target=2),
                a={"parallelism": 3},
            ),
            "forward edge needs equal parallelism, not 2 and 3",
            id="a forward edge between unequal ones",
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1, ship=Ship.HASH), StreamEdge(source=1, target=2)),
            "needs key columns",
            id="a hash edge without keys",
        ),
        pytest.param(
            line(
                StreamEdge(source=1, target=2), StreamEdge(source=2, target=1), StreamEdge(source=0, target=1)
            ),
            "operators '(a' -> 'b' -> 'a|b' -> 'a' -> 'b)' form a cycle",
            id="a cycle",
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1), StreamEdge(source=1, target=2), b={"source": SOURCE}),
            "'b' is a source, and a source has no inputs",
            id="a source with an input",
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1)), "nothing feeds input 0", id="an operator without input"
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1), StreamEdge(source=1, target=2, input_index=1)),
            "input 1 does not exist, 'b' has 1",
            id="an input that does not exist",
        ),
        pytest.param(
            line(StreamEdge(source=0, target=1), StreamEdge(source=1, target=9)),
            "no such end",
            id="a loose edge",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_names(graph: StreamGraph, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        translated(graph)


def edited(edit: Callable[[JobGraph], JobGraph]) -> JobGraph:
    return edit(translated(line(b={"parallelism": 1}))[0])


def with_vertex(graph: JobGraph, **fields: Any) -> JobGraph:
    first: JobVertex = msgspec.structs.replace(graph.vertices[0], **fields)
    return msgspec.structs.replace(graph, vertices=(first, *graph.vertices[1:]))


def with_edge(graph: JobGraph, **fields: Any) -> JobGraph:
    edge: JobEdge = msgspec.structs.replace(graph.edges[0], **fields)
    return msgspec.structs.replace(graph, edges=(edge,))


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda g: with_edge(g, target=VertexId("gone")), "refers to vertex 'gone'"),
        (lambda g: with_vertex(g, operators=()), "has no operators"),
        (lambda g: with_vertex(g, inputs=1), "source, and a source has no inputs"),
        (lambda g: with_vertex(g, id=g.vertices[1].id), "is used 2 times"),
        (lambda g: msgspec.structs.replace(g, edges=g.edges * 2), "edge id .* is used 2 times"),
        (lambda g: msgspec.structs.replace(g, vertices=g.vertices[::-1]), "goes backwards"),
        (
            lambda g: with_vertex(
                g, operators=(msgspec.structs.replace(g.vertices[0].operators[0], uid=OperatorUid("")),)
            ),
            "empty uid",
        ),
        (lambda g: msgspec.structs.replace(g, vertices=g.vertices * 5001), "limit 10000"),
    ],
)
def test_a_graph_from_outside_is_not_trusted(edit: Callable[[JobGraph], JobGraph], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check(edited(edit))


def test_a_vertex_without_source_and_input_is_refused() -> None:
    graph = edited(lambda g: with_vertex(g, source=None))
    with pytest.raises(ConfigError, match="is not a source and has no input"):
        check(graph)
