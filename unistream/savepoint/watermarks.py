"""Progress of event time when a snapshot was taken, for people: a restored job begins without watermarks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from unistream.base.ids import OperatorUid
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.snapshot import VertexSnapshot

NONE_YET: Final = "none yet"
END_OF_INPUT: Final = "end of input"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class WatermarkSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The watermarks of one operator's subtasks: rows up to the least are complete in all of them.

    Attributes:
        least, greatest: ISO 8601, UTC; "none yet" before the first watermark, "end of input" after the last.
        least_ms, greatest_ms: The same in ms since the epoch; None before the first, 2**63 - 1 at the end.
    """

    least: str
    least_ms: int | None
    greatest: str
    greatest_ms: int | None


def span_of(uid: OperatorUid, vertex: VertexSnapshot) -> WatermarkSpan | None:
    """None: not stored. A finished subtask was at the end of its input."""
    found = [task.watermarks[uid] for task in vertex.subtasks if task is not None and uid in task.watermarks]
    found += [MAX_WATERMARK for _ in vertex.finished_subtasks]
    if not found:
        return None
    least, greatest = min(found), max(found)
    return WatermarkSpan(
        least=watermark_text(least),
        least_ms=_known(least),
        greatest=watermark_text(greatest),
        greatest_ms=_known(greatest),
    )


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark


def watermark_text(watermark: int) -> str:
    """A watermark as a time; as a number if it is out of the range of dates.

    >>> watermark_text(1_700_000_000_123), watermark_text(MIN_WATERMARK), watermark_text(MAX_WATERMARK)
    ('2023-11-14T22:13:20.123Z', 'none yet', 'end of input')
    """
    if watermark == MIN_WATERMARK:
        return NONE_YET
    if watermark == MAX_WATERMARK:
        return END_OF_INPUT
    try:
        at = _EPOCH + timedelta(milliseconds=watermark)
    except OverflowError:
        return f"{watermark} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
