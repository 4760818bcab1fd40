"""How wide a job may run, and who names its vertices."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec import structs

from tests.unit.core.cluster import grouped, job_graph, pipelines
from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core.job import fit, vertices_named, with_parallelism
from unistream.core.job.scaling import slots_needed
from unistream.core.resource import SlotKind
from unistream.model.graph import JobGraph


def ids(graph: JobGraph, parallelism: Mapping[str, int]) -> dict[VertexId, int]:
    by_name = {vertex.name: vertex.id for vertex in graph.vertices}
    return {by_name[name]: width for name, width in parallelism.items()}


def widths(graph: JobGraph | None) -> dict[str, int] | None:
    return None if graph is None else {vertex.name: vertex.parallelism for vertex in graph.vertices}


def leased(*anywhere: str, **slots: int) -> dict[SlotKind, int]:
    """So many slots of each group; they are big enough for it and for the groups `anywhere`."""
    return {SlotKind(group, frozenset({group, *anywhere})): count for group, count in slots.items()}


class TestWithParallelism:
    def test_what_is_not_named_stays(self) -> None:
        graph = job_graph(parallelism=2)
        scaled = with_parallelism(graph, ids(graph, {"count": 5}))
        assert widths(scaled) == {"source": 2, "count": 5, "sink": 1}
        assert with_parallelism(graph, {}) == graph

    def test_forward_edges_pull_their_other_end_along(self) -> None:
        graph = pipelines(2)
        scaled = with_parallelism(graph, ids(graph, {"map0": 3}))
        assert widths(scaled) == {
            n + k: 3 if k == "0" else 2 for n in ("source", "map", "sink") for k in "01"
        }

    def test_co_located_vertices_too(self) -> None:
        graph = job_graph(parallelism=2)
        source, count, _ = (vertex.id for vertex in graph.vertices)
        scaled = with_parallelism(
            structs.replace(graph, colocations=((source, count),)), ids(graph, {"count": 3})
        )
        assert widths(scaled) == {"source": 3, "count": 3, "sink": 1}

    @pytest.mark.parametrize(
        ("wanted", "text"),
        [
            ({"map0": 3, "sink0": 4}, "forward edges join 'map0'=3, 'sink0'=4: they must have the same"),
            ({"map0": 0}, "parallelism 0 is less than 1; give a number from 1 to 128$"),
            ({"map0": -3}, "vertex 'map0': parallelism -3 is less than 1"),
            ({"map0": 129}, "parallelism 129 is above max parallelism 128; give a number from 1 to 128$"),
        ],
    )
    def test_refused(self, wanted: dict[str, int], text: str) -> None:
        graph = pipelines(1)
        with pytest.raises(ConfigError, match=text) as refusal:
            with_parallelism(graph, ids(graph, wanted))
        assert "set_parallelism" not in str(refusal.value), "the pipeline cannot be changed any more"

    @pytest.mark.parametrize(
        ("most", "wanted", "text"),
        [
            (4, 5, "'map0': parallelism 5 is above max parallelism 4 of 'sink0', which always has the same"),
            (32_768, 4_097, "parallelism 4097 is above the limit 4096; give a number from 1 to 4096"),
        ],
    )
    def test_the_lowest_of_all_maxima_counts(self, most: int, wanted: int, text: str) -> None:
        graph = pipelines(1)
        maxima = {"sink0": most} if most < 128 else dict.fromkeys(("source0", "map0", "sink0"), most)
        vertices = (
            structs.replace(v, max_parallelism=maxima.get(v.name, v.max_parallelism)) for v in graph.vertices
        )
        with pytest.raises(ConfigError, match=text):
            with_parallelism(structs.replace(graph, vertices=tuple(vertices)), ids(graph, {"map0": wanted}))

    def test_an_unknown_vertex(self) -> None:
        with pytest.raises(ConfigError, match="has no vertex 'x'"):
            with_parallelism(job_graph(), {VertexId("x"): 1})


class TestFit:
    def test_slots_needed_is_the_widest_of_each_group(self) -> None:
        graph = grouped(job_graph(parallelism=3), sink="out")
        assert slots_needed(graph) == {"default": 3, "out": 1}

    @pytest.mark.parametrize(
        ("slots", "expected"),
        [
            ({"default": 3}, {"source": 3, "count": 3, "sink": 1}),
            ({"default": 9}, {"source": 3, "count": 3, "sink": 1}),
            ({"default": 2}, {"source": 2, "count": 2, "sink": 1}),
            ({"default": 0}, None),
            ({}, None),
        ],
    )
    def test_up_to_the_graph(self, slots: dict[str, int], expected: dict[str, int] | None) -> None:
        assert widths(fit(job_graph(parallelism=3), leased(**slots))) == expected

    def test_a_forward_edge_between_groups_takes_the_smaller_one(self) -> None:
        graph = grouped(pipelines(1), map0="other", sink0="other")
        assert widths(fit(graph, leased(default=1, other=2))) == {"source0": 1, "map0": 1, "sink0": 1}
        assert fit(graph, leased(default=2)) is None, "they are too small for the other one"


class TestNames:
    GRAPH = job_graph()

    @pytest.mark.parametrize("by", ["id", "name", "uid"])
    def test_by(self, by: str) -> None:
        vertex = self.GRAPH.vertices[1]
        text = {"id": vertex.id, "name": vertex.name, "uid": vertex.operators[0].uid}[by]
        assert vertices_named(self.GRAPH, {text: 3}) == {vertex.id: 3}

    def test_one_vertex_twice_with_the_same_number(self) -> None:
        vertex = self.GRAPH.vertices[1]
        assert vertices_named(self.GRAPH, {vertex.id: 3, vertex.name: 3}) == {vertex.id: 3}

    @pytest.mark.parametrize(
        ("parallelism", "text"),
        [
            ({}, r"name at least one vertex of job 'count'; there are 'source' \(uid source\), 'count'"),
            ({"cuont": 2}, r"no vertex 'cuont'; there are 'source' \(uid source\), 'count' \(uid count\)"),
            ({"count": 2.0}, "the parallelism of 'count' is a whole number, not 2.0"),
            ({"count": True}, "is a whole number, not True"),
            ({7: 3}, "a vertex is named by text, not 7"),
            (["count"], r"is given as \{vertex: number\}, not as \"\['count'\]\""),
            (None, "not as 'None'"),
        ],
    )
    def test_refused(self, parallelism: dict[str, int], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            vertices_named(self.GRAPH, parallelism)

    def test_one_vertex_with_two_numbers(self) -> None:
        vertex = self.GRAPH.vertices[1]
        with pytest.raises(ConfigError, match="name the same vertex, but were given 3 and 4"):
            vertices_named(self.GRAPH, {vertex.id: 3, "count": 4})

    def test_a_name_of_several(self) -> None:
        vertices = tuple(structs.replace(v, name="same") for v in self.GRAPH.vertices)
        graph = structs.replace(self.GRAPH, vertices=vertices)
        with pytest.raises(ConfigError, match=r"'same' could be one of 3 vertices: .*; give the id"):
            vertices_named(graph, {"same": 2})
        assert vertices_named(graph, {vertices[0].id: 2}) == {vertices[0].id: 2}

    def test_a_generated_uid_names_nothing_and_is_not_shown(self) -> None:
        operators = tuple(structs.replace(o, generated_uid=True) for o in self.GRAPH.vertices[1].operators)
        vertex = structs.replace(self.GRAPH.vertices[1], name="renamed", operators=operators)
        graph = structs.replace(self.GRAPH, vertices=(self.GRAPH.vertices[0], vertex, self.GRAPH.vertices[2]))
        with pytest.raises(ConfigError, match=r"no vertex 'count'; .* 'renamed', 'sink'"):
            vertices_named(graph, {"count": 2})
