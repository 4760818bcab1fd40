"""A sink as the runtime runs it, without a job: its committer is there before the first row is, and stays."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tests.contract.sinks.case import LINEAGE, context, permit, request
from unistream.base.ids import CheckpointId, LineageId
from unistream.model.elements import Batch
from unistream.port.sink import CommitOutcome, CommitResult, Sink, StatefulCommitter


class SinkRun:
    """One attempt of a job with this sink: opens the committer and the writers, and closes them at the end.

    Args:
        restored: The checkpoint that it goes on from, with these states of the committer and of each writer.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        writers: int = 1,
        lineage: LineageId = LINEAGE,
        restored: int | None = None,
        committer_state: Sequence[bytes] = (),
        writer_states: Sequence[Sequence[bytes]] = (),
        **where: Any,
    ) -> None:
        committer = sink.create_committer()
        assert committer is not None, "the sink has one"
        self.committer = committer
        if isinstance(committer, StatefulCommitter):
            committer.restore_state(committer_state)
        self._lineage = lineage
        committer.open(context(restored=restored, lineage=lineage, **where))
        self.writers = [sink.create_writer() for _ in range(writers)]
        for index, writer in enumerate(self.writers):
            state = writer_states[index] if writer_states else ()
            writer.open(context(index=index, restored=restored, lineage=lineage, **where), state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for one in (*self.writers, self.committer):
            one.close()

    def staged(self, checkpoint: int, *rows: pa.RecordBatch) -> list[bytes]:
        """The committables; the batches go to the writers in turn."""
        for at, records in enumerate(rows):
            self.writers[at % len(self.writers)].write(Batch(records))
        for writer in self.writers:
            writer.flush(end_of_input=False)
        return [one for writer in self.writers for one in writer.prepare_commit(CheckpointId(checkpoint))]

    def states(self, checkpoint: int) -> dict[str, Any]:
        """What a snapshot holds besides the committables, as the next attempt gets it."""
        committer = self.committer
        state = committer.snapshot_state() if isinstance(committer, StatefulCommitter) else ()
        return {
            "committer_state": state,
            "writer_states": [one.snapshot_state(CheckpointId(checkpoint)) for one in self.writers],
        }

    def commit(self, checkpoint: int, *rows: pa.RecordBatch) -> CommitResult:
        """A checkpoint with these rows, up to its commit."""
        return self.commit_staged(checkpoint, self.staged(checkpoint, *rows))

    def commit_staged(self, checkpoint: int, committables: Sequence[bytes]) -> CommitResult:
        result = self.told(checkpoint, committables)
        assert result.outcome is CommitOutcome.COMMITTED
        return result

    def told(self, checkpoint: int, committables: Sequence[bytes]) -> CommitResult:
        """The committer hears of a complete checkpoint."""
        return self.committer.commit(permit(checkpoint, self._lineage), request(checkpoint, *committables))
