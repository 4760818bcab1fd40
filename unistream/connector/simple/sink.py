"""A sink that hands rows over as they come, at least once: the base class for authors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import PlainSink, PlainWriter, count_sent
from unistream.connector.simple.author import check_attributes, run
from unistream.model.elements import Batch
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.port.sink import SinkContext, SinkWriter


class SimpleSink(PlainSink):
    """Base class for a sink of your own that takes rows at least once: a web hook, a queue, a cache.

    What was written before a checkpoint is with the target when the checkpoint is complete, because `flush`
    comes first. After a failure the rows behind the last checkpoint come again, so the target sees them
    twice; let it tell them apart by a key, if that matters. An exception of any method fails the task, which
    is restarted as the restart strategy says. A subclass is sent to the workers like a function: open no
    connection in `__init__`, which runs where the pipeline is built, but in `open`. Each subtask has a copy
    of it, whose methods are called by one thread; rows wait while one of them does.

    Attributes:
        name: Name of the sink; that of the class, unless it is given.
        address: URI of what it writes, such as ``https://hooks.example.org/prices``, without secrets: for the
            lineage and for Dagster, and ``-s latest`` finds the last job by it. Empty: nobody knows.

    >>> class Kept(SimpleSink):
    ...     def __init__(self):
    ...         self.rows = []
    ...
    ...     def write(self, rows):
    ...         self.rows += rows.to_pylist()
    >>> import unistream as us
    >>> with us.testing.SimpleSinkHarness(Kept()) as harness:
    ...     harness.write([{"n": 1}, {"n": 2}])
    ...     harness.sink.rows
    [{'n': 1}, {'n': 2}]
    """

    name: str = "simple"
    address: str = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    # --- the method that a sink must have -----------------------------------------------------------

    def write(self, rows: pa.RecordBatch) -> None:
        """Takes at least one row, to be sent at once or kept until `flush`."""
        raise ConfigError(f"sink {self.name}: {type(self).__name__} has no method write(rows)")

    # --- methods that it may have -------------------------------------------------------------------

    def open(self, context: SinkContext) -> None:
        """Called first, in each subtask: `context.index` of `context.parallelism`. Counters of
        `context.metrics` are shown with the job."""

    def flush(self) -> None:
        """Returns when all rows so far are with the target. Called before each checkpoint and savepoint is
        acknowledged, and at the end of the input; without checkpoints only there."""

    def close(self) -> None:
        """Releases what `open` acquired; rows that were not flushed may be dropped: they come again. Not
        called if `open` has failed."""

    # --- as a sink ----------------------------------------------------------------------------------

    def check(self, schema: pa.Schema | None) -> None:
        """Called where the pipeline is built. `schema`: of the rows; None: not known before they come. Raise
        ConfigError if they do not fit."""
        check_attributes("sink", self)
        if type(self).write is SimpleSink.write:
            raise ConfigError(f"sink {self.name}: {type(self).__name__} has no method write(rows)")

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [dataset_at(self.address)] if self.address else []

    def create_writer(self) -> SinkWriter:
        return SimpleWriter(copy.copy(self))


class SimpleWriter(PlainWriter):
    """The writer of one subtask. `sink`: a copy of its own."""

    def __init__(self, sink: SimpleSink) -> None:
        self.sink = sink
        self._context: SinkContext | None = None

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._run("open", partial(self.sink.open, context))
        self._context = context

    def write(self, batch: Batch) -> None:
        assert self._context is not None, "write before open"
        if not batch.num_rows:
            return
        self._run("write", partial(self.sink.write, batch.records))
        count_sent(self._context.metrics, batch.num_rows, batch.nbytes)

    def flush(self, end_of_input: bool) -> None:
        self._run("flush", self.sink.flush)

    def close(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            self._run("close", self.sink.close)

    def _run(self, name: str, method: Callable[[], object]) -> None:
        run(f"sink {self.sink.name}", name, method)
