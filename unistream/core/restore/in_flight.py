"""In-flight rows of an unaligned checkpoint, redistributed to the subtasks that start from it. Pure.

Rows are restored at the consumer, whichever side had stored them: first what it had been restored with
before, then the rows of inputs, then those of outputs. All of them are processed before anything new, so that
the order within a channel, and for a key, is kept.

If the parallelism of the consumer has changed, the rows for an old subtask are read by (FLINK-17979):

    hash        all new subtasks that own a part of its key groups; each takes its own rows
    rebalance   one new subtask, in turn
    global      the first
    others      refused: forward, rescale and broadcast bind rows to a subtask
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, OperatorUid, SubtaskId
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship
from unistream.model.in_flight import InFlightHandle, InFlightRun, InFlightShare, KeyFilter
from unistream.model.key_groups import key_group_range
from unistream.model.redistribution import Redistribution, redistribution
from unistream.model.snapshot import Manifest, TaskRestore, VertexSnapshot


@dataclass(frozen=True, slots=True)
class _StoredRun:
    """One stored run. `age`: 0 restored, 1 inputs, 2 outputs."""

    age: int
    file: FileRef
    run: InFlightRun


def with_in_flight(
    restores: Mapping[SubtaskId, TaskRestore],
    manifest: Manifest,
    directory: str,
    graph: JobGraph,
    *,
    allow_non_restored: bool,
) -> dict[SubtaskId, TaskRestore]:
    """`restores` (of `state_assignment`) with the in-flight rows that each subtask begins with.

    Raises:
        ConfigError: an edge that had rows no longer exists (unless they may be dropped), sends by another
            key, or binds them to subtasks whose number has changed.
    """
    result = dict(restores)
    stored = _by_edge(manifest)
    if not stored:
        return result
    edges = {edge.id: edge for edge in graph.edges}
    old = {uid: vertex for vertex in manifest.vertices for uid in vertex.operators}
    for edge_id, runs in stored.items():
        edge = edges.get(edge_id)
        if edge is None:
            if allow_non_restored:
                continue
            raise ConfigError(
                f"{directory} is an unaligned checkpoint with in-flight rows on edge {edge_id!r}, "
                "which the job does not have: start from a savepoint, which never has such rows, or allow "
                "non-restored state, which drops them"
            )
        source, target = graph.vertex(edge.source), graph.vertex(edge.target)
        _check_keys(
            edge, manifest.in_flight_keys.get(edge_id), f"{source.name!r} -> {target.name!r}", directory
        )
        change = _Change.of(edge, source, target, _known(source, old), _known(target, old))
        for index in range(target.parallelism):
            shares = tuple(change.shares(index, runs, directory))
            subtask = SubtaskId(target.id, index)
            if shares and subtask in result:
                restore = result[subtask]
                result[subtask] = structs.replace(restore, in_flight=restore.in_flight + shares)
    return result


def _check_keys(edge: JobEdge, sent_by: tuple[str, ...] | None, name: str, directory: str) -> None:
    """Rows are stored by key group; the state of another key would be elsewhere."""
    if sent_by is None or edge.ship is not Ship.HASH or edge.key_columns == sent_by:
        return
    was = f"by key ({', '.join(sent_by)})" if sent_by else "not by key"
    raise ConfigError(
        f"{directory} is an unaligned checkpoint with in-flight rows on {name}, which were sent {was}, "
        f"and would be sent by key ({', '.join(edge.key_columns)}) now: start from a savepoint, or "
        "undo the change"
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """An edge, and how the parallelism of its ends has changed."""

    edge: JobEdge
    target: JobVertex
    name: str
    old_consumers: int
    moves: bool  # the number of consumers, or of their key groups, has changed
    changed: bool  # … or that of producers

    @classmethod
    def of(
        cls,
        edge: JobEdge,
        source: JobVertex,
        target: JobVertex,
        old_source: VertexSnapshot | None,
        old_target: VertexSnapshot | None,
    ) -> _Change:
        producers = source.parallelism if old_source is None else old_source.parallelism
        consumers = target.parallelism if old_target is None else old_target.parallelism
        groups = target.max_parallelism if old_target is None else old_target.max_parallelism
        by_key = edge.ship is Ship.HASH
        moves = consumers != target.parallelism or (by_key and groups != target.max_parallelism)
        name = f"{source.name!r} -> {target.name!r} ({edge.ship.value})"
        return cls(edge, target, name, consumers, moves, moves or producers != source.parallelism)

    def shares(self, index: int, runs: Iterable[_StoredRun], directory: str) -> Iterable[InFlightShare]:
        """What new consumer `index` reads of `runs`, oldest first."""
        how = redistribution(self.edge.ship)
        if self.changed and how is Redistribution.UNSUPPORTED:
            raise ConfigError(
                f"{directory} is an unaligned checkpoint with in-flight rows on {self.name}, which "
                "cannot be redistributed to another parallelism: keep the parallelism of both, start from a "
                "savepoint, or put a rebalance or key_by between them"
            )
        consumers: tuple[int, ...] = (index,)
        if self.moves:
            consumers = how.old_subtasks(index, old=self.old_consumers, new=self.target.parallelism)
        only = self._filter(index) if self.moves and how.is_ambiguous else None
        for stored in runs:
            if stored.run.consumer in consumers:
                yield InFlightShare(
                    file=stored.file,
                    run=stored.run,
                    input_index=self.edge.input_index,
                    same_channel=not self.changed,
                    only=only,
                )

    def _filter(self, index: int) -> KeyFilter:
        target = self.target
        first, last = key_group_range(target.max_parallelism, target.parallelism, index)
        return KeyFilter(
            columns=self.edge.key_columns,
            max_parallelism=target.max_parallelism,
            first=first,
            last=last,
        )


def _by_edge(manifest: Manifest) -> dict[EdgeId, list[_StoredRun]]:
    """All runs, oldest first."""
    found: list[_StoredRun] = []
    for vertex in manifest.vertices:
        for task in vertex.subtasks:
            if task is not None and task.in_flight is not None:
                found += _of_task(task.in_flight)
    found.sort(key=lambda s: (s.age, s.run.consumer, s.run.producer))
    edges: dict[EdgeId, list[_StoredRun]] = {}
    for stored in found:
        edges.setdefault(stored.run.edge, []).append(stored)
    return edges


def _of_task(handle: InFlightHandle) -> Iterable[_StoredRun]:
    for age, runs in enumerate((handle.restored, handle.inputs, handle.outputs)):
        yield from (_StoredRun(age, handle.file, run) for run in runs)


def _known(vertex: JobVertex, old: Mapping[OperatorUid, VertexSnapshot]) -> VertexSnapshot | None:
    return next((old[op.uid] for op in vertex.operators if op.uid in old), None)
