"""Is a job graph one that can run? Asked after translation, and by the Dispatcher (graphs come from outside).

Every refusal is a `ConfigError` that names the operator and the option to change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from unistream.base import config as options
from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.base.limits import KEY_GROUPS_MAX, PARALLELISM_MAX, VERTICES_MAX
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship


def check(graph: JobGraph) -> None:
    """Raises ConfigError for the first thing that is wrong."""
    if not graph.vertices:
        raise ConfigError(f"job {graph.name!r} has no operators: add a source and a sink")
    if len(graph.vertices) > VERTICES_MAX:
        raise ConfigError(f"job {graph.name!r} has {len(graph.vertices)} vertices, limit {VERTICES_MAX}")
    _check_identities(graph)
    for vertex in graph.vertices:
        _check_parallelism(vertex)
    known = {vertex.id: vertex for vertex in graph.vertices}
    fed: dict[VertexId, set[int]] = {vertex.id: set() for vertex in graph.vertices}
    for edge in graph.edges:
        _check_edge(known, edge)
        fed[edge.target].add(edge.input_index)
    _check_order(graph)
    for vertex in graph.vertices:
        _check_inputs(vertex, fed[vertex.id])


def operators_without_uid(graph: JobGraph) -> list[str]:
    """Names of sources and stateful operators whose uid is generated: their state is lost when the graph
    changes, so the user should be warned."""
    return [
        operator.name
        for vertex in graph.vertices
        for place, operator in enumerate(vertex.operators)
        if operator.generated_uid and (operator.stateful or (vertex.source is not None and place == 0))
    ]


def _check_identities(graph: JobGraph) -> None:
    names: dict[str, str] = {}
    for vertex in graph.vertices:
        if not vertex.operators:
            raise ConfigError(f"vertex {vertex.name!r} has no operators")
        for operator in vertex.operators:
            if not operator.uid:
                raise ConfigError(f"operator {operator.name!r} has an empty uid: give it one with uid(...)")
            if operator.uid in names:
                raise ConfigError(
                    f"operators {names[operator.uid]!r} and {operator.name!r} have the same uid "
                    f"{operator.uid!r}: give each its own with uid(...)"
                )
            names[operator.uid] = operator.name
    for kind, ids in (("vertex", [v.id for v in graph.vertices]), ("edge", [e.id for e in graph.edges])):
        for duplicate, count in Counter(ids).items():
            if count > 1:
                raise ConfigError(f"{kind} id {duplicate!r} is used {count} times")


def _check_parallelism(vertex: JobVertex) -> None:
    where = f"operator {vertex.name!r}"
    key = f"set_parallelism(...) or {options.PARALLELISM.key}"
    if vertex.parallelism < 1:
        raise ConfigError(f"{where}: parallelism {vertex.parallelism} is less than 1; change {key}")
    if vertex.parallelism > PARALLELISM_MAX:
        raise ConfigError(
            f"{where}: parallelism {vertex.parallelism} is above the limit {PARALLELISM_MAX}; change {key}"
        )
    if not 1 <= vertex.max_parallelism <= KEY_GROUPS_MAX:
        raise ConfigError(
            f"{where}: max parallelism {vertex.max_parallelism} is not between 1 and {KEY_GROUPS_MAX}; "
            f"change {options.MAX_PARALLELISM.key}"
        )
    if vertex.parallelism > vertex.max_parallelism:
        raise ConfigError(
            f"{where}: parallelism {vertex.parallelism} is above max parallelism {vertex.max_parallelism}; "
            f"lower {key}, or raise {options.MAX_PARALLELISM.key}"
        )


def _check_edge(known: Mapping[VertexId, JobVertex], edge: JobEdge) -> None:
    for end in (edge.source, edge.target):
        if end not in known:
            raise ConfigError(f"edge {edge.id!r} refers to vertex {end!r}, which does not exist")
    source, target = known[edge.source], known[edge.target]
    where = f"edge {source.name!r} -> {target.name!r}"
    if target.source is not None:
        raise ConfigError(f"{where}: {target.name!r} is a source, and a source has no inputs")
    if not 0 <= edge.input_index < target.inputs:
        raise ConfigError(
            f"{where}: input {edge.input_index} does not exist, {target.name!r} has {target.inputs} input(s)"
        )
    if edge.ship is Ship.FORWARD and source.parallelism != target.parallelism:
        raise ConfigError(
            f"{where}: a forward edge needs equal parallelism, not {source.parallelism} and "
            f"{target.parallelism}; use rebalance() or set_parallelism(...)"
        )
    if edge.ship is Ship.HASH and not edge.key_columns:
        raise ConfigError(f"{where}: a hash edge needs key columns; name them in key_by(...)")


def _check_inputs(vertex: JobVertex, fed: set[int]) -> None:
    if vertex.source is not None:
        if vertex.inputs:
            raise ConfigError(f"operator {vertex.name!r} is a source, and a source has no inputs")
        return
    if vertex.inputs < 1:
        raise ConfigError(f"operator {vertex.name!r} is no source and has no input")
    for index in range(vertex.inputs):
        if index not in fed:
            raise ConfigError(f"operator {vertex.name!r}: nothing feeds input {index}")


def _check_order(graph: JobGraph) -> None:
    """Vertices come before what they feed; if they cannot, the graph has a cycle."""
    outputs: dict[VertexId, list[VertexId]] = {vertex.id: [] for vertex in graph.vertices}
    waiting = dict.fromkeys(outputs, 0)
    for edge in graph.edges:
        outputs[edge.source].append(edge.target)
        waiting[edge.target] += 1
    free = [vertex for vertex, inputs in waiting.items() if inputs == 0]
    while free:
        for target in outputs[free.pop()]:
            waiting[target] -= 1
            if waiting[target] == 0:
                free.append(target)
    stuck = [vertex.name for vertex in graph.vertices if waiting[vertex.id] > 0]
    if stuck:
        raise ConfigError(f"operators {', '.join(map(repr, stuck))} form or follow a cycle: a job has none")
    places = {vertex: place for place, vertex in enumerate(outputs)}
    for edge in graph.edges:
        if places[edge.source] > places[edge.target]:
            raise ConfigError(f"edge {edge.id!r} goes backwards: vertices must be in topological order")
