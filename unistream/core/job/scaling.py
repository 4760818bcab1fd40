"""How wide a job runs: the parallelism that a user requests, and what the available slots allow. Pure.

Vertices that a forward edge joins, or that are co-located, always have the same parallelism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.base.limits import PARALLELISM_MAX
from unistream.core.graph import check, joined
from unistream.core.resource import SlotKind, Unit, divide
from unistream.model.graph import JobGraph, JobVertex, Ship


def with_parallelism(graph: JobGraph, wanted: Mapping[VertexId, int]) -> JobGraph:
    """`graph` with these vertices at another parallelism; vertices joined to them by forward edges follow.

    Args:
        graph: A checked one.
        wanted: As requested; any number.

    Raises:
        ConfigError: an unknown vertex, a parallelism out of range, or two vertices that a forward edge (or a
            co-location group) joins were given different ones; named.
    """
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise ConfigError(f"job {graph.name!r} has no vertex {unknown[0]!r}")
    chosen: dict[VertexId, int] = {}
    for component in _equal_parallelism(graph):
        given = {vertex: wanted[vertex] for vertex in component if vertex in wanted}
        if len(set(given.values())) > 1:
            shown = ", ".join(f"{names[vertex]!r}={width}" for vertex, width in given.items())
            raise ConfigError(f"forward edges join {shown}: they must have the same parallelism")
        for vertex, width in given.items():
            _check_width(graph.vertex(vertex), width, [graph.vertex(member) for member in component])
            chosen |= dict.fromkeys(component, width)
    scaled = _scaled(graph, chosen)
    check(scaled)
    return scaled


def _check_width(vertex: JobVertex, width: int, joined: Sequence[JobVertex]) -> None:
    """Raises ConfigError with the numbers that are allowed, since nothing else of a running job can
    change."""
    narrowest = min((vertex, *joined), key=lambda member: member.max_parallelism)
    most = min(narrowest.max_parallelism, PARALLELISM_MAX)
    if width < 1:
        raise ConfigError(
            f"vertex {vertex.name!r}: parallelism {width} is less than 1; give a number from 1 to {most}"
        )
    if width > most:
        whose = (
            "" if narrowest is vertex else f" of {narrowest.name!r}, which always has the same parallelism"
        )
        limit = "the limit" if most < narrowest.max_parallelism else "max parallelism"
        raise ConfigError(
            f"vertex {vertex.name!r}: parallelism {width} is above {limit} {most}{whose}; give a number "
            f"from 1 to {most}"
        )


def _scaled(graph: JobGraph, widths: Mapping[VertexId, int]) -> JobGraph:
    vertices = tuple(
        structs.replace(vertex, parallelism=widths.get(vertex.id, vertex.parallelism))
        for vertex in graph.vertices
    )
    return structs.replace(graph, vertices=vertices)


def _equal_parallelism(graph: JobGraph) -> list[list[VertexId]]:
    """Vertices that must be equally wide: joined by forward edges, or co-located."""
    pairs = [(edge.source, edge.target) for edge in graph.edges if edge.ship is Ship.FORWARD]
    pairs += [(group[0], other) for group in graph.colocations for other in group[1:]]
    return joined([vertex.id for vertex in graph.vertices], pairs)


def slots_needed(graph: JobGraph) -> Counter[str]:
    """Slots of each slot sharing group at the parallelism of `graph`."""
    needed: Counter[str] = Counter()
    for vertex in graph.vertices:
        group = vertex.slot_sharing_group
        needed[group] = max(needed[group], vertex.parallelism)
    return needed


def fit(graph: JobGraph, slots: Mapping[SlotKind, int]) -> JobGraph | None:
    """The widest graph, up to `graph`, that runs in these slots; None: not even at 1."""
    by_id = {vertex.id: vertex for vertex in graph.vertices}
    components = [[by_id[member] for member in members] for members in _equal_parallelism(graph)]
    units = [
        Unit(frozenset(v.slot_sharing_group for v in members), min(v.parallelism for v in members))
        for members in components
    ]
    widths = divide(units, slots)
    if widths is None:
        return None
    fitted = _scaled(
        graph, {v.id: width for members, width in zip(components, widths, strict=True) for v in members}
    )
    check(fitted)
    return fitted


# --- how people name vertices: by id, by name, or by the uid of one of their operators -------------


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
            raise ConfigError(
                f"{other!r} and {text!r} name the same vertex, but were given {same} and {width}"
            )
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
    """The uids of a vertex that a user gave."""
    return [operator.uid for operator in vertex.operators if not operator.generated_uid]


def _known(graph: JobGraph) -> str:
    named = (
        f"{vertex.name!r}" + (f" (uid {', '.join(_uids(vertex))})" if _uids(vertex) else "")
        for vertex in graph.vertices
    )
    return f"there are {', '.join(named)}"
