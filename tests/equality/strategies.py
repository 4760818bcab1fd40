"""Pipelines and their rows, drawn by hypothesis.

Rows are late nowhere: the bound of a source's watermark strategy is the disorder that its rows have
(`Source.bound`). Everything shrinks to fewer steps, fewer rows, and the first of the values in each list.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

from hypothesis import strategies as st

from tests.equality import plain
from tests.equality.pipelines import (
    Apply,
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
    Split,
    Stamp,
    Step,
    Union,
    Window,
)

STEPS_MAX = 5
FILES_MAX = 4
FILE_ROWS = [0, 1, 2, 3, 5, 8]

TIMES = st.integers(0, 60) | st.integers(-15, 60)
TEXTS = st.sampled_from(["x", "y", None, "", "X", "é", "e\u0301"])
FLOATS = st.sampled_from([0.0, 1.5, None, nan, -0.0, -0.25, inf, -inf])
NUMBERS = st.sampled_from([0, 1, 2, None, -3, 2**53 + 1])
KINDS = st.sampled_from(["parquet", "static", "json", "parquet-without-statistics", "csv"])

KEYS = st.sampled_from(
    [
        *(Key(columns) for columns in [("s",), ("f",), ("v",), ("s", "f"), ("v", "f", "s")]),
        *(Key(function=name) for name in plain.KEY_FUNCTIONS),
    ]
)
WHOLE = [("count", ""), ("min", "n"), ("max", "at"), ("count", "f"), ("count", "v"), ("sum", "v")]
NULLABLE = {
    "n": WHOLE[:5],
    "v": [("sum", "v"), ("max", "v"), ("min", "v"), ("count", "f"), ("sum", "n")],
    "f": [("sum", "f"), ("min", "f"), ("max", "f"), ("mean", "f"), ("mean", "v")],
}


@st.composite
def sources(draw: st.DrawFn, first: int) -> Source:
    """Rows are numbered from `first` on."""
    kind = draw(KINDS)
    row = st.tuples(TIMES, TEXTS, FLOATS, NUMBERS)
    files, number = [], first
    for _ in range(draw(st.integers(1, FILES_MAX))):
        rows = draw(st.sampled_from(FILE_ROWS))
        drawn = draw(st.lists(row, min_size=rows, max_size=rows))
        files.append(tuple(Row(n, *columns) for n, columns in enumerate(drawn, number)))
        number += len(drawn)
    in_order = kind != "static" and draw(st.booleans())
    return excluded(Source(tuple(files), kind=kind, in_order=in_order, piece=draw(st.integers(1, 3))))


def excluded(source: Source) -> Source:
    """The one place for what is not drawn, and why.

    CSV cannot say all values: an empty text is never null.
    """
    if source.kind != "csv":
        return source
    return replace(source, files=tuple(tuple(map(said_in_csv, rows)) for rows in source.files))


def said_in_csv(row: Row) -> Row:
    return row._replace(s=row.s or "")


@st.composite
def windows(draw: st.DrawFn, read: int) -> Window:
    key = draw(KEYS)
    slide = draw(st.sampled_from([10, 7, 1, 30]))
    size = slide if draw(st.booleans()) else slide + draw(st.sampled_from([slide, 5, 3]))
    aggregates = tuple(
        (name, *draw(st.sampled_from(choices)))
        for name, choices in NULLABLE.items()
        if name not in key.columns
    )
    return Window(read, key, size, slide, draw(st.sampled_from([0, 3, -4])), aggregates)


@st.composite
def joins(draw: st.DrawFn, read: int) -> Join:
    column, values = draw(st.sampled_from([("s", TEXTS), ("v", NUMBERS), ("f", FLOATS)]))
    table = draw(st.lists(st.tuples(values, st.sampled_from(["one", "two"])), max_size=5))
    return Join(read, column, draw(st.sampled_from(["inner", "left"])), tuple(table), draw(st.booleans()))


APPLIED = [
    *(("filter", name) for name in [*plain.FILTERS, *plain.PREDICATES]),
    *(("map", name) for name in plain.MAPS),
    *(("flat_map", name) for name in plain.FLAT_MAPS),
    *(("with_columns", text) for text in plain.COMPUTED),
]
PROCESSES = ["Total", "InOrder", "Buckets", "Newest", "Distinct", "TotalInColumns"]
EXCHANGES = ["rebalance", "rescale", "global_"]
KINDS_OF_STEPS = [
    "apply",
    *2 * ["window"],
    *3 * ["process"],
    "split",
    *2 * ["side"],
    "join",
    *2 * ["union"],
    "exchange",
    "time",
]


@st.composite
def steps_behind(draw: st.DrawFn, steps: list[Step]) -> Step:
    """One that reads any of `steps`, rather the last ones."""
    read = len(steps) - 1 - draw(st.integers(0, len(steps) - 1))
    match draw(st.sampled_from(KINDS_OF_STEPS)):
        case "window":
            return draw(windows(read))
        case "process":
            return Process(read, draw(KEYS), draw(st.sampled_from(PROCESSES)))
        case "split":
            return Split(read, draw(st.sampled_from(list(plain.PREDICATES))))
        case "side" if sided := [n for n, step in enumerate(steps) if isinstance(step, Split | Process)]:
            return Side(draw(st.sampled_from(sided)))
        case "join":
            return draw(joins(read))
        case "union":
            return Union(read, draw(st.integers(0, len(steps) - 1)))
        case "exchange":
            return Exchange(read, draw(st.sampled_from(EXCHANGES)))
        case "time":
            return draw(st.sampled_from([Stamp(read), Assign(read)]))
    return Apply(read, *draw(st.sampled_from(APPLIED)))


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """With one source or two."""
    steps: list[Step] = [draw(sources(0))]
    if draw(st.integers(0, 3)) == 3:
        steps.append(draw(sources(100)))
    for _ in range(draw(st.integers(1, STEPS_MAX))):
        steps.append(draw(steps_behind(steps)))
    sinks = draw(st.frozensets(st.integers(0, len(steps) - 1), max_size=1))
    if draw(st.booleans()):
        steps.append(Hold(len(steps) - 1))
    return Pipeline(tuple(steps), sinks)


@st.composite
def failing(draw: st.DrawFn, how: str) -> Pipeline:
    """With a function behind the first source that fails once, if it gets the row; and what follows."""
    source = draw(sources(0))
    steps: list[Step] = [source, Fails(0, draw(st.integers(0, max(0, len(source.rows) - 1))), how)]
    for _ in range(draw(st.integers(1, 3))):
        steps.append(draw(steps_behind(steps)))
    if draw(st.booleans()):
        steps.append(Hold(len(steps) - 1))
    return Pipeline(tuple(steps))
