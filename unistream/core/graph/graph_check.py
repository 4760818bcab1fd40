"""Checks that a job graph can run: after translation, and by the Dispatcher (graphs come from outside).

Every refusal is a `ConfigError` that names the operator and the option to change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.base.limits import KEY_GROUPS_MAX, PARALLELISM_MAX, VERTICES_MAX
from unistream.core.graph.exchange_modes import why_no_checkpoints
from unistream.core.graph.placement_check import check_exchanges, check_groups, check_regions_and_colocations
from unistream.model.counter_names import refused_operator
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship
from unistream.model.stream_graph import StreamGraph

JOB_NAME_CHARS_MAX: Final = 200  # of a line of a table or a log, and of a column of a database
NAMES_SHOWN: Final = 10  # in one sentence

N = TypeVar("N", bound=Hashable)


def check(graph: JobGraph) -> None:
    """Raises ConfigError for the first problem."""
    if not 0 < len(graph.name) <= JOB_NAME_CHARS_MAX or not graph.name.isprintable():
        raise ConfigError(
            f"a job's name has 1 to {JOB_NAME_CHARS_MAX} printable characters, not {graph.name!r:.80}"
        )
    if not graph.vertices:
        raise ConfigError(f"job {graph.name!r} has no operators: add a source and a sink")
    if len(graph.vertices) > VERTICES_MAX:
        raise ConfigError(f"job {graph.name!r} has {len(graph.vertices)} vertices, limit {VERTICES_MAX}")
    Configuration(graph.config)  # an unknown key or value is refused by name
    _check_identities(graph)
    for vertex in graph.vertices:
        check_parallelism(f"operator {vertex.name!r}", vertex.parallelism, vertex.max_parallelism)
    known = {vertex.id: vertex for vertex in graph.vertices}
    fed: dict[VertexId, set[int]] = {vertex.id: set() for vertex in graph.vertices}
    for edge in graph.edges:
        _check_edge(known, edge)
        fed[edge.target].add(edge.input_index)
    _check_order(graph)
    for vertex in graph.vertices:
        _check_inputs(vertex, fed[vertex.id])
    check_exchanges(graph)
    check_groups(graph)
    check_regions_and_colocations(graph)


def operators_without_uid(graph: JobGraph) -> list[str]:
    """Names of sources and stateful operators whose uid is generated: their state is lost if the graph
    changes."""
    return [
        operator.name
        for vertex in graph.vertices
        for place, operator in enumerate(vertex.operators)
        if operator.generated_uid and (operator.stateful or (vertex.source is not None and place == 0))
    ]


def uid_advice(graph: JobGraph) -> str | None:
    """A warning about such operators; None: there are none, or the job takes no snapshots."""
    names = operators_without_uid(graph)
    if not names or (graph.bootstrap is None and why_no_checkpoints(graph) is not None):
        return None
    shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return (
        f"no uid on {shown}{more}: set one with .uid(...); a changed pipeline finds its state in a savepoint "
        "by uid, and generated uids change with the pipeline"
    )


def _check_identities(graph: JobGraph) -> None:
    names: dict[str, str] = {}
    for vertex in graph.vertices:
        if not vertex.operators:
            raise ConfigError(f"vertex {vertex.name!r} has no operators")
        for operator in vertex.operators:
            why = refused_operator(operator.name)
            if why is not None:
                raise ConfigError(why)
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


def check_parallelism(where: str, parallelism: int, max_parallelism: int) -> None:
    """Raises ConfigError unless 1 <= parallelism <= max_parallelism and both are within the limits."""
    key = f"set_parallelism(...) or {options.PARALLELISM.key}"
    if parallelism < 1:
        raise ConfigError(f"{where}: parallelism {parallelism} is less than 1; change {key}")
    if parallelism > PARALLELISM_MAX:
        raise ConfigError(
            f"{where}: parallelism {parallelism} is above the limit {PARALLELISM_MAX}; change {key}"
        )
    if not 1 <= max_parallelism <= KEY_GROUPS_MAX:
        raise ConfigError(
            f"{where}: max parallelism {max_parallelism} is not between 1 and {KEY_GROUPS_MAX}; "
            f"change {options.MAX_PARALLELISM.key}"
        )
    if parallelism > max_parallelism:
        raise ConfigError(
            f"{where}: parallelism {parallelism} is above max parallelism {max_parallelism}; "
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
        raise ConfigError(f"operator {vertex.name!r} is not a source and has no input")
    for index in range(vertex.inputs):
        if index not in fed:
            raise ConfigError(f"operator {vertex.name!r}: nothing feeds input {index}")


def _check_order(graph: JobGraph) -> None:
    """Raises ConfigError unless vertices come before their consumers."""
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    edges = [(edge.source, edge.target) for edge in graph.edges]
    if len(sorted_by_level(list(names), edges)) < len(names):
        refuse_cycle(names, edges)
    places = {vertex: place for place, vertex in enumerate(names)}
    for edge in graph.edges:
        if places[edge.source] > places[edge.target]:
            raise ConfigError(f"edge {edge.id!r} goes backwards: vertices must be in topological order")


# --- order of nodes -------------------------------------------------------------------------------


def topological(graph: StreamGraph) -> list[int]:
    """Node ids, producers first: by distance from the sources, then in order of creation."""
    known = {node.id: node.name for node in graph.nodes}
    if len(known) != len(graph.nodes):
        raise ConfigError(f"job {graph.name!r}: two nodes have the same position")
    for edge in graph.edges:
        if edge.source not in known or edge.target not in known:
            raise ConfigError(f"job {graph.name!r}: an edge {edge.source} -> {edge.target} has no such end")
    edges = [(edge.source, edge.target) for edge in graph.edges]
    order = sorted_by_level(sorted(known), edges)
    if len(order) < len(known):
        refuse_cycle(known, edges)
    return order


def sorted_by_level(nodes: Sequence[N], edges: Iterable[tuple[N, N]]) -> list[N]:
    """Nodes level by level, each level in the given order; those on or behind a cycle are left out.

    >>> sorted_by_level("abcd", [("a", "c"), ("c", "b")])
    ['a', 'd', 'c', 'b']
    """
    places = {node: place for place, node in enumerate(nodes)}
    outputs: dict[N, list[N]] = {node: [] for node in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for source, target in edges:
        outputs[source].append(target)
        waiting[target] += 1
    order: list[N] = []
    level = [node for node in nodes if waiting[node] == 0]
    while level:
        order += level
        following = []
        for node in level:
            for target in outputs[node]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    following.append(target)
        level = sorted(following, key=places.__getitem__)
    return order


def refuse_cycle(names: Mapping[N, str], edges: Iterable[tuple[N, N]]) -> None:
    """Raises ConfigError with the operators on a cycle of a graph that has one."""
    pairs = list(edges)
    fine = set(sorted_by_level(list(names), pairs))
    producers = {target: source for source, target in pairs if source not in fine and target not in fine}
    node = next(iter(producers))
    seen: dict[N, None] = {}
    while node not in seen:
        seen[node] = None
        node = producers[node]
    path = list(seen)
    around = [*path[path.index(node) :], node][::-1]
    raise ConfigError(
        f"operators {' -> '.join(repr(names[n]) for n in around)} form a cycle; a job has no "
        "feedback edges, so remove the edge that leads back"
    )
