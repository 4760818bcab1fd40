"""Generated rows: deterministic by (seed, row index), so a reader can start anywhere.

Row i does not depend on the number of splits, the batch size or restarts. Randomness is counter-based: the
i-th draw of a column is a mix of (seed, column, i), as in SplitMix64 (Steele, Lea, Flood 2014), computed for
a whole batch at once. Split k of n has the rows i with i mod n = k, so that all splits advance in event time
at the same pace.
"""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.base.limits import BATCH_ROWS_MAX, PARALLELISM_MAX
from unistream.connector.common import ListedSplits, decoded_split, discovery_options, encoded_split
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.metric_names import PENDING_RECORDS, PENDING_UNKNOWN
from unistream.port.source import (
    Exhausted,
    Idle,
    Polled,
    ReaderContext,
    Rows,
    SourceReader,
    SplitDiscovery,
    SplitFinished,
)

_Int64s = npt.NDArray[np.int64]
_Uint64s = npt.NDArray[np.uint64]

RATE_TICK_MS: Final = 10  # a rate-limited source emits rows about this often
_GAMMA: Final = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: step of SplitMix64
_MASK64: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sequential:
    """start + step * index, int64."""

    start: int = 0
    step: int = 1


@dataclass(frozen=True, slots=True)
class RandomInt:
    """Uniform int64 in [low, high)."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not -(2**63) <= self.low < self.high <= 2**63 - 1:
            raise ConfigError(f"RandomInt needs low < high within int64, not [{self.low}, {self.high})")


@dataclass(frozen=True, slots=True)
class RandomFloat:
    """Uniform float64 in [low, high)."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise ConfigError(f"RandomFloat needs finite low < high, not [{self.low}, {self.high})")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `values` (all of one type), with equal probability."""

    values: tuple[object, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("Choice needs at least one value")
        try:
            pa.array(self.values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(f"values of a Choice must have one Arrow type: {error}") from error


@dataclass(frozen=True, slots=True)
class EventTime:
    """start_ms + index * step_ms - (uniform in [0, disorder_ms]): timestamp in ms, UTC.

    A watermark with an out-of-orderness of `disorder_ms` drops nothing.
    """

    start_ms: int = 0
    step_ms: int = 1
    disorder_ms: int = 0

    def __post_init__(self) -> None:
        if self.disorder_ms < 0 or self.step_ms < 0:
            raise ConfigError("EventTime needs step_ms >= 0 and disorder_ms >= 0")


Column = Sequential | RandomInt | RandomFloat | Choice | EventTime


class DatagenSource:
    """Rows made of `columns`.

    Args:
        columns: Name -> kind of column, in order.
        rows: Total number; None: without end (then `bounded` must be False).
        seed: Any integer; the same seed makes the same rows.
        rows_per_second: Rate of all splits together; None: unlimited. A restored reader does not catch up
            with its downtime.
        splits: Parts that subtasks read in parallel.
        bounded: False: after `rows` the stream stays open and idle.

    >>> source = DatagenSource({"id": Sequential(), "key": RandomInt(0, 10)}, rows=1000, seed=7)
    >>> source.schema.names
    ['id', 'key']
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        rows: int | None,
        seed: int = 0,
        rows_per_second: float | None = None,
        splits: int = 1,
        bounded: bool = True,
    ) -> None:
        if not columns:
            raise ConfigError("a datagen source needs at least one column")
        for name, kind in columns.items():
            if not isinstance(kind, Column):
                raise ConfigError(
                    f"column {name!r} of a datagen source is of us.datagen, such as us.datagen.Sequential(), "
                    f"not {kind!r:.100}"
                )
        if rows is not None and not isinstance(rows, int):
            raise ConfigError(f"rows of a datagen source are a whole number, not {rows!r:.100}")
        if rows is None and bounded:
            raise ConfigError("a datagen source without a number of rows never ends: set bounded=False")
        if rows is not None and not 0 <= rows < 2**62:
            raise ConfigError(f"rows of a datagen source must be 0 or more, not {rows}")
        if rows_per_second is not None and not 0 < rows_per_second < math.inf:
            raise ConfigError(f"rows_per_second must be above 0, not {rows_per_second}")
        if not 1 <= splits <= PARALLELISM_MAX:
            raise ConfigError(f"splits must be 1 to {PARALLELISM_MAX}, not {splits}")
        self._columns = dict(columns)
        self._rows = rows
        self._seed = seed
        self._rows_per_second = rows_per_second
        self._splits = splits
        self._bounded = bounded

    @property
    def name(self) -> str:
        return "datagen"

    @property
    def schema(self) -> pa.Schema:
        return generate(self._columns, self._seed, np.empty(0, np.int64)).schema

    def unpaced(self) -> DatagenSource:
        """A source of the same rows without a rate limit; itself if it has none."""
        if self._rows_per_second is None:
            return self
        source = copy.copy(self)
        source._rows_per_second = None
        return source

    def info(self) -> SourceInfo:
        options: dict[str, object] = {"splits": self._splits, "rows": self._rows}
        return SourceInfo(connector="datagen", options=options, bounded=self._bounded, pull=False)

    def create_reader(self) -> SourceReader:
        rate = None if self._rows_per_second is None else self._rows_per_second / self._splits
        return _DatagenReader(self._columns, self._seed, rate, bounded=self._bounded)


# --- splits ---------------------------------------------------------------------------------------


class _DatagenSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Rows index, index + stride, … below `end` (None: without end). `index` is the next one to emit."""

    index: int
    stride: int
    end: int | None
    v: int = 1


class _DatagenOptions(msgspec.Struct, frozen=True, kw_only=True):
    splits: int
    rows: int | None


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Raises ConfigError if the options are not those of `DatagenSource.info`."""
    options = discovery_options(info, _DatagenOptions, "datagen")
    stride = options.splits
    if not 1 <= stride <= PARALLELISM_MAX:
        raise ConfigError(f"options of a datagen source: splits must be 1 to {PARALLELISM_MAX}")
    splits = [_DatagenSplit(index=k, stride=stride, end=options.rows) for k in range(stride)]
    return ListedSplits(lambda: [encoded_split(f"datagen-{split.index}", split) for split in splits])


# --- reader ---------------------------------------------------------------------------------------


class _Rate:
    """How many rows are due since its creation."""

    def __init__(self, rows_per_second: float) -> None:
        self._rows_per_second = rows_per_second
        self._started_ns = time.monotonic_ns()
        self._taken = 0

    def due(self) -> int:
        return int(self._elapsed_s() * self._rows_per_second) - self._taken

    def take(self, rows: int) -> None:
        self._taken += rows

    def wait_ms(self) -> int:
        """The time until at least one row is due, and at least one tick."""
        missing_s = (self._taken + 1) / self._rows_per_second - self._elapsed_s()
        return max(RATE_TICK_MS, math.ceil(missing_s * 1000))

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._started_ns) / 1e9


class _ActiveSplit:
    def __init__(self, split_id: str, split: _DatagenSplit, rate: _Rate | None) -> None:
        self.id = split_id
        self.split = split
        self.rate = rate

    def left(self) -> int | None:
        """Rows not yet emitted; None = no end."""
        split = self.split
        return None if split.end is None else max(0, -((split.index - split.end) // split.stride))

    def take(self, rows: int) -> _Int64s:
        """Indices of the next `rows` rows."""
        index, stride = self.split.index, self.split.stride
        self.split = msgspec.structs.replace(self.split, index=index + rows * stride)
        if self.rate is not None:
            self.rate.take(rows)
        return np.arange(index, index + rows * stride, stride, dtype=np.int64)


class _DatagenReader:
    def __init__(
        self, columns: Mapping[str, Column], seed: int, rate: float | None, *, bounded: bool
    ) -> None:
        self._columns = columns
        self._seed = seed
        self._rate = rate
        self._bounded = bounded
        self._context: ReaderContext | None = None
        self._active: deque[_ActiveSplit] = deque()
        self._no_more = False

    def open(self, context: ReaderContext) -> None:
        self._context = context
        context.metrics.set(PENDING_UNKNOWN, 0)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            rate = None if self._rate is None else _Rate(self._rate)
            decoded = decoded_split(split, _DatagenSplit, "datagen")
            self._active.append(_ActiveSplit(split.id, decoded, rate))
        self._show_pending()
        self._wake()

    def no_more_splits(self) -> None:
        self._no_more = True
        self._wake()

    def poll(self) -> Polled:
        """The splits take turns; those without due rows are skipped."""
        wait_ms: int | None = None
        for _ in range(len(self._active)):
            active = self._active[0]
            self._active.rotate(-1)
            left = active.left()
            if left == 0:
                if self._bounded:
                    self._active.remove(active)
                    return SplitFinished(active.id)
                continue
            due = BATCH_ROWS_MAX if active.rate is None else active.rate.due()
            if due > 0:
                rows = min(due, BATCH_ROWS_MAX, BATCH_ROWS_MAX if left is None else left)
                index = active.take(rows)
                self._show_pending()
                return Rows(active.id, generate(self._columns, self._seed, index))
            assert active.rate is not None, "only a rate-limited split can have nothing due"
            wait_ms = min(active.rate.wait_ms(), wait_ms or active.rate.wait_ms())
        if not self._active and self._no_more and self._bounded:
            return Exhausted()
        return Idle(wait_ms)

    def snapshot(self) -> Sequence[Split]:
        return [encoded_split(one.id, one.split) for one in sorted(self._active, key=lambda one: one.id)]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Does nothing: generated rows need no cleaning up after a checkpoint."""

    def close(self) -> None:
        self._active.clear()

    def _show_pending(self) -> None:
        left = [active.left() for active in self._active]
        if self._context is not None and self._bounded and left:
            self._context.metrics.set(PENDING_RECORDS, sum(one for one in left if one is not None))

    def _wake(self) -> None:
        if self._context is not None:
            self._context.wake()


# --- columns --------------------------------------------------------------------------------------


def generate(columns: Mapping[str, Column], seed: int, index: _Int64s) -> pa.RecordBatch:
    """The rows with these indices (>= 0, any order)."""
    arrays = [_column(kind, seed, name, index) for name, kind in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _column(kind: Column, seed: int, name: str, index: _Int64s) -> pa.Array:
    match kind:
        case Sequential(start, step):
            return pa.array(_on_a_line(name, index, step, start))
        case RandomInt(low, high):
            offsets = _draws(seed, name, index) % np.uint64(high - low)
            return pa.array((offsets + np.uint64(low & _MASK64)).view(np.int64))
        case RandomFloat(low, high):
            upper_bits = (_draws(seed, name, index) >> np.uint64(11)).astype(np.float64)
            return pa.array(low + (high - low) * (upper_bits * np.float64(2.0**-53)))
        case Choice(values):
            picked = _draws(seed, name, index) % np.uint64(len(values))
            return pa.array(values).take(pa.array(picked))
        case EventTime(start_ms, step_ms, disorder_ms):
            late = (_draws(seed, name, index) % np.uint64(disorder_ms + 1)).view(np.int64)
            times = _on_a_line(name, index, step_ms, start_ms, margin=disorder_ms) - late
            return pa.array(times).cast(pa.timestamp("ms", tz="UTC"))


def _on_a_line(name: str, index: _Int64s, step: int, start: int, *, margin: int = 0) -> _Int64s:
    """`index * step + start`. Raises ConfigError where int64 does not have it, or what is `margin` less."""
    if len(index):
        ends = [row * step + start for row in (int(index.min()), int(index.max()))]
        if max(ends) >= 2**63 or min(ends) - margin < -(2**63) or max(abs(step), abs(start)) >= 2**63:
            row = int(index.max())
            raise ConfigError(
                f"datagen column {name!r}: row {row} would be {ends[1]}, which int64 does not hold"
            )
    return index * step + start


def _draws(seed: int, name: str, index: _Int64s) -> _Uint64s:
    """One uniform 64-bit number for each row; columns are independent by their names."""
    key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    z = index.view(np.uint64) * np.uint64(_GAMMA) + np.uint64(int.from_bytes(key, "little"))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
