"""The number of key groups of a job that starts from a snapshot.

Keyed state is stored by key group, so a job must have as many as the snapshot. A number that the user has set
is never changed (`core.restore` refuses the snapshot); a derived one is, so that the same pipeline can be
restored with another parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from unistream.base.config import PARALLELISM
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.snapshot import Manifest


def adapt_max_parallelism(graph: JobGraph, manifest: Manifest) -> JobGraph:
    """`graph` with the key groups of the snapshot where the user has set none."""
    stored = _keyed_operators(manifest)
    if not stored:
        return graph
    return structs.replace(graph, vertices=tuple(_adapted(vertex, stored) for vertex in graph.vertices))


def _keyed_operators(manifest: Manifest) -> dict[OperatorUid, int]:
    """Operators with keyed state -> how many key groups that has."""
    return {
        uid: vertex.max_parallelism
        for vertex in manifest.vertices
        for task in vertex.subtasks
        if task is not None
        for uid, handle in task.operators.items()
        if handle.keyed
    }


def _adapted(vertex: JobVertex, stored: Mapping[OperatorUid, int]) -> JobVertex:
    key_groups = next((stored[op.uid] for op in vertex.operators if op.uid in stored), None)
    if key_groups is None or key_groups == vertex.max_parallelism or not vertex.max_parallelism_derived:
        return vertex
    if vertex.parallelism > key_groups:
        raise ConfigError(
            f"operator {vertex.name!r}: parallelism {vertex.parallelism} is above the {key_groups} key "
            f"groups of its stored state; lower set_parallelism(...) or {PARALLELISM.key}"
        )
    return structs.replace(vertex, max_parallelism=key_groups)
