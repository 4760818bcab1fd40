"""Drives a polling source, or a simple sink, of an author as a task does, without a cluster.

>>> import pyarrow as pa, unistream as us
>>> class Letters(us.PollingSource):
...     schema = pa.schema([("letter", pa.string())])
...     def poll(self, split, position):
...         position = position or 0
...         rows = pa.record_batch({"letter": list("ab"[position : position + 1])})
...         return rows, position + rows.num_rows
>>> with us.testing.PollingSourceHarness(Letters()) as harness:
...     harness.poll()
...     harness.restart()
...     harness.poll(), harness.poll()
[{'letter': 'a'}]
([{'letter': 'b'}], [])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa

from unistream.base.closing import Closing
from unistream.base.code_pickle import dumps
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.catalogue import create_discovery
from unistream.connector.simple import PollingSource, SimpleSink, SimpleWriter, read_positions
from unistream.model.elements import Batch
from unistream.model.messages import Split
from unistream.port.sink import SinkContext
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows, SourceReader
from unistream.testing.harness.operators import CountingMetrics, as_records
from unistream.testing.harness.operators import Rows as GivenRows


class PollingSourceHarness(Closing):
    """One reader with all splits of a `PollingSource`. Its time passes from one `poll` to the next.

    Args:
        source: It must be one that can be sent to workers.

    Attributes:
        metrics: What the source has counted, by name.
        is_ended: All splits of a bounded source were read.

    Raises:
        ConfigError: the source lacks something, or cannot be sent.
    """

    def __init__(self, source: PollingSource) -> None:
        _check_kind(source, PollingSource)
        _check_sendable(source)
        self._source = source
        self._info = source.info()
        self._counted = CountingMetrics()
        self.metrics = self._counted.counts
        self.is_ended = False
        self._reader = self._started(create_discovery(self._info).discover())

    def poll(self) -> list[dict[str, Any]]:
        """Polls until each split has to wait, or has ended: its rows. A split that always has rows is polled
        once, unless its `interval_after_rows` is 0.

        Raises:
            ConfigError: `poll` or `splits` has returned something else than is wanted.
            Exception: what the source raises. The positions are those before this call then, from which the
                next one goes on, as a task does that is restarted.
        """
        before = self._reader.snapshot()
        try:
            return self._polled()
        except BaseException:
            self._start_again(before)
            raise

    def _polled(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            match self._reader.poll():
                case Rows(records=records):
                    rows += records.to_pylist()
                case Idle():
                    return rows
                case Exhausted():
                    self.is_ended = True
                    return rows
                case _:
                    pass

    @property
    def positions(self) -> dict[str, Any]:
        """The position of each split that has not ended: what a checkpoint would have now."""
        return read_positions(self._reader.snapshot())

    def restart(self) -> None:
        """Starts again, as after a checkpoint and a failure: a new reader goes on from the positions."""
        self._start_again(self._reader.snapshot())

    def close(self) -> None:
        self._reader.close()

    def _start_again(self, splits: Sequence[Split]) -> None:
        self._reader.close()
        self._reader = self._started(splits)

    def _started(self, splits: Sequence[Split]) -> SourceReader:
        reader = self._source.create_reader()
        context = ReaderContext(
            index=0,
            parallelism=1,
            wake=lambda: None,
            request_split=lambda: None,
            metrics=self._counted,
            reads_ahead=False,
        )
        reader.open(context)
        reader.add_splits(splits)
        if self._info.bounded:
            reader.no_more_splits()
        return reader


S = TypeVar("S", bound=SimpleSink)


class SimpleSinkHarness(Closing, Generic[S]):
    """One writer of a `SimpleSink`, open.

    Args:
        sink: It must be one that can be sent to workers.

    Attributes:
        sink: The copy of it that writes.
        metrics: What it has counted, by name.

    Raises:
        ConfigError: the sink lacks something, or cannot be sent.
    """

    def __init__(self, sink: S, *, index: int = 0, parallelism: int = 1) -> None:
        _check_kind(sink, SimpleSink)
        _check_sendable(sink)
        sink.check(None)
        counted, job = CountingMetrics(), JobId("0" * 32)
        self.metrics = counted.counts
        self._checked: pa.Schema | None = None
        writer = sink.create_writer()
        assert isinstance(writer, SimpleWriter), "the writer of a simple sink"
        self._writer, self.sink = writer, cast(S, writer.sink)
        writer.open(
            SinkContext(
                job=job,
                lineage=LineageId("lineage"),
                sink_uid=OperatorUid("sink"),
                attempt=AttemptId(job, VertexId("vertex"), index, 0),
                index=index,
                parallelism=parallelism,
                restored=None,
                metrics=counted,
            ),
            [],
        )

    def write(self, rows: GivenRows) -> None:
        """One batch: as a record batch, as columns or as dicts."""
        records = as_records(rows)
        if self._checked is None or not records.schema.equals(self._checked):
            self.sink.check(records.schema)
            self._checked = records.schema
        self._writer.write(Batch(records))

    def checkpoint(self) -> None:
        """A checkpoint: the sink is flushed."""
        self._writer.flush(end_of_input=False)

    def end(self) -> None:
        """The end of the input: the sink is flushed."""
        self._writer.flush(end_of_input=True)

    def close(self) -> None:
        """Closes the sink, as at a failure if rows were not flushed."""
        self._writer.close()


def _check_kind(given: object, kind: type) -> None:
    if not isinstance(given, kind):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"{given!r:.80}"
        raise ConfigError(f"the harness takes an instance of a subclass of us.{kind.__name__}, not {what}")


def _check_sendable(given: object) -> None:
    try:
        dumps(given)
    except Exception as error:
        raise ConfigError(
            f"{type(given).__name__} cannot be sent to workers: {type(error).__name__}: {error}; create such "
            "objects in open()"
        ) from error
