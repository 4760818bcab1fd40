"""Drives a source's reader as a task would, without a task: for tests of connectors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unistream.base.closing import Closing
from unistream.model.messages import Split
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows, Source, SourceReader
from unistream.testing.harness.operators import CountingMetrics


class SourceDriver(Closing):
    """One reader with all of its splits; polls, and waits for `wake` when it is idle.

    Args:
        timeout_s: A reader that has not finished by then fails the test.
    """

    def __init__(self, source: Source, splits: Sequence[Split], timeout_s: float = 240.0) -> None:
        self._timeout_s = timeout_s
        self._woken = threading.Event()
        metrics = CountingMetrics()
        self.counters: Mapping[str, int] = metrics.counts
        self.reader: SourceReader = source.create_reader()
        context = ReaderContext(
            index=0, parallelism=1, wake=self._woken.set, request_split=lambda: None, metrics=metrics
        )
        self.reader.open(context)
        self.reader.add_splits(splits)
        self.reader.no_more_splits()

    def close(self) -> None:
        self.reader.close()

    def polled(self) -> Iterator[Polled]:
        """Everything but Idle, up to and including Exhausted.

        Raises:
            AssertionError: no end within the timeout.
        """
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            polled = self.reader.poll()
            if isinstance(polled, Idle):
                self._woken.wait(1.0)
                self._woken.clear()
                continue
            yield polled
            if isinstance(polled, Exhausted):
                return
        raise AssertionError(f"the reader did not finish within {self._timeout_s:.0f} s")

    def rows_until(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Rows as dictionaries, until `enough` of them or the end."""
        rows: list[dict[str, Any]] = []
        for polled in self.polled():
            if isinstance(polled, Rows):
                rows += polled.records.to_pylist()
                if enough(rows):
                    break
        return rows

    def all_rows(self) -> list[dict[str, Any]]:
        return self.rows_until(lambda _: False)
