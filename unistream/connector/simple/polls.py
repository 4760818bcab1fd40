"""Polls the splits of a source in turn, and checks what its author returns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.simple.author import (
    Author,
    Intervals,
    check_rows,
    decoded_position,
    described,
    encoded_position,
    named_splits,
    run,
)
from unistream.connector.simple.splits import NEW_SPLITS
from unistream.port.source import ReaderContext

_RETURNS: Final = "poll returns two things, the rows or None, and the position to poll from next"


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll has given. `position`: behind the rows; None: the split was not begun, or has ended."""

    split: str
    records: pa.RecordBatch | None
    position: bytes | None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class NewSplits:
    """Names that `splits` has not returned before."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Wait:
    """No split is due for so long; None: none at all."""

    for_ms: int | None


Turn = Polled | NewSplits | Wait


class Polls:
    """The splits of one reader, each polled when it is due, the longest waiting first. Used by one thread.

    Args:
        context: Given to the author's `open`, before the first poll.
    """

    def __init__(self, source: Author, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._intervals = Intervals(source)
        self._schema = source.schema
        self._positions: dict[str, bytes | None] = {}
        self._known: set[str] | None = None
        self._due: list[tuple[int, int, str]] = []
        self._turns = 0
        self._opened = False

    def add(self, split: str, position: bytes | None, now_ms: int) -> None:
        """Adds a split to poll, at once."""
        self._positions[split] = position
        self._put(split, now_ms)

    def look_for_others(self, known: Sequence[str], now_ms: int) -> None:
        """Calls `splits` from now on, first at once; `known` are not new."""
        self._known = set(known)
        self._put(NEW_SPLITS, now_ms)

    def turn(self, now_ms: int) -> Turn:
        """Polls the split that is due.

        Raises:
            ConfigError: the author has returned something else than is wanted.
            Exception: what the author's methods raise.
        """
        if not self._due:
            return Wait(None)
        due_ms, _, split = self._due[0]
        if due_ms > now_ms:
            return Wait(due_ms - now_ms)
        heapq.heappop(self._due)
        if not self._opened:
            self._run("open", partial(self._source.open, self._context))
            self._opened = True
        return self._look(now_ms) if split == NEW_SPLITS else self._poll(split, now_ms)

    def close(self) -> None:
        opened, self._opened = self._opened, False
        if opened:
            self._run("close", self._source.close)

    def _run(self, name: str, method: Callable[[], object]) -> None:
        run(f"source {self._source.name}", name, method)

    def _poll(self, split: str, now_ms: int) -> Polled:
        position = decoded_position(self._positions[split])
        polled = self._checked(split, self._source.poll(split, position))
        if polled.ended:
            del self._positions[split]
            return polled
        self._positions[split] = polled.position
        wait_ms = self._intervals.empty_ms if polled.records is None else self._intervals.after_rows_ms
        self._put(split, now_ms + wait_ms)
        return polled

    def _look(self, now_ms: int) -> NewSplits:
        assert self._known is not None, "look_for_others comes first"
        names = [name for name in named_splits(self._source) if name not in self._known]
        self._known.update(names)
        if self._intervals.discovery_ms and not self._source.bounded:
            self._put(NEW_SPLITS, now_ms + self._intervals.discovery_ms)
        for name in names:
            self.add(name, None, now_ms)
        return NewSplits(names)

    def _put(self, split: str, due_ms: int) -> None:
        self._turns += 1
        heapq.heappush(self._due, (due_ms, self._turns, split))

    def _checked(self, split: str, returned: Any) -> Polled:
        where = f"source {self._source.name}, split {split!r}"
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ConfigError(f"{where}: poll returned {described(returned)}; {_RETURNS}")
        records, following = returned
        if records is not None:
            check_rows(where, records, self._schema)
        rows = records if records is not None and records.num_rows else None
        if following is not None:
            return Polled(split, rows, encoded_position(where, following))
        if self._source.bounded:
            return Polled(split, rows, None, ended=True)
        if rows is not None:
            raise ConfigError(
                f"{where}: poll returned rows and the position None, so they would be read again; {_RETURNS}"
            )
        return Polled(split, None, self._positions[split])
