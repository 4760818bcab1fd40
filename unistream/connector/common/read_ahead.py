"""Reads splits of files ahead of the task: a background thread decodes, the task takes the chunks.

    add_splits ─► to do ──(thread: decode)──► ready, at most READ_AHEAD_CHUNKS ──► poll

Arrow releases the interpreter lock while it reads and decodes, so this overlaps with the task's work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic

import msgspec

from unistream.base.errors import UnistreamError, Unreachable
from unistream.base.ids import CheckpointId
from unistream.connector.common.row_groups import P, RowChunk
from unistream.model.messages import Split
from unistream.model.metric_names import (
    PENDING_BYTES,
    PENDING_BYTES_UNKNOWN,
    PENDING_RECORDS,
    PENDING_UNKNOWN,
    SKIPPED,
)
from unistream.model.splits import Unread
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows, SplitFinished

READ_AHEAD_CHUNKS: Final = 8  # of at most 65,536 rows; more costs memory and gains nothing
CLOSE_TIMEOUT_S: Final = 10.0  # the thread checks after each chunk


class _End:
    """The split is decoded to its end."""


class ReadAhead(Generic[P]):
    """Decodes splits in the order they were submitted. Thread-safe.

    Args:
        wake: Called (without a lock) when the empty queue gets an item.
    """

    def __init__(self, work: Callable[[P], Iterator[RowChunk[P]]], wake: Callable[[], None]) -> None:
        self._work = work
        self._wake = wake
        self._changed = threading.Condition()
        self._todo: deque[P] = deque()
        self._ready: deque[RowChunk[P] | _End | Exception] = deque()
        self._decoding = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, split: P) -> None:
        with self._changed:
            assert not self._closed, "submit after close"
            self._todo.append(split)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="file-read-ahead", daemon=True)
            self._thread.start()

    def take(self) -> RowChunk[P] | _End | Exception | None:
        """The next item; None: `wake` will be called."""
        with self._changed:
            if not self._ready:
                return None
            self._changed.notify_all()
            return self._ready.popleft()

    def all_decoded(self) -> bool:
        """All submitted splits are in memory: time to request another."""
        with self._changed:
            return not self._todo and not self._decoding

    def close(self) -> None:
        """Ends the thread, unless it hangs in the storage: it is a daemon."""
        with self._changed:
            self._closed = True
            self._todo.clear()
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (split := self._next()) is not None:
            item: _End | Exception
            try:
                for chunk in self._work(split):
                    if not self._put(chunk):
                        return
                item = _End()
            except Exception as error:
                item = error
            with self._changed:
                self._decoding = False
            if not self._put(item):
                return

    def _next(self) -> P | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._todo)
            if self._closed:
                return None
            self._decoding = True
            return self._todo.popleft()

    def _put(self, item: RowChunk[P] | _End | Exception) -> bool:
        """Puts an item for the task, as soon as there is room for it. False: the reader was closed
        instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._ready) < READ_AHEAD_CHUNKS)
            if self._closed:
                return False
            was_empty = not self._ready
            self._ready.append(item)
        if was_empty:
            self._wake()
        return True


class ReadInPlace(Generic[P]):
    """Decodes splits in the thread of the task, in `take`. There is always a next item, unless no split is
    left."""

    def __init__(self, work: Callable[[P], Iterator[RowChunk[P]]]) -> None:
        self._work = work
        self._todo: deque[P] = deque()
        self._chunks: Iterator[RowChunk[P]] | None = None

    def submit(self, split: P) -> None:
        self._todo.append(split)

    def take(self) -> RowChunk[P] | _End | Exception | None:
        try:
            if self._chunks is None:
                if not self._todo:
                    return None
                self._chunks = self._work(self._todo.popleft())
            chunk = next(self._chunks, None)
        except Exception as error:
            self._chunks = None
            return error
        if chunk is None:
            self._chunks = None
            return _End()
        return chunk

    def all_decoded(self) -> bool:
        """The last split has begun, so that there can be two, as with a thread."""
        return not self._todo

    def close(self) -> None:
        self._todo.clear()
        self._chunks = None


class SplitReader(Generic[P]):
    """The `SourceReader` of splits that are parts of files or tables. Requests one split ahead, once all of
    its splits are decoded.

    Args:
        decode: The remaining rows of a split; runs in the background thread, if the context has it so.
        encoded, decoded: A split as it is stored, and back (raises CorruptSnapshot).
        bytes_left: Those of a split behind its position; None: not known, which holds for all if it is not
            given.
        interrupt: Called when the reader is closed: `decode` may fail at what it waits for.
        release: Called behind that, when `decode` does no more, or hangs.
    """

    def __init__(
        self,
        decode: Callable[[P], Iterator[RowChunk[P]]],
        encoded: Callable[[P], Split],
        decoded: Callable[[Split], P],
        *,
        bytes_left: Callable[[P], int | None] | None = None,
        interrupt: Callable[[], None] = lambda: None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._decode = decode
        self._encoded = encoded
        self._decoded = decoded
        self._bytes_left = bytes_left
        self._rows_left: deque[int | None] = deque()  # of the splits
        self._interrupt = interrupt
        self._release = release
        self._context: ReaderContext | None = None
        self._ahead: ReadAhead[P] | ReadInPlace[P] | None = None
        self._splits: deque[tuple[str, P]] = deque()
        self._requested = False
        self._no_more = False

    def open(self, context: ReaderContext) -> None:
        self._context = context
        ahead = context.reads_ahead
        self._ahead = ReadAhead(self._decode, context.wake) if ahead else ReadInPlace(self._decode)
        self._show_pending()

    def add_splits(self, splits: Sequence[Split]) -> None:
        context, ahead = self._opened()
        for split in splits:
            part = self._decoded(split)
            self._splits.append((split.id, part))
            self._rows_left.append(split.rows)
            ahead.submit(part)
        self._requested = False
        self._show_pending()
        context.wake()

    def no_more_splits(self) -> None:
        self._no_more = True
        self._opened()[0].wake()

    def poll(self) -> Polled:
        context, ahead = self._opened()
        if not self._no_more and not self._requested and ahead.all_decoded():
            self._requested = True
            context.request_split()
        if not self._splits:
            return Exhausted() if self._no_more else Idle()
        split_id = self._splits[0][0]
        match ahead.take():
            case None:
                return Idle()
            case RowChunk() as chunk:
                self._splits[0] = (split_id, chunk.next)
                if (rows := self._rows_left[0]) is not None:
                    self._rows_left[0] = max(0, rows - chunk.records.num_rows)
                self._show_pending()
                if chunk.skipped:
                    context.metrics.add(SKIPPED, chunk.skipped)
                return Rows(split_id, chunk.records, dead_letters=chunk.dead_letters)
            case _End():
                self._splits.popleft()
                self._rows_left.popleft()
                self._show_pending()
                return SplitFinished(split_id)
            case UnistreamError() as error:
                raise error
            case OSError() as error:
                raise Unreachable(f"reading split {split_id} failed: {error}") from error
            case error:
                raise RuntimeError(f"reading split {split_id} failed: {error}") from error

    def snapshot(self) -> Sequence[Split]:
        """Contains a split until its `SplitFinished` was returned."""
        return [
            msgspec.structs.replace(self._encoded(split), rows=rows)
            for (_, split), rows in zip(self._splits, self._rows_left, strict=True)
        ]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Does nothing: no source of files is informed of checkpoints."""

    def close(self) -> None:
        if self._ahead is not None:
            self._interrupt()
            self._ahead.close()
        self._splits.clear()
        self._rows_left.clear()
        self._release()

    def _show_pending(self) -> None:
        """What is not known is not zero."""
        rows = sum((Unread(one) for one in self._rows_left), Unread()).rows
        sizes = [None if self._bytes_left is None else self._bytes_left(split) for _, split in self._splits]
        size = sum((Unread(0, one) for one in sizes), Unread()).size
        metrics = self._opened()[0].metrics
        for unknown, pending, left in (
            (PENDING_UNKNOWN, PENDING_RECORDS, rows),
            (PENDING_BYTES_UNKNOWN, PENDING_BYTES, size),
        ):
            metrics.set(unknown, int(left is None))
            if left is not None:
                metrics.set(pending, left)

    def _opened(self) -> tuple[ReaderContext, ReadAhead[P] | ReadInPlace[P]]:
        assert self._context is not None, "the reader is not open"
        assert self._ahead is not None, "the reader is not open"
        return self._context, self._ahead
