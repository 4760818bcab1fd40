"""How people name the vertices of a job: by id, by name, or by the uid of one of its operators. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.model.graph import JobGraph, JobVertex


def vertices_named(graph: JobGraph, parallelism: Mapping[str, int]) -> dict[VertexId, int]:
    """`parallelism` by vertex id.

    Raises:
        ConfigError: nothing was named, a name fits no vertex or several, one vertex was given two numbers, or
            something is not a number.
    """
    check_widths(parallelism)
    if not parallelism:
        raise ConfigError(f"name at least one vertex of job {graph.name!r}; {_known(graph)}")
    found: dict[VertexId, tuple[str, int]] = {}
    for text, width in parallelism.items():
        vertex = _find(graph, text)
        other, same = found.setdefault(vertex.id, (text, width))
        if same != width:
            raise ConfigError(f"{other!r} and {text!r} are one vertex, but were given {same} and {width}")
    return {vertex: width for vertex, (_, width) in found.items()}


def check_widths(parallelism: object) -> None:
    """Raises ConfigError unless it is a mapping of texts to whole numbers."""
    if not isinstance(parallelism, Mapping):
        raise ConfigError(f"parallelism is given as {{vertex: number}}, not as {str(parallelism)[:200]!r}")
    for text, width in parallelism.items():
        if not isinstance(text, str):
            raise ConfigError(f"a vertex is named by text, not {text!r}")
        if isinstance(width, bool) or not isinstance(width, int):
            raise ConfigError(f"the parallelism of {text!r} is a whole number, not {width!r}")


def _find(graph: JobGraph, text: str) -> JobVertex:
    """An id wins over names and uids, which may be anything."""
    by_id = [vertex for vertex in graph.vertices if vertex.id == text]
    named = [vertex for vertex in graph.vertices if vertex.name == text or text in _uids(vertex)]
    found = by_id or named
    if not found:
        raise ConfigError(f"job {graph.name!r} has no vertex {text[:200]!r}; {_known(graph)}")
    if len(found) > 1:
        ids = ", ".join(f"{vertex.id} ({vertex.name!r})" for vertex in found)
        raise ConfigError(f"{text[:200]!r} could be one of {len(found)} vertices: {ids}; give the id")
    return found[0]


def _uids(vertex: JobVertex) -> list[str]:
    """Those that a user gave."""
    return [operator.uid for operator in vertex.operators if not operator.generated_uid]


def _known(graph: JobGraph) -> str:
    told = (
        f"{vertex.name!r}" + (f" (uid {', '.join(_uids(vertex))})" if _uids(vertex) else "")
        for vertex in graph.vertices
    )
    return f"there are {', '.join(told)}"
