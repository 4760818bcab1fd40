"""Odd values of each kind that a column can have, for every place at which a sink may put it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of columns with and without a zone
TIMES: Final = [
    EPOCH,
    EPOCH - dt.timedelta(microseconds=1),
    EPOCH.replace(year=1),
    EPOCH.replace(year=9999),
    None,
]
TEXTS: Final = [
    *("a b/ä€😀=c%20", "..", "x\ny", "null", "a:'b\"\\*", "._hidden", " ", "[x],+", "l" * 150),
    None,
]
KINDS: Final[dict[str, pa.Array[Any]]] = {
    "text": pa.array(TEXTS),
    "names": pa.array(["a", "__HIVE_DEFAULT_PARTITION__", "b", None]),
    "dictionary": pa.array(["k", "l", "k2", None]).dictionary_encode(),
    "boolean": pa.array([True, False, None]),
    "8 bits": pa.array([-128, 0, 127, None], pa.int8()),
    "64 bits": pa.array([-(2**63), 0, 2**63 - 1, None], pa.int64()),
    "double": pa.array([0.1, -1e30, 1e-7, None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "time": pa.array(TIMES, pa.timestamp("us")),
    "time with a zone": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "decimal": pa.array(
        [Decimal("-1.50"), Decimal("-0.05"), Decimal("0.00"), Decimal("9999.99"), None], pa.decimal128(6, 2)
    ),
    "wide decimal": pa.array([Decimal(f"-{'9' * 36}.99"), Decimal("0.01"), None], pa.decimal128(38, 2)),
    "bytes": pa.array([b"", b"\xff\x00/", b"b", None]),
    "list": pa.array([[1, None], [], [2], None], pa.list_(pa.int32())),
}
"""At least two different values, and a null at the end."""
IN_THE_GATE: Final = frozenset(KINDS) - {"8 bits", "boolean", "double", "time", "wide decimal"}
"""The others are written as one of these; at night each is tried."""


def batch(values: pa.Array[Any], *, first: int, n: int) -> pa.RecordBatch:
    """One row for each value: an id, the value, and a number that says which commit it is of."""
    ids = pa.array(range(first, first + len(values)), pa.int64())
    return pa.record_batch({"id": ids, "v": values, "n": pa.array([n] * len(values), pa.int64())})
