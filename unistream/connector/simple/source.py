"""A source that is polled: the base class for authors.

    splits() ─► names in the job's options ─► discovery in the master ─► splits of readers
                                                     └─► NEW_SPLITS, in an unbounded source: one reader calls
                                                         splits() again, and reads what has come since

A master runs no code of a user. So the first splits are found where the pipeline is built, and later ones by
the reader that has `NEW_SPLITS`, whose position is the names that are known. What it finds it reads itself;
in a snapshot they are splits like all others, which the next start deals out among the subtasks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, cast

import pyarrow as pa

from unistream.base.config import DurationLike
from unistream.base.errors import ConfigError
from unistream.connector.simple.author import Intervals, check_attributes, checked_schema, named_splits
from unistream.connector.simple.reader import PollingReader
from unistream.connector.simple.splits import CONNECTOR
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.port.source import ReaderContext, SourceReader


class _NoSchema:
    """Stands for the schema of a class that has none."""

    def __get__(self, source: PollingSource | None, kind: type[PollingSource]) -> Any:
        if source is None:
            return self
        raise ConfigError(
            f"source {kind.__name__}: it has no schema; give the class one, such as "
            "schema = pa.schema([('id', pa.int64())])"
        )


class PollingSource:
    """Base class for a source of your own: name its splits, and poll each of them from a position.

    Rows and positions are one: after a failure each split is polled from the position of the last checkpoint,
    so rows come once, if `poll` returns the same rows, or at least none that were there before, for the same
    position. A subclass is sent to the workers like a function: open no connection in `__init__`, which runs
    where the pipeline is built, but in `open`. In a worker all methods are called by one thread, of its own,
    so `poll` may wait for an answer.

    Attributes:
        name: Name of the source; that of the class, unless it is given.
        address: URI of what it reads, without secrets, for the lineage and for Dagster. Empty: nobody knows.
        schema: Columns of the rows; each source must have it.
        bounded: True: each split has an end.
        interval: Time between two polls of a split, such as ``"10 s"``; at least 10 ms.
        interval_after_rows: The same after a poll that has returned rows; 0: there may be more already.
            None: `interval`, or in a bounded source 0.
        discovery_interval: How often `splits` is called again, while an unbounded source is read; 0: only
            when the job starts or restarts.

    >>> import pyarrow as pa
    >>> class Numbers(PollingSource):
    ...     schema = pa.schema([("n", pa.int64())])
    ...     bounded = True
    ...
    ...     def poll(self, split, position):
    ...         first = position or 0
    ...         rows = pa.record_batch({"n": range(first, first + 2)}, schema=self.schema)
    ...         return rows, first + 2 if first < 2 else None
    >>> import unistream as us
    >>> with us.testing.PollingSourceHarness(Numbers()) as harness:
    ...     [row["n"] for row in harness.poll()]
    [0, 1, 2, 3]
    """

    name: str = "polling"
    address: str = ""
    schema: pa.Schema = cast(pa.Schema, _NoSchema())
    bounded: bool = False
    interval: DurationLike = "1 s"
    interval_after_rows: DurationLike | None = None
    discovery_interval: DurationLike = "60 s"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    # --- methods that a source must have ------------------------------------------------------------

    def poll(self, split: str, position: Any) -> tuple[pa.RecordBatch | None, Any]:
        """One piece of a split, and the position behind it.

        Args:
            split: A name that `splits` has returned.
            position: What the last poll of this split has returned: the same as text, numbers, bytes, times,
                lists and dicts, also behind a restart. None: the first poll of this split.

        Returns:
            The next rows, or None: there are none now; and the position from which to poll next. The position
            None ends a split of a bounded source; in an unbounded one it is refused behind rows.
        """
        raise ConfigError(f"source {self.name}: {type(self).__name__} has no method poll(split, position)")

    # --- methods that it may have -------------------------------------------------------------------

    def splits(self) -> Iterable[str]:
        """Names of the parts that subtasks read in parallel, each once. One that is not named any more is
        polled all the same. Called where the pipeline is built; in an unbounded source also by one subtask,
        when it starts and every `discovery_interval`: new names are read from their beginning."""
        return ["all"]

    def open(self, context: ReaderContext) -> None:
        """Called first, in each subtask that has splits: `context.index` of `context.parallelism`. Counters
        of `context.metrics` are shown with the job."""

    def close(self) -> None:
        """Releases what `open` acquired. Not called if `open` has failed."""

    # --- as a source --------------------------------------------------------------------------------

    def info(self) -> SourceInfo:
        """Raises ConfigError: the class lacks something, or `splits` fails or returns no names."""
        check_attributes("source", self)
        checked_schema(self)
        Intervals(self)
        if type(self).poll is PollingSource.poll:
            self.poll("", None)
        try:
            names = named_splits(self)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"source {self.name}: splits() failed where the pipeline is built: "
                f"{type(error).__name__}: {error}"
            ) from error
        options: dict[str, object] = {"splits": names, "grows": not self.bounded}
        return SourceInfo(connector=CONNECTOR, options=options, bounded=self.bounded, pull=self.bounded)

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [dataset_at(self.address)] if self.address else []

    def create_reader(self) -> SourceReader:
        return PollingReader(copy.copy(self))
