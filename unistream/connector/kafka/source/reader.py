"""Reads Kafka partitions in one subtask; its state is their positions, it joins no consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId
from unistream.connector.kafka.broker.client import KafkaPosition
from unistream.connector.kafka.broker.config import Properties, group_id
from unistream.connector.kafka.format.decode import RecordDecoder
from unistream.connector.kafka.source.fetch import FetchedRows, FetchThread
from unistream.model.messages import Split
from unistream.model.metric_names import PENDING_RECORDS, PENDING_UNKNOWN, SECONDS_UNANSWERED, SKIPPED
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows, SplitFinished

RETRY_MS: Final = 1_000  # a fallback; the thread wakes the task

TOMBSTONES: Final = "numTombstonesSkipped"
BYTES_IN: Final = "numBytesIn"


class KafkaReader:
    """See `unistream.port.source.SourceReader`.

    A chunk of bad records only (with `on_bad_record="dead-letter"`) is a `Rows` of no rows whose
    `dead_letters` are set. `by_name`: see `KafkaPosition.split`.
    """

    def __init__(
        self, bootstrap_servers: str, properties: Properties, decoder: RecordDecoder, *, by_name: bool
    ) -> None:
        self._by_name = by_name
        self._servers = bootstrap_servers
        self._properties = properties
        self._decoder = decoder
        self._context: ReaderContext | None = None
        self._fetch: FetchThread | None = None
        self._positions: dict[str, KafkaPosition] = {}
        self._finished: dict[str, KafkaPosition] = {}  # for the group alone
        self._snapshot: list[KafkaPosition] = []
        self._complete = False
        self._reports = group_id(properties) is not None

    def open(self, context: ReaderContext) -> None:
        self._context = context
        context.metrics.set(PENDING_UNKNOWN, 0)
        self._fetch = FetchThread(self._servers, self._properties, self._decoder, context.wake)
        self._fetch.start()

    def add_splits(self, splits: Sequence[Split]) -> None:
        positions = [KafkaPosition.of(split) for split in splits]
        for position in positions:
            if position.split_id in self._positions:
                raise ProtocolError(f"split {position.split_id!r} was assigned twice to one reader")
            self._positions[position.split_id] = position
        self._show_pending()
        self._thread.add([position for position in positions if not position.at_end])

    def no_more_splits(self) -> None:
        self._complete = True

    def poll(self) -> Polled:
        while True:
            # first: a finished split must not hold the watermark back
            for split_id, position in self._positions.items():
                if position.at_end:
                    self._finished[split_id] = self._positions.pop(split_id)
                    return SplitFinished(split_id)
            chunk = self._thread.take()
            if chunk is None:
                self._show_pending()
                return Exhausted() if self._complete and not self._positions else Idle(RETRY_MS)
            rows = self._accept(chunk)
            if rows is not None:
                return rows

    def snapshot(self) -> Sequence[Split]:
        self._snapshot = [*self._positions.values(), *self._finished.values()]
        return [position.split(by_name=self._by_name) for position in self._positions.values()]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Commits the positions of the latest snapshot to the group of "group.id", if there is one. They are
        for monitoring, and for a later job that begins at "committed"; a failure is logged."""
        if self._reports and self._snapshot:
            self._thread.report(self._snapshot)

    def close(self) -> None:
        if self._fetch is not None:
            self._fetch.close()

    @property
    def _thread(self) -> FetchThread:
        assert self._fetch is not None, "open() comes first"
        return self._fetch

    def _show_pending(self) -> None:
        assert self._context is not None
        known = [self._thread.records_after(position) for position in self._positions.values()]
        silent_s = self._thread.seconds_unanswered
        is_known = None not in known and not silent_s
        self._context.metrics.set(PENDING_UNKNOWN, 0 if is_known else 1)
        self._context.metrics.set(SECONDS_UNANSWERED, silent_s)
        if is_known and (known or self._complete):  # what is not known is not zero
            self._context.metrics.set(PENDING_RECORDS, sum(one for one in known if one is not None))

    def _accept(self, chunk: FetchedRows) -> Rows | None:
        """Takes over the chunk's position; returns its rows, if it has any."""
        assert self._context is not None
        split_id = chunk.position.split_id
        self._positions[split_id] = chunk.position
        self._show_pending()
        count = self._context.metrics.add
        if chunk.raw_bytes:
            count(BYTES_IN, chunk.raw_bytes)
        piece = chunk.piece
        if piece is None:
            return None
        for name, amount in ((SKIPPED, piece.skipped), (TOMBSTONES, piece.tombstones)):
            if amount:
                count(name, amount)
        if not piece.records.num_rows and not piece.dead_letters:
            return None
        return Rows(split_id, piece.records, piece.timestamps, piece.dead_letters)
