"""The end of the input of a bootstrap, where a subtask stores its state instead of finishing.

    source, other bounded one   as in any BATCH job: it ends, and has no part in the savepoint
    source, hybrid              its reader asks for the live phase: the watermark, then a trigger
    behind them                 each channel ends with the watermark and the barrier, or with the end of data

A subtask is done when it has acknowledged: it is closed as one that fails right then. So nothing finishes,
and what its sinks have prepared is in the state of their committers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from unistream.base.ids import JobId, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.core.graph import BOOTSTRAP_CHECKPOINT, last_watermarks
from unistream.model.deployment import TaskDeployment
from unistream.model.elements import CheckpointBarrier, Element, Watermark
from unistream.model.file_ref import FileRef
from unistream.model.graph import Bootstrap, JobGraph
from unistream.model.messages import TriggerCheckpoint
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.storage import StateFile, StateWriter
from unistream.storage.savepoint_folder import state_folder_of
from unistream.storage.state_files import FsStateWriter
from unistream.worker.bounded.pieces import END_OF_INPUT


class EndOfHistory:
    """What happens at the end of the input of each vertex of one bootstrap."""

    def __init__(self, graph: JobGraph, bootstrap: Bootstrap) -> None:
        self._directory = bootstrap.directory
        self._timestamp_ms = bootstrap.timestamp_ms
        self._watermarks = last_watermarks(graph)

    @classmethod
    def of(cls, graph: JobGraph) -> Self | None:
        """None: the job is not a bootstrap."""
        return None if graph.bootstrap is None else cls(graph, graph.bootstrap)

    def watermark(self, vertex: VertexId) -> int:
        """The watermark at the end of the vertex's input; MIN_WATERMARK: there is none."""
        return self._watermarks[vertex]

    def behind(self, producer: VertexId) -> Sequence[Element]:
        """The last elements of each channel of `producer`."""
        watermark = self._watermarks[producer]
        if watermark == MAX_WATERMARK:
            return END_OF_INPUT
        barrier = CheckpointBarrier(
            BOOTSTRAP_CHECKPOINT, self._timestamp_ms, SnapshotKind.SAVEPOINT, self._directory
        )
        return (barrier,) if watermark == MIN_WATERMARK else (Watermark(watermark), barrier)

    def trigger(self, deployment: TaskDeployment) -> TriggerCheckpoint:
        """The order to a source to store its state."""
        return TriggerCheckpoint(
            attempt=deployment.attempt,
            checkpoint_id=BOOTSTRAP_CHECKPOINT,
            timestamp_ms=self._timestamp_ms,
            kind=SnapshotKind.SAVEPOINT,
            directory=self._directory,
            aligned=True,
        )


class BootstrapStateWriter:
    """`port.storage.StateWriter` in the job's own folder of the savepoint's directory: files that no
    manifest names can be recognized."""

    def __init__(self, directory: str, job: JobId) -> None:
        self._writer: StateWriter = FsStateWriter(directory)
        self._folder = state_folder_of(job)

    @property
    def bytes_written(self) -> int:
        return self._writer.bytes_written

    def write(self, name_hint: str, content: bytes | memoryview) -> FileRef:
        return self._writer.write(f"{self._folder}/{name_hint}", content)

    def open(self, name_hint: str) -> StateFile:
        return self._writer.open(f"{self._folder}/{name_hint}")

    def copy(self, name_hint: str, path: Path, *, shared: bool = False) -> FileRef:
        raise AssertionError(f"{name_hint}: the savepoint of a bootstrap is canonical")
