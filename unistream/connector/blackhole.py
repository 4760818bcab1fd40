"""Discards rows and counts them: the sink of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from unistream.connector.common import PlainSink, PlainWriter, count_sent
from unistream.model.elements import Batch
from unistream.port.metrics import Metrics
from unistream.port.sink import SinkContext, SinkWriter


class BlackholeSink(PlainSink):
    """Counts rows and bytes in the metrics ``numRecordsSend`` and ``numBytesSend``."""

    @property
    def name(self) -> str:
        return "blackhole"

    def create_writer(self) -> SinkWriter:
        return _BlackholeWriter()


class _BlackholeWriter(PlainWriter):
    _metrics: Metrics | None = None

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._metrics = context.metrics

    def write(self, batch: Batch) -> None:
        assert self._metrics is not None, "write before open"
        count_sent(self._metrics, batch.num_rows, batch.nbytes)
