"""The savepoint of a bootstrap: what its subtasks have stored, and where its sources go on.

    stages ─► committers take what was staged ─► manifest, durable ─► commit
                                                      │
                                  from here on `run -s` goes on, and commits what is not committed yet

It is the order of a stop with savepoint: what the savepoint lists is committed after it is durable, under
its id.
"""

from __future__ import annotations

from collections.abc import Iterable

from unistream.base.ids import SubtaskId, VertexId
from unistream.core.checkpoint import MANIFEST_TRIES, PhasedAssigner, vertex_snapshot
from unistream.core.contract import JobSettings, ManifestFailed, WriteManifest
from unistream.core.graph import BOOTSTRAP_CHECKPOINT, drained_vertices, history_only, history_splits
from unistream.model.bounded import SubtaskSnapshot
from unistream.model.graph import JobGraph
from unistream.model.messages import Split, TaskFailure
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.splits import FoundSplits


class BootstrapSavepoint:
    """What the manifest of one bootstrap is made of. Without `graph.bootstrap` nothing is kept."""

    def __init__(self, graph: JobGraph, settings: JobSettings) -> None:
        self._graph = graph
        self._settings = settings
        self._hybrids = history_only(graph) if graph.bootstrap is not None else {}
        self._found: dict[VertexId, FoundSplits] = {}
        self._snapshots: dict[SubtaskId, SubtaskSnapshot] = {}
        self._tries = 0

    @property
    def is_wanted(self) -> bool:
        """The job is a bootstrap."""
        return self._graph.bootstrap is not None

    def found(self, vertex: VertexId, found: FoundSplits) -> tuple[Split, ...]:
        """The splits to be read of a source. The first discovery counts: it has the positions of the live
        source from before the history is read."""
        if vertex not in self._hybrids:
            return found.splits
        self._found.setdefault(vertex, found)
        return history_splits(self._found[vertex].splits)

    def stored(self, snapshots: Iterable[SubtaskSnapshot]) -> None:
        """State of subtasks; of one that has run again the last counts."""
        self._snapshots |= {one.subtask: one for one in snapshots}

    def write(self) -> WriteManifest:
        """Makes the savepoint exist. The state of all subtasks was reported."""
        bootstrap = self._graph.bootstrap
        assert bootstrap is not None, "only a bootstrap writes a savepoint"
        drained = drained_vertices(self._graph)
        wanted = {
            SubtaskId(vertex.id, index)
            for vertex in self._graph.vertices
            if vertex.id not in drained
            for index in range(vertex.parallelism)
        }
        missing = sorted(wanted - self._snapshots.keys())
        assert not missing, f"the state of {len(missing)} of {len(wanted)} subtasks was not reported"
        acked = {subtask: self._snapshots[subtask].snapshot for subtask in wanted}
        ended = {
            SubtaskId(v.id, i) for v in self._graph.vertices if v.id in drained for i in range(v.parallelism)
        }
        manifest = Manifest(
            job=self._settings.job,
            job_name=self._graph.name,
            lineage=self._settings.lineage,
            checkpoint_id=BOOTSTRAP_CHECKPOINT,
            kind=SnapshotKind.SAVEPOINT,
            timestamp_ms=bootstrap.timestamp_ms,
            vertices=tuple(
                vertex_snapshot(vertex, acked=acked, ended=ended, coordinator=self._coordinator(vertex.id))
                for vertex in self._graph.vertices
            ),
        )
        self._tries += 1
        return WriteManifest(directory=bootstrap.directory, manifest=manifest, tidies=True)

    def failed(self, event: ManifestFailed) -> TaskFailure | None:
        """The failure of the job, because the manifest was not written; None: it is written again, since the
        storage did not say whether it was. Of another run, which was complete first, it is not replaced."""
        if event.unknown and self._tries < MANIFEST_TRIES:
            return None
        return TaskFailure(
            kind="Fenced" if event.fenced else "SavepointNotWritten",
            message=f"the savepoint of the bootstrap: {event.reason}",
            recoverable=not event.fenced,
        )

    def _coordinator(self, vertex: VertexId) -> bytes | None:
        info = self._hybrids.get(vertex)
        if info is None:
            return None
        times = [
            one.newest
            for subtask, one in self._snapshots.items()
            if subtask.vertex == vertex and one.newest is not None
        ]
        parallelism = self._graph.vertex(vertex).parallelism
        assigner = PhasedAssigner.after_history(
            info, parallelism, self._found[vertex], max(times, default=None)
        )
        return assigner.snapshot(BOOTSTRAP_CHECKPOINT)
