"""Time partitions that the watermark of a stream has passed: decided without I/O.

    commits ──► watermark of each stream ──► partitions that end at or before it ──► less those that are known

A partition is closed once every stream that its asset depends on has passed its end: no more rows of it come,
but late ones. Partitions exist from the start of their definition, so that says from where on they close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import dagster as dg
import msgspec

from unistream.base.errors import ConfigError
from unistream.dagster.sensor.following import Checked, ReportedStream

AT_ONCE_MAX: Final = 500
"""How many partitions of an asset are reported in one tick; the next one goes on. Dagster stores each as an
event of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioned:
    """An asset that a stream closes by time. `streams`: those that it depends on."""

    key: dg.AssetKey
    windows: dg.TimeWindowPartitionsDefinition
    streams: tuple[dg.AssetKey, ...]


class ClosedPartitions(NamedTuple):
    """What a tick reports of one asset. `reached_ms`: end of the last partition that is done with."""

    partitions: tuple[str, ...]
    reached_ms: int | None


class Cursor(msgspec.Struct, frozen=True):
    """What the sensor keeps between two ticks.

    Attributes:
        seq: The last commit that was read.
        watermarks: The highest one of each stream, ms.
        closed: Of each partitioned asset the end of the last partition that was reported or known, ms.
        streams: What was reported of each stream, by step.
        checked: What was reported of the checks of each asset.
    """

    seq: int = 0
    watermarks: dict[str, int] = {}
    closed: dict[str, int] = {}
    streams: dict[str, ReportedStream] = {}
    checked: dict[str, Checked] = {}

    @classmethod
    def read(cls, text: str | None) -> Cursor:
        """Earlier versions stored the number alone.

        >>> Cursor.read("7") == Cursor(7) == Cursor.read(Cursor(7).written())
        True
        """
        if text is None or text.isdigit():
            return cls(int(text or 0))
        return msgspec.json.decode(text, type=cls)

    def written(self) -> str:
        return msgspec.json.encode(self).decode()

    def seen(self, watermarks: Mapping[dg.AssetKey, int], seq: int) -> Cursor:
        """The cursor with the watermarks of newer commits, up to `seq`. A stream that was started again from
        an older snapshot has a lower one, which opens nothing again."""
        known = dict(self.watermarks)
        for key, watermark in watermarks.items():
            name = key.to_user_string()
            known[name] = max(watermark, known.get(name, watermark))
        return msgspec.structs.replace(self, seq=seq, watermarks=known)

    def reporting(self, streams: Mapping[str, ReportedStream], checked: Mapping[str, Checked]) -> Cursor:
        """The cursor when these streams and checks are reported; those of others stay."""
        return msgspec.structs.replace(
            self, streams={**self.streams, **streams}, checked={**self.checked, **checked}
        )

    def after(self, steps: Mapping[dg.AssetKey, ClosedPartitions]) -> Cursor:
        """The cursor when the partitions of these steps are reported."""
        ends = {key.to_user_string(): step.reached_ms for key, step in steps.items()}
        reached = {name: end_ms for name, end_ms in ends.items() if end_ms is not None}
        return msgspec.structs.replace(self, closed={**self.closed, **reached})


def partitioned(specs: Iterable[dg.AssetSpec], streams: Iterable[dg.AssetKey]) -> list[Partitioned]:
    """The assets that the watermarks of `streams` close.

    Raises:
        ConfigError: one is not partitioned by time, depends on none of `streams`, or is one of them.
    """
    stream_keys = set(streams)
    assets = []
    for spec in specs:
        name, windows = spec.key.to_user_string(), spec.partitions_def
        upstream = tuple(dep.asset_key for dep in spec.deps if dep.asset_key in stream_keys)
        if not isinstance(windows, dg.TimeWindowPartitionsDefinition):
            raise ConfigError(
                f"asset {name} is not partitioned by time, so no watermark closes its partitions: give it "
                "partitions_def=dg.DailyPartitionsDefinition(...), or one by hour, week or month"
            )
        if spec.key in stream_keys:
            raise ConfigError(
                f"asset {name} is written by a stream, whose run is for no partition: declare another asset "
                "with deps=[...] on it, and give that"
            )
        if not upstream:
            raise ConfigError(
                f"asset {name} depends on no asset of this sensor: name the stream whose watermark closes "
                "its partitions in deps=[...]"
            )
        assets.append(Partitioned(key=spec.key, windows=windows, streams=upstream))
    return assets


def newly_closed(asset: Partitioned, cursor: Cursor, known: Callable[[], Iterable[str]]) -> ClosedPartitions:
    """Partitions to be reported, in order, `AT_ONCE_MAX` at most. `known` is asked only if there are any:
    those that were reported, also by a tick that died before its cursor was stored, are passed over."""
    reached_ms = cursor.closed.get(asset.key.to_user_string())
    watermarks = [cursor.watermarks.get(key.to_user_string()) for key in asset.streams]
    lowest = min((mark for mark in watermarks if mark is not None), default=None)
    if lowest is None or None in watermarks:
        return ClosedPartitions((), reached_ms)
    passed: set[str] | None = None
    closed: list[str] = []
    for partition, end_ms in closed_between(asset.windows, reached_ms, lowest):
        if passed is None:
            passed = set(known())
        reached_ms = end_ms
        if partition not in passed:
            closed.append(partition)
        if len(closed) == AT_ONCE_MAX:
            break
    return ClosedPartitions(tuple(closed), reached_ms)


def closed_between(
    windows: dg.TimeWindowPartitionsDefinition, after_ms: int | None, watermark_ms: int
) -> Iterator[tuple[str, int]]:
    """Partitions of which no row comes any more, each with its end, from the one after `after_ms` on. All
    rows of the watermark's own ms have come. Partitions of the future close when they exist."""
    if after_ms is None:
        window = windows.get_first_partition_window()
    else:
        window = windows.get_next_partition_window(datetime.fromtimestamp(after_ms / 1000, UTC))
    while window is not None and _ms(window.end) - 1 <= watermark_ms:
        for partition in windows.get_partition_keys_in_time_window(window):
            yield partition, _ms(window.end)
        window = windows.get_next_partition_window(window.end)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
