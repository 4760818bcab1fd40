"""How wide a job may run, who names its vertices, and when an adaptive one starts and grows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec import structs

from tests.unit.core.cluster import grouped, job_graph, pipelines, settings
from unistream.base.config import (
    RESCALE_COOLDOWN,
    RESCALE_STABILIZATION_TIMEOUT,
    RESOURCE_STABILIZATION_TIMEOUT,
    RESOURCE_WAIT_TIMEOUT,
)
from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core import contract
from unistream.core.contract import AdaptiveSettings, Outbox
from unistream.core.job import Adaptive, fit, vertices_named, with_parallelism
from unistream.core.job.scaling import slots_needed
from unistream.core.resource import SlotKind
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure

SETTINGS = AdaptiveSettings(wait_ms=1000, stable_ms=100, cooldown_ms=500, running_stable_ms=200)
WAIT, STABLE, COOL = (contract.Timer(contract.TimerKind.RESOURCES, number) for number in range(3))


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
        with pytest.raises(ConfigError, match="are one vertex, but were given 3 and 4"):
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


class Waiting:
    """An `Adaptive` with what it asked its shell for."""

    def __init__(self, settings: AdaptiveSettings = SETTINGS, graph: JobGraph | None = None) -> None:
        self.outbox = Outbox()
        self.adaptive = Adaptive(graph or job_graph(parallelism=4), settings, self.outbox)
        self.timers: dict[contract.Timer, int] = {}

    def timer_set(self, timer: contract.Timer) -> bool:
        for command in self.outbox.take():
            if isinstance(command, contract.SetTimer):
                self.timers[command.timer] = command.delay_ms
            elif isinstance(command, contract.CancelTimer):
                self.timers.pop(command.timer, None)
        return timer in self.timers

    def start(self, slots: int) -> int | TaskFailure | None:
        """Parallelism to start with, when any graph can start from the latest snapshot."""
        graph = self.adaptive.start_with(leased(default=slots), self.adaptive.desired, lambda _: True)
        return graph.vertices[0].parallelism if isinstance(graph, JobGraph) else graph


class TestStarting:
    def test_at_once_with_all(self) -> None:
        waiting = Waiting()
        waiting.adaptive.wait()
        assert (waiting.adaptive.is_waiting, waiting.timer_set(WAIT)) == (True, True)
        assert waiting.start(4) == 4
        assert not waiting.adaptive.is_waiting
        assert not waiting.timer_set(WAIT)
        assert waiting.timers == {COOL: 500}

    def test_with_fewer_when_no_more_came_for_a_while(self) -> None:
        waiting = Waiting()
        waiting.adaptive.wait()
        assert waiting.start(2) is None
        assert waiting.timer_set(STABLE)
        assert waiting.start(3) is None, "one more came; the time goes on"
        waiting.adaptive.fired(STABLE)
        assert waiting.start(3) == 3

    def test_slots_that_go_begin_the_time_anew(self) -> None:
        waiting = Waiting()
        waiting.adaptive.wait()
        waiting.start(2)
        assert waiting.timer_set(STABLE)
        assert waiting.start(0) is None
        assert not waiting.timer_set(STABLE)
        waiting.adaptive.fired(STABLE)  # it was on its way
        assert waiting.start(2) is None

    def test_with_whatever_there_is_when_the_wait_is_over(self) -> None:
        waiting = Waiting()
        waiting.adaptive.wait()
        waiting.start(1)
        waiting.adaptive.fired(WAIT)
        assert waiting.start(1) == 1

    def test_without_any_the_job_fails_and_is_not_tried_again(self) -> None:
        waiting = Waiting()
        waiting.adaptive.wait()
        assert waiting.start(0) is None
        waiting.adaptive.fired(WAIT)
        failure = waiting.start(0)
        assert isinstance(failure, TaskFailure)
        assert (failure.kind, failure.recoverable) == ("NoResourceAvailable", False)
        assert "no slot at all for slot sharing group(s) 'default' after 1000 ms" in failure.message
        assert not waiting.adaptive.is_waiting

    def test_no_stabilization(self) -> None:
        waiting = Waiting(AdaptiveSettings(wait_ms=1000, stable_ms=0, cooldown_ms=0, running_stable_ms=0))
        waiting.adaptive.wait()
        assert waiting.start(2) == 2
        assert not waiting.timer_set(COOL)

    def test_its_end_cancels_all_timers(self) -> None:
        waiting = Waiting()
        waiting.adaptive.wait()
        waiting.start(2)
        waiting.adaptive.cool_down()
        waiting.adaptive.stop()
        assert not waiting.timer_set(WAIT)
        assert (waiting.timers, waiting.adaptive.is_waiting) == ({}, False)

    def test_the_options(self) -> None:
        names = (RESOURCE_WAIT_TIMEOUT, RESOURCE_STABILIZATION_TIMEOUT, RESCALE_COOLDOWN)
        keys = [option.key for option in (*names, RESCALE_STABILIZATION_TIMEOUT)]
        options = {key: f"{place + 1} s" for place, key in enumerate(keys)}
        assert settings({"jobmanager.scheduler": "adaptive", **options}).adaptive == AdaptiveSettings(
            wait_ms=1_000, stable_ms=2_000, cooldown_ms=3_000, running_stable_ms=4_000
        )


class TestGrowing:
    @staticmethod
    def running(slots: int = 2) -> Waiting:
        waiting = Waiting()
        waiting.adaptive.wait()
        waiting.start(slots)
        waiting.adaptive.fired(STABLE)
        assert waiting.start(slots) == slots
        return waiting

    @staticmethod
    def grows(waiting: Waiting, current: int, slots: int) -> bool:
        return waiting.adaptive.should_grow(job_graph(parallelism=current), leased(default=slots))

    def test_at_once_to_all_after_the_cool_down(self) -> None:
        waiting = self.running()
        assert not self.grows(waiting, 2, 4)
        waiting.adaptive.fired(COOL)
        assert self.grows(waiting, 2, 4)

    def test_to_some_when_no_more_came_for_a_while(self) -> None:
        waiting = self.running()
        waiting.adaptive.fired(COOL)
        assert not self.grows(waiting, 2, 3)
        assert waiting.timer_set(STABLE)
        assert waiting.timers[STABLE] == 200
        waiting.adaptive.fired(STABLE)
        assert self.grows(waiting, 2, 3)

    @pytest.mark.parametrize("slots", [0, 1, 2])
    def test_not_without_more_slots(self, slots: int) -> None:
        waiting = self.running()
        waiting.adaptive.fired(COOL)
        assert not self.grows(waiting, 2, 3)
        assert not self.grows(waiting, 2, slots)
        assert not waiting.timer_set(STABLE), "the one that came is gone again"

    def test_never_above_what_was_wanted(self) -> None:
        waiting = self.running(4)
        waiting.adaptive.fired(COOL)
        assert not self.grows(waiting, 4, 9)
