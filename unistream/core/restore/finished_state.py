"""May a snapshot with finished tasks be restored into this graph (FLIP-147)?

A finished part sends nothing but MAX_WATERMARK and EndOfData, so nothing that still runs may stand before it.
"""

from __future__ import annotations

from enum import Enum

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.snapshot import Manifest, VertexSnapshot


class _Finished(Enum):
    ALL_RUNNING = 0  # also: an operator that the snapshot does not know
    PARTIALLY = 1
    FULLY = 2


def check_finished(manifest: Manifest, graph: JobGraph) -> None:
    """Raises ConfigError, with the operator and one of the reasons MIXED_STATES_IN_ONE_CHAIN,
    FULLY_FINISHED_AFTER_NOT_FULLY_FINISHED, PARTIAL_AFTER_RUNNING_OR_PARTIAL_VIA_ALL_TO_ALL,
    PARTIAL_AFTER_RUNNING_VIA_POINTWISE."""
    known = {uid: vertex for vertex in manifest.vertices for uid in vertex.operators}
    states = {vertex.id: _state_of(vertex, known) for vertex in graph.vertices}
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    for edge in graph.edges:
        before, after = states[edge.source], states[edge.target]
        text = f"{names[edge.target]!r} had finished and {names[edge.source]!r} before it had not"
        if after is _Finished.FULLY and before is not _Finished.FULLY:
            raise _refused("FULLY_FINISHED_AFTER_NOT_FULLY_FINISHED", text)
        if after is not _Finished.PARTIALLY:
            continue
        if not edge.ship.is_pointwise and before is not _Finished.FULLY:
            raise _refused("PARTIAL_AFTER_RUNNING_OR_PARTIAL_VIA_ALL_TO_ALL", text)
        if edge.ship.is_pointwise and before is _Finished.ALL_RUNNING:
            raise _refused("PARTIAL_AFTER_RUNNING_VIA_POINTWISE", text)


def _state_of(vertex: JobVertex, known: dict[OperatorUid, VertexSnapshot]) -> _Finished:
    found = {_finished(known.get(operator.uid)) for operator in vertex.operators}
    if len(found) > 1:
        raise _refused(
            "MIXED_STATES_IN_ONE_CHAIN",
            f"some operators of {vertex.name!r} had finished in the snapshot and others had not",
        )
    return found.pop()


def _finished(snapshot: VertexSnapshot | None) -> _Finished:
    if snapshot is None or not snapshot.finished_subtasks:
        return _Finished.ALL_RUNNING
    return _Finished.FULLY if snapshot.fully_finished else _Finished.PARTIALLY


def _refused(reason: str, text: str) -> ConfigError:
    return ConfigError(
        f"{reason}: {text}; an operator cannot be added or moved before or into a part of the job that had "
        "finished, start without that snapshot or undo the change"
    )
