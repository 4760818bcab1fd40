"""Of which sources a sink may say that its commits have all rows up to their positions."""

from __future__ import annotations

import pytest

from unistream.core.graph.recorded_sources import recorded_sources
from unistream.model.graph import SourceInfo
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

TOPIC = SourceInfo(connector="kafka", options={}, bounded=False, pull=False, recorded_as="flights")
FILES = SourceInfo(connector="file", options={}, bounded=True, pull=True)
BOTH = SourceInfo(connector="hybrid", options={}, bounded=False, pull=False, phases=(FILES, TOPIC))
FILES_TWICE = SourceInfo(connector="hybrid", options={}, bounded=True, pull=True, phases=(TOPIC, FILES))

SOURCES = {"topic": TOPIC, "other": TOPIC, "files": FILES, "both": BOTH, "files twice": FILES_TWICE}


def graph(*edges: str, stateful: str = "") -> StreamGraph:
    """`edges`: "a b" for rows from a to b. Names in SOURCES are sources, "W…" is a writer and "C…" its
    committer, all others are operators in between; those in `stateful` have state."""
    names = list(dict.fromkeys(name for edge in edges for name in edge.split(" > ")))
    places = {name: place for place, name in enumerate(names)}
    nodes = [
        StreamNode(
            id=place,
            name=name,
            operator=None,
            source=SOURCES.get(name),
            stateful=name in SOURCES or name[0] in "WCP" or name in stateful.split(),
            sink=places["W" + name[1:]] if name[0] in "WCP" else None,
            records_positions=name[0] == "C",
        )
        for name, place in places.items()
    ]
    return StreamGraph(
        nodes=nodes,
        edges=[
            StreamEdge(source=places[a], target=places[b]) for edge in edges for a, b in [edge.split(" > ")]
        ],
    )


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        pytest.param(graph("topic > W1", "W1 > C1"), {"C1": ["topic"]}, id="straight into the sink"),
        pytest.param(
            graph("topic > filter", "filter > map", "map > W1", "W1 > C1"),
            {"C1": ["topic"]},
            id="operators without state in between",
        ),
        pytest.param(
            graph("topic > W1", "W1 > P1", "P1 > C1"), {"C1": ["topic"]}, id="a stage of the sink itself"
        ),
        pytest.param(
            graph("topic > window", "window > W1", "W1 > C1", stateful="window"),
            {"C1": []},
            id="the last rows are in the state of a window",
        ),
        pytest.param(
            graph(
                "topic > map", "map > window", "window > filter", "filter > W1", "W1 > C1", stateful="window"
            ),
            {"C1": []},
            id="a window anywhere on the way",
        ),
        pytest.param(
            graph(
                "topic > filter", "topic > window", "filter > W1", "window > W1", "W1 > C1", stateful="window"
            ),
            {"C1": []},
            id="one of two ways goes through a window",
        ),
        pytest.param(
            graph("topic > W1", "W1 > C1", "topic > window", "window > W2", "W2 > C2", stateful="window"),
            {"C1": ["topic"], "C2": []},
            id="one of two sinks is behind a window",
        ),
        pytest.param(
            graph("topic > map", "map > W1", "map > W2", "W1 > C1", "W2 > C2"),
            {"C1": ["topic"], "C2": ["topic"]},
            id="two sinks",
        ),
        pytest.param(
            graph("topic > W1", "other > W1", "W1 > C1"),
            {"C1": ["topic", "other"]},
            id="two sources in one sink",
        ),
        pytest.param(
            graph("topic > W1", "other > window", "window > W1", "W1 > C1", stateful="window"),
            {"C1": ["topic"]},
            id="the other source goes through a window",
        ),
        pytest.param(
            graph("topic > join", "other > join", "join > W1", "W1 > C1", stateful="join"),
            {"C1": []},
            id="both inputs of a join",
        ),
        pytest.param(
            graph("topic > W1", "files > W1", "W1 > C1"),
            {"C1": ["topic"]},
            id="files have no positions to record",
        ),
        pytest.param(graph("both > W1", "W1 > C1"), {"C1": ["both"]}, id="a history and then a topic"),
        pytest.param(graph("files twice > W1", "W1 > C1"), {"C1": []}, id="files behind a history"),
        pytest.param(graph("topic > print"), {}, id="a sink that records nothing"),
        pytest.param(
            graph("other > map", "topic > W1", "W1 > C1"), {"C1": ["topic"]}, id="a source without a way"
        ),
    ],
)
def test_a_source_is_recorded_if_nothing_on_any_way_to_the_sink_keeps_rows(
    given: StreamGraph, recorded: dict[str, list[str]]
) -> None:
    found = recorded_sources(given)
    names = [node.name for node in given.nodes]
    assert {names[sink]: [names[k] for k in sources] for sink, sources in found.items()} == recorded
