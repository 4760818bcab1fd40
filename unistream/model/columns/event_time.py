"""Event times of a column of rows: int64 milliseconds since the epoch, in UTC.

Finer times are rounded down, also before 1970. Sources and operators share this rule, because it decides into
which window a row falls.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ASSIGN_LATER: Final = (
    "To go on without such rows, name no timestamp column at the source, and have their times assigned by "
    'assign_timestamps_and_watermarks(…, on_error="skip") or "dead-letter"'
)
"""What to do where a source cannot tell its records apart."""
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_MS: Final = 86_400_000
_SECONDS_MAX: Final = (2**63 - 1) // 1_000


def is_event_time(data_type: pa.DataType) -> bool:
    """int64 milliseconds, or an Arrow timestamp or date."""
    return bool(
        pa.types.is_int64(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_date(data_type)
    )


def event_times(values: pa.Array) -> pa.Int64Array:
    """Milliseconds for a column without nulls whose type `is_event_time`. A time without zone is UTC.

    >>> event_times(pa.array([-1, 1_999_999], pa.timestamp("ns"))).to_pylist()
    [-1, 1]

    Raises:
        pa.ArrowInvalid: a time is out of the range of int64 milliseconds.
    """
    kind = values.type
    if pa.types.is_int64(kind):
        return values
    if pa.types.is_date32(kind):
        return pc.multiply(values.view(pa.int32()).cast(pa.int64()), _DAY_MS)
    numbers = values.view(pa.int64())
    if pa.types.is_date64(kind):
        return numbers
    assert pa.types.is_timestamp(kind), f"{kind} is no event time"
    per_second = _PER_SECOND[kind.unit]
    if per_second == 1:
        return pc.multiply_checked(numbers, 1_000)
    if per_second == 1_000:
        return numbers
    return pa.array(np.floor_divide(numbers.to_numpy(), per_second // 1_000))


def unusable(values: pa.Array) -> dict[int, str]:
    """Rows without an event time, and those whose time is out of range, in a column whose type
    `is_event_time`: row -> what is wrong, as the end of a sentence.

    >>> unusable(pa.array([1, None, 2**60], pa.timestamp("s")))
    {1: 'is null', 2: 'is out of the range of int64 milliseconds'}
    """
    found = dict.fromkeys(_rows(values.is_null()), "is null") if values.null_count else {}
    if pa.types.is_timestamp(values.type) and values.type.unit == "s":
        far = pc.greater(pc.abs(values.view(pa.int64())), _SECONDS_MAX)
        found |= dict.fromkeys(_rows(pc.fill_null(far, False)), "is out of the range of int64 milliseconds")
    return found


def _rows(mask: pa.BooleanArray) -> list[int]:
    rows: list[int] = np.flatnonzero(np.asarray(mask)).tolist()
    return rows


def first_null(values: pa.Array) -> int | None:
    """The first row without a time."""
    if not values.null_count:
        return None
    return int(pc.index(values.is_null(), pa.scalar(value=True)).as_py())


def event_time_of(value: Any, kind: pa.DataType) -> int:
    """The event time in ms of one value, such as a bound of a file. It is in UTC whether `kind` has a zone or
    not."""
    plain = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
    return int(event_times(pa.array([value], plain))[0].as_py())
