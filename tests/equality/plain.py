"""Functions of a row in plain Python, which both the pipelines and the model call.

They keep floats multiples of a quarter, and not too large, so that sums are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

Values = dict[str, Any]
LARGE = 2**40
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- map ------------------------------------------------------------------------------------------


def negative(row: Values) -> Values:
    """0.0 becomes -0.0."""
    f, v = row["f"], row["v"]
    return {**row, "f": None if f is None else -f, "v": None if v is None else -v}


def without_nulls(row: Values) -> Values:
    return {**row, "s": row["s"] or "", "f": 0.0 if row["f"] is None else row["f"], "v": row["v"] or 0}


def crossed(row: Values) -> Values:
    """v from f, f from v: NaN and infinity are null."""
    f, v = row["f"], row["v"]
    whole = None if f is None or not math.isfinite(f) else math.floor(f)
    return {**row, "f": None if v is None else quarters(v / 4), "v": whole}


def spelled(row: Values) -> Values:
    return {**row, "s": text(row["f"])}


# --- flat_map -------------------------------------------------------------------------------------


def copies(row: Values) -> Iterator[Values]:
    """None, one or two."""
    for copy in range(row["n"] % 3):
        yield {**row, "n": 10 * row["n"] + copy}


def if_number(row: Values) -> Iterator[Values]:
    if row["v"] is not None:
        yield row


# --- filter ---------------------------------------------------------------------------------------


def is_even(row: Values) -> bool:
    return bool(row["n"] % 2 == 0)


def is_real(row: Values) -> bool:
    """Neither null nor NaN."""
    return row["f"] is not None and not math.isnan(row["f"])


# --- key_by ---------------------------------------------------------------------------------------


def parity(row: Values) -> int:
    return int(row["n"] % 2)


def opposite(row: Values) -> float | None:
    return None if row["f"] is None else -row["f"]


def initial(row: Values) -> str | None:
    return None if row["s"] is None else row["s"][:1]


# --- expressions, as programs write them, and their meaning ---------------------------------------


def known(test: Callable[[Any], bool], column: str) -> Callable[[Values], bool]:
    """Null counts as false."""
    return lambda row: row[column] is not None and test(row[column])


PREDICATES: dict[str, Callable[[Values], bool]] = {
    'us.col("v") > us.lit(1)': known(lambda v: v > 1, "v"),
    'us.col("f") >= us.lit(0.0)': known(lambda f: f >= 0.0, "f"),
    'us.col("f").is_nan()': known(math.isnan, "f"),
    'us.col("s").is_null()': lambda row: row["s"] is None,
    'us.col("s") == us.lit("x")': known(lambda s: s == "x", "s"),
    'us.col("at") < us.lit(10)': lambda row: row["at"] < 10,
}

COMPUTED: dict[str, Callable[[Values], Values]] = {
    'v=us.col("v") + us.lit(1)': lambda row: {**row, "v": None if row["v"] is None else row["v"] + 1},
    'f=us.col("f") * us.lit(2.0)': lambda row: {**row, "f": None if row["f"] is None else row["f"] * 2.0},
    'f=us.col("at").cast("float64")': lambda row: {**row, "f": float(row["at"])},
}

MAPS = {function.__name__: function for function in (negative, without_nulls, crossed, spelled)}
FLAT_MAPS = {function.__name__: function for function in (copies, if_number)}
FILTERS = {function.__name__: function for function in (is_even, is_real)}
KEY_FUNCTIONS = {function.__name__: function for function in (parity, opposite, initial)}


# --- results of windows and joins as rows ---------------------------------------------------------


def of_window(row: Values) -> Values:
    """A result of a window as a row; its end is in `s`, unless that is a key."""
    return {
        "n": row["n"],
        "at": (row["window_start"] - EPOCH) // timedelta(milliseconds=1),
        "s": row["s"] if "s" in row else text((row.get("key"), (row["window_end"] - EPOCH).total_seconds())),
        "f": quarters(row["f"]),
        "v": row["v"],
    }


def quarters(f: float | None) -> float | None:
    """The next multiple of a quarter below, or infinity instead of a number that is large: sums stay exact.
    Of -0.0 and 0.0, either of which may be the least of both, it makes 0.0."""
    if f is None or not math.isfinite(f):
        return f
    return math.copysign(math.inf, f) if abs(f) > LARGE else math.floor(f * 4) / 4


def labelled(row: Values) -> Values:
    s, label = row["s"], row["label"]
    joined = None if s is None and label is None else f"{s}+{label}"
    return {"n": row["n"], "at": row["at"], "s": joined, "f": row["f"], "v": row["v"]}


def text(value: Any) -> str:
    """Equal for equal values, also of NaN; different for -0.0 and 0.0, None and "", 1 and 1.0.

    >>> text((None, "", -0.0, float("nan")))
    "(None, '', -0.0, nan)"
    """
    return repr(value)
