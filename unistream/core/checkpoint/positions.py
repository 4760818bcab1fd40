"""Which positions of sources a sink records with the commit of a checkpoint. Pure.

Which sources come into question the graph says (`unistream.core.graph.recorded_sources`). The positions of a
checkpoint are recorded if its commit has exactly the rows before them:

    every split that was found is in the state of the assigner or of a reader, with its offset
        else (a reader has finished, there are too many) some would be missing, and be read again
    no row is in flight between source and committer
        else the rows before the positions are not all in the commit: they come with a later one
    the history of a source with phases is read
        else the table has a part of it, and nobody who goes on from the positions reads the rest
    barriers are aligned (exactly once)
        else the commit has rows behind the positions, which would be read again

Otherwise the commit has no positions; a later one has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from unistream.base.config import CHECKPOINT_MODE, Configuration
from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.core.checkpoint.phased_assignment import stored_live_splits
from unistream.core.checkpoint.split_assignment import stored_splits
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.positions import POSITIONS_MAX, SourcePositions
from unistream.model.snapshot import VertexSnapshot


def recorded_positions(
    graph: JobGraph, snapshots: Sequence[VertexSnapshot]
) -> dict[OperatorUid, tuple[SourcePositions, ...]]:
    """See `Manifest.positions`. `snapshots`: of all vertices, as they are in the manifest."""
    committers = [(v.id, operator) for v in graph.vertices for operator in v.operators if operator.records]
    if not committers or Configuration(graph.config).get(CHECKPOINT_MODE) != "EXACTLY_ONCE":
        return {}
    overtaken = {
        edge
        for snapshot in snapshots
        for task in snapshot.subtasks
        if task is not None and task.in_flight is not None
        for edge in task.in_flight.edges
    }
    stored = {snapshot.vertex: snapshot for snapshot in snapshots}
    sources = {vertex.operators[0].uid: vertex for vertex in graph.vertices if vertex.source is not None}
    found: dict[OperatorUid, tuple[SourcePositions, ...]] = {}
    for vertex, committer in committers:
        if overtaken & _edges_before(graph, vertex):
            continue
        of_sources = (source_positions(sources[uid], stored[sources[uid].id]) for uid in committer.records)
        complete = tuple(chain.from_iterable(of_sources))
        if complete:
            found[committer.uid] = complete
    return found


def read_positions(graph: JobGraph, snapshots: Sequence[VertexSnapshot]) -> tuple[SourcePositions, ...]:
    """Where each source was read up to at a checkpoint, for people and orchestrators; without those whose
    positions are not all known. Rows before them may still be in windows, or in flight."""
    stored = {snapshot.vertex: snapshot for snapshot in snapshots}
    sources = (vertex for vertex in graph.vertices if vertex.id in stored)
    return tuple(chain.from_iterable(source_positions(vertex, stored[vertex.id]) for vertex in sources))


def sources_before(graph: JobGraph, vertex: VertexId) -> set[OperatorUid]:
    """The sources whose rows come to a vertex, itself included."""
    vertices = {vertex} | {edge.source for edge in graph.edges if edge.id in _edges_before(graph, vertex)}
    return {one.operators[0].uid for one in graph.vertices if one.id in vertices and one.source is not None}


def source_positions(vertex: JobVertex, snapshot: VertexSnapshot) -> tuple[SourcePositions, ...]:
    """The positions of one source at a checkpoint, of each thing that it reads; none: not those of all splits
    are known."""
    if vertex.source is None or snapshot.coordinator is None:
        return ()
    state = snapshot.coordinator
    splits = stored_live_splits(state) if vertex.source.phases else stored_splits(state)
    if splits is None:
        return ()
    uid = vertex.operators[0].uid
    found = {one.id: one.recorded for one in splits.unassigned if one.recorded is not None}
    for task in snapshot.subtasks:
        found |= {} if task is None else task.positions.get(uid, {})
    offsets = dict(found.values())
    if not found or found.keys() != splits.known or len(offsets) != len(found) or len(found) > POSITIONS_MAX:
        return ()
    info = vertex.source.last_phase
    if info.recorded_by_name:
        return _by_name(uid, info.connector, offsets, splits.origins)
    return (
        SourcePositions(
            uid=uid,
            connector=info.connector,
            name=info.recorded_as,
            origin=splits.origin,
            offsets=dict(sorted(offsets.items())),
        ),
    )


def _by_name(
    uid: OperatorUid, connector: str, offsets: Mapping[str, int], origins: Mapping[str, str]
) -> tuple[SourcePositions, ...]:
    """See `SourceInfo.recorded_by_name`; none: one is of a split that was found when one thing was read."""
    found: dict[str, dict[str, int]] = {}
    for key, offset in sorted(offsets.items()):
        name, dash, partition = key.rpartition("-")
        if not dash:
            return ()
        found.setdefault(name, {})[partition] = offset
    return tuple(
        SourcePositions(uid=uid, connector=connector, name=name, origin=origins.get(name, ""), offsets=of_it)
        for name, of_it in found.items()
    )


def _edges_before(graph: JobGraph, vertex: VertexId) -> set[EdgeId]:
    """All that lead to it, from any source."""
    found: set[EdgeId] = set()
    targets = {vertex}
    for one in reversed(graph.vertices):  # consumers first
        if one.id in targets:
            before = [edge for edge in graph.edges if edge.target == one.id]
            found.update(edge.id for edge in before)
            targets.update(edge.source for edge in before)
    return found
