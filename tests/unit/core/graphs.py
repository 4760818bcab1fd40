"""Small stream graphs for tests of translation."""

from __future__ import annotations

from typing import Any

from tests.modes import STREAMING
from unistream.core.graph import Resolved, resolve, translate_resolved
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph, Ship, SourceInfo
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

BOUNDED = SourceInfo(connector="static", options={}, bounded=True, pull=False)
UNBOUNDED = SourceInfo(connector="kafka", options={}, bounded=False, pull=False)


def node(number: int, name: str, **fields: Any) -> StreamNode:
    return StreamNode(id=number, name=name, operator=f"<{name}>", **fields)


def line(*edges: StreamEdge, graph: dict[str, Any] | None = None, **changes: dict[str, Any]) -> StreamGraph:
    """source -> a -> b; `changes`: fields by node name, `graph`: of the graph itself."""
    return StreamGraph(
        name="line",
        nodes=[
            node(0, "source", **{"source": BOUNDED, **changes.get("source", {})}),
            node(1, "a", **changes.get("a", {})),
            node(2, "b", **changes.get("b", {})),
        ],
        edges=list(edges) or [StreamEdge(source=0, target=1), StreamEdge(source=1, target=2)],
        **(graph or {}),
    )


def edges(*ships: Ship | None, **fields: Any) -> list[StreamEdge]:
    """0 -> 1 -> 2 … with these ways of shipping; `fields` for all of them."""
    keys = {Ship.HASH: ("k",)}
    return [
        StreamEdge(source=i, target=i + 1, ship=ship, key_columns=keys.get(ship, ()), **fields)
        for i, ship in enumerate(ships)
    ]


def translated(graph: StreamGraph, **how: Any) -> tuple[JobGraph, JobCode]:
    return translate_resolved(resolved(graph, **how), _arguments(how)["config"])


def job_of(graph: StreamGraph, **how: Any) -> JobGraph:
    return translated(graph, **how)[0]


def resolved(graph: StreamGraph, **how: Any) -> Resolved:
    return resolve(graph, **_arguments(how))


def names(graph: StreamGraph, **how: Any) -> list[str]:
    """Of the vertices."""
    return [vertex.name for vertex in job_of(graph, **how).vertices]


def _arguments(how: dict[str, Any]) -> dict[str, Any]:
    """Without a `config` it is a stream, though its source is bounded."""
    return {"parallelism": 2, "max_parallelism": None, "chaining": True, "config": STREAMING} | how
