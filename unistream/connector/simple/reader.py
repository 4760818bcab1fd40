"""The reader of a polling source: positions of its splits are those of the rows that it has handed over."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from unistream.base.ids import CheckpointId
from unistream.connector.simple.ahead import LaterMetrics, PollsAhead, PollsElsewhere, PollsInPlace
from unistream.connector.simple.author import Author
from unistream.connector.simple.polls import NewSplits, Polled, Polls, Wait
from unistream.connector.simple.splits import NEW_SPLITS, named_split, new_splits, stored_split
from unistream.model.messages import Split
from unistream.model.metric_names import PENDING_BYTES_UNKNOWN, PENDING_UNKNOWN
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows, SplitFinished
from unistream.port.source import Polled as Given


class PollingReader:
    """See `unistream.port.source.SourceReader`. One of a bounded source has one split at a time."""

    def __init__(self, source: Author) -> None:
        self._source = source
        self._is_bounded = source.bounded
        self._context: ReaderContext | None = None
        self._elsewhere: PollsElsewhere | None = None
        self._metrics = LaterMetrics()
        self._positions: dict[str, bytes | None] = {}
        self._known: list[str] | None = None
        self._finished = ""  # the split whose last rows were handed over
        self._requested = self._complete = self._looks = False

    def open(self, context: ReaderContext) -> None:
        self._context = context
        polls = Polls(self._source, dataclasses.replace(context, metrics=self._metrics))
        ahead = context.reads_ahead
        self._elsewhere = PollsAhead(polls, context.wake) if ahead else PollsInPlace(polls)
        for unknown in (PENDING_UNKNOWN, PENDING_BYTES_UNKNOWN):
            context.metrics.set(unknown, 1)

    def add_splits(self, splits: Sequence[Split]) -> None:
        context, elsewhere = self._opened()
        for split in splits:
            stored = stored_split(split)
            if split.id == NEW_SPLITS:
                self._known = list(stored.known or ())
                self._looks = True
                elsewhere.submit(partial(_look_for_others, self._known))
            else:
                self._positions[split.id] = stored.position
                elsewhere.submit(partial(_add, split.id, stored.position))
        self._requested = False
        context.wake()

    def no_more_splits(self) -> None:
        self._complete = True
        self._opened()[0].wake()

    def poll(self) -> Given:
        context, elsewhere = self._opened()
        finished, self._finished = self._finished, ""
        if finished:
            return SplitFinished(finished)
        while True:
            turn = elsewhere.take()
            self._metrics.count_in(context.metrics)
            match turn:
                case Wait(for_ms):
                    return self._nothing(context, for_ms)
                case NewSplits(names):
                    self._adopt(names)
                case Polled() as polled:
                    given = self._handed_over(polled)
                    if given is not None:
                        return given

    def _nothing(self, context: ReaderContext, for_ms: int | None) -> Given:
        if self._is_bounded and not self._positions and not self._looks:
            if self._complete:
                return Exhausted()
            if not self._requested:
                self._requested = True
                context.request_split()
        return Idle(for_ms)

    def _adopt(self, names: Sequence[str]) -> None:
        assert self._known is not None, "nobody looks for others"
        self._looks = False
        self._known = [*self._known, *names]
        self._positions |= dict.fromkeys(names)

    def _handed_over(self, polled: Polled) -> Given | None:
        """What the task gets of a poll; None: nothing."""
        if polled.ended:
            del self._positions[polled.split]
            if polled.records is None:
                return SplitFinished(polled.split)
            self._finished = polled.split
        else:
            self._positions[polled.split] = polled.position
        return None if polled.records is None else Rows(polled.split, polled.records)

    def snapshot(self) -> Sequence[Split]:
        found = [named_split(name, position) for name, position in self._positions.items()]
        return found if self._known is None else [*found, new_splits(self._known)]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Does nothing: positions are in checkpoints alone."""

    def close(self) -> None:
        elsewhere, self._elsewhere = self._elsewhere, None
        if elsewhere is not None:
            elsewhere.close()
        self._positions.clear()

    def _opened(self) -> tuple[ReaderContext, PollsElsewhere]:
        assert self._context is not None, "the reader is not open"
        assert self._elsewhere is not None, "the reader is not open"
        return self._context, self._elsewhere


def _add(split: str, position: bytes | None, polls: Polls, now_ms: int) -> None:
    polls.add(split, position, now_ms)


def _look_for_others(known: Sequence[str], polls: Polls, now_ms: int) -> None:
    polls.look_for_others(known, now_ms)
