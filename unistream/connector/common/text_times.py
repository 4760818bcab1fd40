"""Times in the forms that the JSON reader knows, from columns of text.

Arrow reads ISO 8601 with a zone only into a column with a zone, and without one only into a column without;
its JSON parser reads both into both, and takes a time without a zone as UTC. So texts with and without a zone
are converted apart.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_ZONE: Final = r"^.{11,}(Z|[+-]\d\d(:?\d\d)?)$"  # behind a date and a time; a date ends like a zone
_SHOWN: Final = 60  # characters of a value in a message


def is_read(kind: pa.DataType) -> bool:
    """Whether texts are read as values of this type."""
    return bool(pa.types.is_timestamp(kind))


def parsed(texts: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    """
    Args:
        texts: Null stays null.
        kind: A timestamp, with or without a zone.
        name: Of the column.

    Raises:
        pyarrow.ArrowInvalid: a text is no time; names the column and the first such text.

    >>> texts = pa.chunked_array([["2026-06-25T09:15:00Z", "2026-06-25 11:15:00+02:00", "2026-06-25"]])
    >>> parsed(texts, pa.timestamp("s"), "seen_at").cast(pa.int64()).to_pylist()
    [1782378900, 1782378900, 1782345600]
    """
    zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONE), False)
    utc, plain = pa.timestamp(kind.unit, "UTC"), pa.timestamp(kind.unit)
    try:
        if not pc.any(zoned).as_py():
            return texts.cast(plain).cast(kind)
        others = pc.if_else(zoned, None, texts).cast(plain).cast(pa.int64())
        of_zone = pc.if_else(zoned, texts, None).cast(utc).cast(pa.int64())
        return pc.coalesce(of_zone, others).cast(kind)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(
            f"column {name!r}: {_first_bad(texts, zoned, kind)!r} is not a {kind}"
        ) from None


def _first_bad(texts: pa.ChunkedArray, zoned: pa.ChunkedArray, kind: pa.DataType) -> str:
    """Finds the first text that is none of its type, by bisection."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_good(texts.slice(low, middle - low), zoned.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return str(texts[low])[:_SHOWN]


def _is_good(texts: pa.ChunkedArray, zoned: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        pc.if_else(zoned, None, texts).cast(pa.timestamp(kind.unit))
        pc.if_else(zoned, texts, None).cast(pa.timestamp(kind.unit, "UTC"))
    except pa.ArrowInvalid:
        return False
    return True
