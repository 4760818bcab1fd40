"""Values that a target cannot hold, found column by column before rows are written.

Each function gives a mask of the rows with such a value, or None if there is none, as a rule without looking
at single values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S: Final = 86_400
_FIRST_DAY: Final = -719_162  # 0001-01-01, in days since 1970
_LAST_DAY: Final = 2_932_896  # 9999-12-31


def reasons_of(found: Iterable[tuple[pa.Array, str]]) -> dict[int, str]:
    """Position of each row with a bad value -> the first reason that is given for it.

    >>> reasons_of([(pa.array([False, True, None]), "odd"), (pa.array([True, True, False]), "small")])
    {1: 'odd', 0: 'small'}
    """
    reasons: dict[int, str] = {}
    for bad, reason in found:
        for row in np.flatnonzero(pc.fill_null(bad, fill_value=False).to_numpy(zero_copy_only=False)):
            reasons.setdefault(int(row), reason)
    return reasons


def uncastable(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Values that `column.cast(kind)` refuses.

    >>> uncastable(pa.array([1_000, 1_001, None], pa.timestamp("ns")), pa.timestamp("us")).to_pylist()
    [False, True, False]
    """
    if column.type.equals(kind) or _casts(column, kind):
        return None
    if pa.types.is_temporal(column.type) and pa.types.is_temporal(kind):
        back = column.cast(kind, safe=False).cast(column.type, safe=False)
        bad = pc.fill_null(pc.not_equal(back, column), fill_value=False)
        if _casts(column.filter(pc.invert(bad)), kind):
            return bad
    return _by_halves(column, kind)


def beyond_years(column: pa.Array) -> pa.Array | None:
    """Dates and times that are not in the years 1 to 9999, which Python has no values for.

    >>> beyond_years(pa.array([0, 2**60, None], pa.timestamp("us"))).to_pylist()
    [False, True, None]
    """
    kind = column.type
    if pa.types.is_date32(kind):
        numbers, per_day = column.cast(pa.int32()), 1
    elif pa.types.is_date64(kind):
        numbers, per_day = column.cast(pa.int64()), _DAY_S * 1_000
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":  # which ends in the year 2262
        numbers, per_day = column.cast(pa.int64()), _DAY_S * _PER_SECOND[kind.unit]
    else:
        return None
    least, end = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (bounds["min"] >= least and bounds["max"] < end):
        return None
    return pc.or_(pc.less(numbers, least), pc.greater_equal(numbers, end))


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except _REFUSALS:
        return False
    return True


def _by_halves(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Which values cannot be cast; it takes as many casts as there are bad values, times the logarithm of the
    length."""
    bad = np.zeros(len(column), np.bool_)
    parts = [(0, len(column))]
    while parts:
        start, end = parts.pop()
        part = column.take(
            pa.array(np.arange(start, end))
        )  # a slice of lists is cast with all values of the whole
        if _casts(part, kind):
            continue
        if end - start == 1:
            bad[start] = True
        else:
            middle = (start + end) // 2
            parts += [(start, middle), (middle, end)]
    return pa.array(bad)
