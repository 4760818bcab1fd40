"""Rows and columns for the tests of expressions."""

from __future__ import annotations

import datetime
import decimal
import math
import operator
from typing import Any

import pyarrow as pa

import unistream as us

NAN = math.nan
AT = datetime.datetime.fromisoformat("1969-12-30 23:59:58.999")
ROWS = pa.table(
    {
        "i": pa.array([7, -7, 0, None, 2**40], pa.int64()),
        "j": pa.array([2, 2, -3, 5, None], pa.int64()),
        "s": pa.array([7, -8, 0, None, 100], pa.int16()),
        "u": pa.array([7, 8, 0, None, 100], pa.uint16()),
        "f": pa.array([7.5, -7.5, NAN, None, 0.0], pa.float64()),
        "g": pa.array([2.0, 2.0, 1.0, 3.0, -0.5], pa.float64()),
        "d": pa.array([*map(decimal.Decimal, ("7.25", "-7.25", "0.00")), None, decimal.Decimal("9.99")]),
        "e": pa.array([decimal.Decimal(x) for x in ("2.00", "2.00", "1.50", "3.00", "0.25")]),
        "b": pa.array([True, False, None, True, False]),
        "c": pa.array([True, None, None, False, False]),
        "t": pa.array(["Straße", "élan", "", None, " x%y_z "]),
        "w": pa.array(["a", "b", "c", "d", None]),
        "ts": pa.array(
            [AT, datetime.datetime.fromisoformat("2024-02-29 12:00"), AT, None, AT], pa.timestamp("us")
        ),
        "tz": pa.array([AT, AT, datetime.datetime.fromisoformat("2024-01-01"), AT, None], pa.timestamp("us")),
        "day": pa.array([AT.date(), datetime.date(2024, 12, 30), None, AT.date(), datetime.date(1970, 1, 1)]),
    }
)
c = us.col
D = decimal.Decimal
ANY: Any = c("a")
ANY_I: Any = c("i")

SIGNS = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    "%": (operator.mod, lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1)),
    "<": (operator.lt, operator.lt),
    "==": (operator.eq, operator.eq),
}
