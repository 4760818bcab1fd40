"""Splits of a hybrid source: a split of one of its two sources, and the fence of its rows.

The fence is a time (ms): rows of the history are before it, rows of the live source are not. A split keeps
the fence that it was begun with, so that a job that continues with another one is noticed.

`EndSplit` has no rows. It carries the greatest event time of the history that a subtask has read through a
checkpoint, since the splits with those rows may be finished by then.
"""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.base.limits import MAX_WATERMARK
from unistream.connector.common import decoded_split, encoded_split
from unistream.model.graph import HISTORY, LIVE
from unistream.model.messages import Split

PREFIXES: Final = {HISTORY: "history:", LIVE: "live:"}
"""What the ids of splits begin with: both sources may call their splits the same."""

END_PREFIX: Final = "history-end:"


class _HybridSplit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    data: bytes
    fence: int | None = None
    v: int = 1


class EndSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a subtask's history. `newest`: the time of its newest row, in ms."""

    newest: int
    v: int = 1


def wrapped(split: Split, phase: int, fence: int | None) -> Split:
    """A split of one of the two sources as a split of the hybrid source.

    Rows of the history behind the fence are dropped, so a split of them must not let the watermark pass the
    fence: live rows would be late.
    """
    data = msgspec.msgpack.encode(_HybridSplit(data=split.data, fence=fence))
    least = split.min_timestamp
    if phase == HISTORY and fence is not None and least is not None:
        least = min(least, fence)
    return Split(
        id=PREFIXES[phase] + split.id,
        data=data,
        min_timestamp=least,
        phase=phase,
        size=split.size,
        recorded=split.recorded if phase == LIVE else None,
    )


def unwrapped(split: Split) -> tuple[Split, int | None]:
    """The split of the history or the live source, and its fence. Raises CorruptSnapshot."""
    inner = decoded_split(split, _HybridSplit, "hybrid")
    name = split.id.removeprefix(PREFIXES[split.phase])
    return Split(id=name, data=inner.data, min_timestamp=split.min_timestamp), inner.fence


def end_split(index: int, newest: int) -> Split:
    """The end split of subtask `index`; no two in one snapshot have the same id."""
    return encoded_split(f"{END_PREFIX}{index}", EndSplit(newest=newest), min_timestamp=MAX_WATERMARK)
