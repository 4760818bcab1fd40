"""A small pipeline for each kind of operator, in which the ways of `dimensions` may make a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.equality.pipelines import (
    Assign,
    Exchange,
    Fails,
    Hold,
    Join,
    Key,
    Pipeline,
    Process,
    Row,
    Side,
    Source,
    Union,
    Window,
)

SUMS: Final = Window(0, Key(("s",)), 20, 10, 0, (("n", "count", ""), ("v", "sum", "v"), ("f", "sum", "f")))
EARLIER_TIMES: Final = Pipeline(
    (
        Source((tuple(Row(n, 0, "x", 0.0, 0) for n in range(5)),), piece=1),
        SUMS,
        Assign(1),
        replace(SUMS, input=2),
    )
)
"""Windows of rows that are given earlier times; the watermark of the source has passed these."""

IN_TURN: Final = tuple(Row(n, 20 * n, f"key {n * n % 12}", None, n) for n in range(120))
SKEWED: Final = Source((IN_TURN[::2], IN_TURN[1::2]), kind="static", piece=2)
"""Long enough that some subtask is further than another."""
IN_DISORDER: Final = Source(
    (tuple(Row(n, 50 * (n ^ 1), "x", None, n) for n in range(30)),), kind="static", piece=1
)
ZEROS: Final = (0.0, -0.0, 0.5, None)
FEW: Final = Source(
    (tuple(Row(n, 20 * (n // 4), "xyz"[n % 3], ZEROS[n // 2 % 4], n) for n in range(40)), ()),
    kind="static",
    piece=2,
)
"""Some of the same key and time."""
BY_TEXT, BY_TWO = Key(("s",)), Key(("s", "f"))

OPERATORS: Final[Mapping[str, Pipeline]] = {
    "windows that overlap": Pipeline((SKEWED, replace(SUMS, size=400, slide=50), Exchange(1, "rebalance"))),
    "windows of earlier times": EARLIER_TIMES,
    "windows of rows in disorder": Pipeline((IN_DISORDER, SUMS)),
    "rows in order, and a side output": Pipeline((FEW, Process(0, BY_TEXT, "InOrder"), Side(1))),
    "timers": Pipeline((FEW, Process(0, BY_TWO, "Buckets"), Process(0, BY_TEXT, "Newest"))),
    "state in columns": Pipeline((FEW, Process(0, BY_TEXT, "TotalInColumns"))),
    "finish with state": Pipeline((FEW, Exchange(0, "rebalance"), Hold(1))),
    "a join and a union": Pipeline(
        (FEW, Join(0, "v", "left", ((3, "three"), (7, "seven"), (7, "VII"))), Union(0, 1), Hold(2))
    ),
}

ALL_AT_ONCE: Final = Pipeline(
    (
        FEW,
        Fails(0, 5, "kills"),
        replace(SUMS, input=1, size=400, slide=50),
        Process(1, BY_TEXT, "InOrder"),
        Side(3),
        Process(4, BY_TWO, "Buckets"),
        Join(1, "v", "left", ((3, "three"), (7, "seven"), (7, "VII"))),
        Union(5, 6),
        Process(7, BY_TEXT, "TotalInColumns"),
        Hold(7),
    )
)
"""One program, where it is dear to start one. A function kills its process once."""
