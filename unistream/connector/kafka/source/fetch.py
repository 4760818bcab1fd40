"""The thread of a Kafka reader: it fetches and decodes ahead, within limits.

The task's thread only takes finished chunks, so that barriers and timers never wait for the network or the
parser; both release the interpreter lock.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.base.errors import UnistreamError, Unreachable
from unistream.base.limits import BATCH_ROWS_MAX
from unistream.connector.kafka.broker.client import KafkaClient, KafkaPosition
from unistream.connector.kafka.broker.config import Properties
from unistream.connector.kafka.broker.offsets import Place
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder
from unistream.connector.kafka.record.records import Framed, RawBatch, frame, warm_up

CHUNKS_AHEAD: Final = 4  # decoded and not yet taken; with 65,536 rows each some tens of MiB
POLL_MS: Final = 100  # maximum delay of a new split, a report or the end
RAW_BATCHES_MAX: Final = 100_000  # per poll: everything that has arrived
IDLE_CHECK_S: Final = 5.0  # after this time without data, Kafka and the topic are checked
UNREACHABLE_AFTER_S: Final = 60.0  # a broker may restart within this time
UNANSWERED_S: Final = 10.0  # from then on it is said: one that answers is asked twice within this time
REPORT_RETRY_S: Final = 1.0
REPORT_MS: Final = 3_000  # the last report delays the end of the reader at most for so long
JOIN_S: Final = 15.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Rows (maybe none), and the position of their split after them."""

    position: KafkaPosition
    piece: PartitionRows | None
    raw_bytes: int


class FetchThread:
    """Fetches the assigned partitions until closed.

    Args:
        bootstrap_servers, properties: Of the client, which is created for the first split.
        decoder: Used by the thread only.
        wake: Called after each chunk, and when the thread has failed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Properties,
        decoder: RecordDecoder,
        wake: Callable[[], None],
    ) -> None:
        self._servers = bootstrap_servers
        self._properties = properties
        self._decoder = decoder
        self._wake = wake
        self._chunks: queue.Queue[FetchedRows] = queue.Queue(maxsize=CHUNKS_AHEAD)
        self._changed = threading.Event()  # splits, a report or the end
        self._lock = threading.Lock()
        self._added: list[KafkaPosition] = []
        self._reports: list[KafkaPosition] = []
        self._report_after = 0.0  # of the monotonic clock
        self._sent: list[KafkaPosition] = []  # the latest report, until it is answered
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._active: dict[Place, KafkaPosition] = {}  # used by the thread only: next to be decoded
        self._ends: dict[Place, int] = {}  # replaced as a whole
        self._heard: float | None = None  # last answer, of the monotonic clock; None: nobody is asked
        self._thread = threading.Thread(target=self._run, name="kafka-fetch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, positions: Sequence[KafkaPosition]) -> None:
        with self._lock:
            self._added += positions
        self._changed.set()

    def report(self, positions: Sequence[KafkaPosition]) -> None:
        """Commits positions to the group, with repeated attempts, the last one when the thread ends; a newer
        report replaces a pending one."""
        with self._lock:
            self._reports = list(positions)
        self._changed.set()

    def take(self) -> FetchedRows | None:
        """The next chunk, in the order of each partition; None: nothing yet. Raises the error of a failed
        thread, after its last chunk."""
        try:
            return self._chunks.get_nowait()
        except queue.Empty:
            # the error is set after the last chunk: check for chunks once more
            if self._error is None or not self._chunks.empty():
                return None
            raise self._error from None

    def records_after(self, position: KafkaPosition) -> int | None:
        """How many are there; offsets without a record count, too. None: Kafka has not said yet."""
        ends = [end for end in (self._ends.get(position.place), position.stop) if end is not None]
        return max(0, min(ends) - position.offset) if ends else None

    @property
    def seconds_unanswered(self) -> int:
        """How long Kafka has not answered, in whole seconds; 0: it does, or nobody asks."""
        heard = self._heard
        silent_s = 0.0 if heard is None else time.monotonic() - heard
        return int(silent_s) if silent_s > UNANSWERED_S else 0

    def close(self) -> None:
        """Ends the thread and its connections, within the client's request timeout."""
        self._stopping.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            warm_up()
            self._wait_for_change(None)
            if not self._stopping.is_set():
                self._heard = time.monotonic()
                self._serve()
        except BaseException as error:
            self._error = error
            self._wake()

    def _serve(self) -> None:
        client = KafkaClient(self._servers, self._properties)
        try:
            while not self._stopping.is_set():
                self._take_changes(client)
                if not self._active:
                    self._heard = None
                    self._wait_for_change(None)
                    continue
                if self._heard is None:
                    self._heard = time.monotonic()
                polled = self._poll(client)
                self._ends = client.ends
                for key, batches in polled.items():
                    self._heard = time.monotonic()
                    self._deliver(client, key, batches)
                now = time.monotonic()
                self._heard = now if polled else self._last_answer(client, self._heard, now)
            self._report_now(client)
        finally:
            self._decoder.close()
            client.close()

    def _poll(self, client: KafkaClient) -> dict[Place, list[RawBatch]]:
        """What has arrived. The topic is checked after it: for one that was created again under the same
        name, a broker sends records as if it were the same."""
        try:
            polled = client.poll(POLL_MS, RAW_BATCHES_MAX)
        except UnistreamError:
            with contextlib.suppress(Unreachable):  # another topic is the better explanation
                client.checked(list(self._active.values()))
            raise
        read = [position for key, position in self._active.items() if key in polled]
        since = time.monotonic()
        while not self._stopping.is_set():
            try:
                client.checked(read)
                break
            except Unreachable:
                if time.monotonic() - since > UNREACHABLE_AFTER_S:
                    raise
                self._wait_for_change(POLL_MS / 1000)
        return polled

    def _wait_for_change(self, wait_s: float | None) -> None:
        self._changed.wait(wait_s)
        self._changed.clear()

    def _take_changes(self, client: KafkaClient) -> None:
        with self._lock:
            added, self._added = self._added, []
            reports: list[KafkaPosition] = []
            if time.monotonic() >= self._report_after:
                reports, self._reports = self._reports, []
        if reports:
            self._sent = reports
            if self._active or added:  # polls bring the answer
                client.report(reports, functools.partial(self._answered, reports))
            else:
                self._report_now(client)
        if added:
            self._active |= {p.place: p for p in added}
            assigned = client.assign(list(self._active.values()))
            self._active = {p.place: p for p in assigned}
            self._ends = client.ends

    def _answered(self, reports: list[KafkaPosition], error: Exception | None, again: bool) -> None:
        if error is not None and not again:
            _log.warning("event=kafka_positions_not_committed topic=%s error=%s", reports[0].topic, error)
        if reports is not self._sent:
            return
        if not again:
            self._sent = []
            return
        with self._lock:
            self._reports = self._reports or reports
            self._report_after = time.monotonic() + REPORT_RETRY_S

    def _report_now(self, client: KafkaClient) -> None:
        """Commits what was not answered yet: everything is read, or the reader is closed."""
        with self._lock:
            reports, self._reports = self._reports or self._sent, []
        self._sent = []
        if not reports:
            return
        try:
            client.report_now(reports, REPORT_MS)
        except UnistreamError as error:
            self._answered(reports, error, again=False)

    def _deliver(self, client: KafkaClient, key: Place, batches: Sequence[RawBatch]) -> None:
        """Decodes the batches of one partition; the position of the last chunk is after all of them."""
        position = self._active.get(key)
        if position is None:
            return  # it ended with an earlier poll
        raw_bytes = sum(len(batch.payload) for batch in batches)
        for group in _groups(batches):
            reached = (
                group[-1].next_offset if position.stop is None else min(group[-1].next_offset, position.stop)
            )
            framed = frame(group).between(position.offset, position.stop)
            for part, last in _parts(framed):
                piece = self._decoder.decode(part, position.topic, position.partition) if len(part) else None
                after = reached if last else int(part.offsets[-1]) + 1
                position = msgspec.structs.replace(position, offset=max(after, position.offset))
                self._put(FetchedRows(position, piece, raw_bytes))
                raw_bytes = 0
            if position.at_end:
                break
        self._active[key] = position
        if position.at_end:
            client.pause(position)
            del self._active[key]

    def _put(self, chunk: FetchedRows) -> None:
        """Waits while the task is slower: backpressure to Kafka."""
        while not self._stopping.is_set():
            try:
                self._chunks.put(chunk, timeout=POLL_MS / 1000)
            except queue.Full:
                continue
            self._wake()
            return

    def _last_answer(self, client: KafkaClient, answered: float, now: float) -> float:
        """The time at which Kafka last answered. Only a request distinguishes an idle topic from a dead
        broker."""
        if now - answered < IDLE_CHECK_S:
            return answered
        try:
            client.checked(list(self._active.values()))
            client.bounds(self._active)
        except Unreachable:
            if now - answered > UNREACHABLE_AFTER_S:
                raise
            return answered
        return time.monotonic()


def _groups(batches: Sequence[RawBatch]) -> Iterator[Sequence[RawBatch]]:
    """Consecutive batches of about BATCH_ROWS_MAX rows together (one batch may have more)."""
    first = 0
    rows = 0
    for i, batch in enumerate(batches):
        if rows and rows + batch.count > BATCH_ROWS_MAX:
            yield batches[first:i]
            first, rows = i, 0
        rows += batch.count
    yield batches[first:]


def _parts(framed: Framed) -> Iterator[tuple[Framed, bool]]:
    """Parts of at most BATCH_ROWS_MAX rows, and whether each is the last; at least one, maybe empty."""
    for low in range(0, max(len(framed), 1), BATCH_ROWS_MAX):
        yield framed.rows(low, low + BATCH_ROWS_MAX), low + BATCH_ROWS_MAX >= len(framed)
