"""Takes rows and does nothing with them but count: the sink of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.port.metrics import Metrics
from unistream.port.sink import Committer, SinkContext, SinkWriter


class BlackholeSink:
    """Counts rows and bytes in the metrics ``numRecordsSend`` and ``numBytesSend``."""

    @property
    def name(self) -> str:
        return "blackhole"

    @property
    def global_committer(self) -> bool:
        return False

    def check(self, schema: pa.Schema | None) -> None:
        """Any schema will do."""

    def create_writer(self) -> SinkWriter:
        return _BlackholeWriter()

    def create_committer(self) -> Committer | None:
        return None


class _BlackholeWriter:
    def __init__(self) -> None:
        self._metrics: Metrics | None = None

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._metrics = context.metrics

    def write(self, batch: Batch) -> None:
        assert self._metrics is not None, "write before open"
        self._metrics.add("numRecordsSend", batch.num_rows)
        self._metrics.add("numBytesSend", batch.nbytes)

    def flush(self, end_of_input: bool) -> None:
        """Nothing is held back."""

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        """Nothing to release."""
