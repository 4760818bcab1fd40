"""Which operators of a stream run before it, and what becomes of the exchanges between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core.graphs import BOUNDED, UNBOUNDED, job_of, node, resolved, translated
from unistream.base.errors import ConfigError
from unistream.core.graph import StagePlan, explain, offloaded_vertices, plan_json
from unistream.model.graph import JobGraph, JobType, Ship, SourceInfo
from unistream.model.partition_type import PartitionType
from unistream.model.stream_graph import StreamEdge, StreamGraph

OPTION = "execution.batch.offload-bounded-regions"
ON = {OPTION: "true"}
PHASED = SourceInfo(connector="hybrid", options={}, bounded=True, pull=True, phases=(BOUNDED, BOUNDED))


def graph(text: str, **changes: dict[str, object]) -> StreamGraph:
    """`text`: edges "ab bJ"; names in capitals are behind an unbounded source, those without an input are
    sources. "a-b" is PIPELINED, "a=b" BLOCKING by the user, "a~b" HASH."""
    names = list(dict.fromkeys(one for edge in text.split() for one in (edge[0], edge[-1])))
    targets = {edge[-1] for edge in text.split()}
    marks = {"-": PartitionType.PIPELINED_BOUNDED, "=": PartitionType.BLOCKING}
    nodes = []
    for number, name in enumerate(sorted(names, key=lambda one: (one in targets, one.isupper()))):
        source = None if name in targets else UNBOUNDED if name.isupper() else BOUNDED
        nodes.append(node(number, name, **{"source": source, "inputs": 1, **changes.get(name, {})}))
    ids = {one.name: one.id for one in nodes}
    edges = [
        StreamEdge(
            source=ids[edge[0]],
            target=ids[edge[-1]],
            partition=marks.get(edge[1:-1]),
            ship=Ship.HASH if "~" in edge else None,
            key_columns=("k",) if "~" in edge else (),
        )
        for edge in text.split()
    ]
    return StreamGraph(name="graph", nodes=nodes, edges=edges)


CASES = {
    "a table that a stream reads": ("ab bJ XJ", {}, "ab", []),
    "two tables are two parts": ("aJ bJ XJ", {}, "ab", []),
    "side by side": ("ac bc cJ XJ", {}, "abc", []),
    "without a stream there is none": ("ab bc", {}, "", []),
    "without a bounded source too": ("XJ", {}, "", []),
    "it has a sink": ("ab bJ as XJ", {}, "", ["'a', 'b', 's': nothing reads 's'"]),
    "another one has none": ("as bJ XJ", {}, "b", ["'a', 's': nothing reads 's'"]),
    "co-located": ("ab bJ XJ", {"b": {"colocation_group": "g"}}, "", ["'a', 'b': 'b' is co-located"]),
    "two phases": ("aJ XJ", {"a": {"source": PHASED}}, "", ["'a': source 'a' reads what follows"]),
    "a pipelined exchange behind it": ("a-J XJ", {}, "", ["'a': the exchange behind 'a' is PIPELINED"]),
    "a pipelined exchange inside": ("a-b bJ XJ", {}, "ab", []),
    "a stored exchange behind it": ("a=J XJ", {}, "a", []),
}


def part_of(job: JobGraph) -> str:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    return "".join(sorted("".join(names[one].replace(" -> ", "") for one in offloaded_vertices(job))))


@pytest.mark.parametrize("case", CASES)
def test_the_part(case: str) -> None:
    text, changes, part, left = CASES[case]
    found = resolved(graph(text, **changes), config=ON)
    nodes = {one.id: one.name for one in found.graph.nodes}
    assert "".join(sorted(nodes[one] for one in found.exchanges.part.nodes)) == part
    assert len(found.exchanges.part.left) == len(left)
    assert all(why.startswith(start) for why, start in zip(found.exchanges.part.left, left, strict=True))
    assert part_of(job_of(graph(text, **changes), config=ON)) == part


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="not set"),
        pytest.param({OPTION: "false"}, id="false"),
        pytest.param({OPTION: "true", "execution.runtime-mode": "STREAMING"}, id="set"),
    ],
)
def test_it_is_an_option(config: dict[str, str]) -> None:
    job = job_of(graph("ab bJ XJ"), config=config)
    assert job.job_type is JobType.STREAMING
    assert part_of(job) == ("ab" if config.get(OPTION) == "true" else "")


def test_a_bounded_job_has_no_part() -> None:
    job = job_of(graph("a~b b~c"), config=ON)
    assert (job.job_type, part_of(job)) == (JobType.BATCH, "")


@pytest.mark.parametrize(
    ("mode", "inside"),
    [("ALL_EXCHANGES_BLOCKING", "BLOCKING"), ("ALL_EXCHANGES_PIPELINED", "PIPELINED_BOUNDED")],
)
def test_what_leaves_the_part_is_stored_and_never_chained(mode: str, inside: str) -> None:
    job = job_of(graph("a~b bJ XJ JK"), config={**ON, "execution.batch-shuffle-mode": mode})
    names = {vertex.id: vertex.name for vertex in job.vertices}
    kinds = {(names[edge.source], names[edge.target]): edge.partition.value for edge in job.edges}
    assert kinds == {
        ("a", "b"): inside,
        ("b", "J -> K"): "BLOCKING",
        ("X", "J -> K"): "PIPELINED_BOUNDED",
    }


class _Operator:
    """With a form for bounded jobs."""

    def __init__(self, form: str = "stream") -> None:
        self.form = form

    def batch_form(self) -> _Operator:
        return _Operator("batch")


def test_its_operators_are_in_their_batch_form() -> None:
    operators = {name: {"operator": _Operator()} for name in "abXJ"}
    written = graph("ab bJ XJ")
    written.nodes = [replace(one, operator=operators[one.name]["operator"]) for one in written.nodes]
    _, code = translated(written, config=ON)
    forms = {one.name: one.operator.form for chain in code.chains.values() for one in chain.nodes}  # type: ignore[attr-defined]
    assert forms == {"a": "batch", "b": "batch", "X": "stream", "J": "stream"}


def test_what_needs_the_part_is_refused_outside_of_it() -> None:
    written = graph("ab bJ as XJ")
    written.nodes[0].needs_batch_form = "join: it has watermarks"
    with pytest.raises(ConfigError, match="join: it has watermarks; not in the bounded part: 'a', 'b', 's'"):
        job_of(written, config=ON)


def test_its_stages() -> None:
    job = job_of(graph("a~b bJ a~J XJ"), config=ON)
    names = {vertex.id: vertex.name for vertex in job.vertices}
    plan = StagePlan(job, offloaded_vertices(job))
    assert [[names[one] for one in stage.vertices] for stage in plan.stages] == [["a"], ["b"]]
    assert plan.committers == ()
    edges = {(names[edge.source], names[edge.target]): edge.id for edge in job.edges}
    assert plan.stored == {edges["b", "J"], edges["a", "J"]}
    assert len(plan.stages[1].places) == 3, "one relay for all that an edge which passes by has stored"
    assert plan.place(1, edges["a", "J"], 0) == 2
    assert plan.place(2, edges["b", "J"], 0) is None


def test_it_is_explained() -> None:
    found = resolved(graph("a~b bJ cs XJ"), config=ON)
    job = job_of(graph("a~b bJ cs XJ"), config=ON)
    text = explain(found, job)
    assert "bounded part, runs before the stream: [1], [4]" in text
    assert "engine: spark if the target is Spark, 2 stages; otherwise native" in text
    assert "not in the bounded part: 'c', 's': nothing reads 's'" in text
    shown = plan_json(found, job)["boundedPart"]
    assert shown["vertices"] == list(offloaded_vertices(job))
    assert len(shown["stages"]) == 2
    assert len(shown["left"]) == 1
