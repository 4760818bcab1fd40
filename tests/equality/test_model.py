"""The model, and the printed programs, by hand: what all engines are held against must be right itself."""

from __future__ import annotations

import subprocess
import sys
from math import inf, nan
from typing import Any

import pytest

from tests.equality.model import FAR, expected, stream_of
from tests.equality.pipelines import (
    COLUMNS,
    Apply,
    Assign,
    Exchange,
    Join,
    Key,
    Pipeline,
    Process,
    Row,
    Side,
    Source,
    Split,
    Stamp,
    Union,
    Window,
    disorder,
)
from tests.equality.plain import text


def row(n: int = 0, at: int = 0, s: str | None = "x", f: float | None = None, v: int | None = None) -> Row:
    return Row(n, at, s, f, v)


def results(step: Any, *rows: Row, side: bool = False) -> list[tuple]:
    """Rows that a step makes of the rows of a source; as text, by which they are compared."""
    source = stream_of(Source((rows,)), [])
    stream = stream_of(step, [source] * len(step.inputs))
    return sorted(
        (tuple(one.row[c] for c in COLUMNS) for one in (stream.side if side else stream.rows)), key=text
    )


def assert_same(found: list[tuple], want: list[tuple]) -> None:
    assert list(map(text, found)) == sorted(map(text, want))


@pytest.mark.parametrize(
    ("step", "want"),
    [
        pytest.param(Apply(0, "map", "negative"), [(1, 5, "x", -0.0, -2), (2, 7, None, nan, None)], id="map"),
        pytest.param(
            Apply(0, "flat_map", "copies"),
            [(10, 5, "x", 0.0, 2), (20, 7, None, nan, None), (21, 7, None, nan, None)],
            id="flat_map",
        ),
        pytest.param(Apply(0, "filter", "is_even"), [(2, 7, None, nan, None)], id="filter"),
        pytest.param(
            Apply(0, "filter", 'us.col("v") > us.lit(1)'), [(1, 5, "x", 0.0, 2)], id="null is not true"
        ),
        pytest.param(
            Apply(0, "filter", 'us.col("f") >= us.lit(0.0)'), [(1, 5, "x", 0.0, 2)], id="nor is NaN"
        ),
        pytest.param(
            Apply(0, "with_columns", 'v=us.col("v") + us.lit(1)'),
            [(1, 5, "x", 0.0, 3), (2, 7, None, nan, None)],
            id="null plus one",
        ),
        pytest.param(
            Union(0, 0), 2 * [(1, 5, "x", 0.0, 2), (2, 7, None, nan, None)], id="a union with itself"
        ),
        pytest.param(Exchange(0, "rebalance"), [(1, 5, "x", 0.0, 2), (2, 7, None, nan, None)], id="exchange"),
    ],
)
def test_rows_one_by_one(step: Any, want: list[tuple]) -> None:
    assert_same(results(step, row(1, 5, "x", 0.0, 2), row(2, 7, None, nan)), want)


def test_a_split_moves_rows_to_its_side() -> None:
    step = Split(0, 'us.col("s").is_null()')
    rows = row(1, 5, None), row(2, 7)
    assert_same(results(step, *rows), [tuple(rows[1])])
    assert_same(results(step, *rows, side=True), [tuple(rows[0])])


COUNT = (("n", "count", ""), ("f", "sum", "f"), ("v", "sum", "v"))


@pytest.mark.parametrize(
    ("size", "slide", "offset", "at", "windows"),
    [
        pytest.param(10, 10, 0, 9, [0], id="the last ms of a window"),
        pytest.param(10, 10, 0, 10, [10], id="the first ms of the next one"),
        pytest.param(10, 10, 0, -1, [-10], id="before 1970"),
        pytest.param(10, 10, 3, 2, [-7], id="an offset"),
        pytest.param(10, 10, -4, 6, [6], id="a negative one"),
        pytest.param(10, 5, 0, 5, [0, 5], id="two that overlap"),
        pytest.param(10, 7, 0, 7, [0, 7], id="a slide that is no part of the size"),
        pytest.param(10, 7, 0, 10, [7], id="in one only"),
    ],
)
def test_windows_of_a_time(size: int, slide: int, offset: int, at: int, windows: list[int]) -> None:
    found = results(Window(0, Key(("s",)), size, slide, offset, COUNT), row(at=at))
    assert_same(found, [(1, start, "x", None, None) for start in windows])


@pytest.mark.parametrize(
    ("key", "rows", "want"),
    [
        pytest.param(
            Key(("s",)),
            [row(s="x", f=0.5), row(s="y"), row(s="x", f=0.25)],
            [(2, 0, "x", 0.75, None), (1, 0, "y", None, None)],
            id="text",
        ),
        pytest.param(
            Key(("s",)),
            [row(s=None), row(s=""), row(s=None)],
            [(2, 0, None, None, None), (1, 0, "", None, None)],
            id="null is a key, and not the empty text",
        ),
        pytest.param(
            Key(("v",)),
            [row(v=None), row(v=0), row(v=None)],
            [(2, 0, "(None, 0.01)", None, None), (1, 0, "(None, 0.01)", None, 0)],
            id="nor 0",
        ),
        pytest.param(
            Key(("f",)),
            [row(f=-0.0), row(f=0.0)],
            [(2, 0, "(None, 0.01)", 0.0, None)],
            id="zeros are one key",
        ),
        pytest.param(
            Key(("f",)),
            [row(f=nan), row(f=-nan), row(f=None)],
            [(2, 0, "(None, 0.01)", nan, None), (1, 0, "(None, 0.01)", None, None)],
            id="NaN are one key, and not null",
        ),
        pytest.param(
            Key(("s", "v")),
            [row(s="x", v=1), row(s="x", v=None), row(s="x", v=1)],
            [(2, 0, "x", None, 1), (1, 0, "x", None, None)],
            id="two columns",
        ),
        pytest.param(
            Key(function="parity"),
            [row(1), row(3), row(2)],
            [(2, 0, "(1, 0.01)", None, None), (1, 0, "(0, 0.01)", None, None)],
            id="a function",
        ),
        pytest.param(
            Key(function="opposite"),
            [row(f=0.0), row(f=-0.0)],
            [(2, 0, "(0.0, 0.01)", 0.0, None)],
            id="a function that makes -0.0",
        ),
    ],
)
def test_keys(key: Key, rows: list[Row], want: list[tuple]) -> None:
    aggregates = tuple(one for one in COUNT if one[0] not in key.columns)
    assert_same(results(Window(0, key, 10, 10, 0, aggregates), *rows), want)


@pytest.mark.parametrize(
    ("kind", "values", "want"),
    [
        pytest.param("count", [1.5, None, nan], 2.0, id="count of what is not null"),
        pytest.param("sum", [1.5, None, 0.25], 1.75, id="sum"),
        pytest.param("sum", [None], None, id="sum of nothing"),
        pytest.param("sum", [1.5, nan], nan, id="sum with NaN"),
        pytest.param("sum", [inf, -inf], nan, id="sum of infinities"),
        pytest.param("mean", [1.0, 2.0, None], 1.5, id="mean"),
        pytest.param("min", [nan, 2.0, 1.0], 1.0, id="NaN is not the least"),
        pytest.param("min", [nan, None], nan, id="unless there is nothing else"),
        pytest.param("max", [nan, 2.0, 1.0], nan, id="it is the most"),
    ],
)
def test_aggregates(kind: str, values: list[float | None], want: float | None) -> None:
    step = Window(0, Key(("s",)), 10, 10, 0, (("n", "count", ""), ("f", kind, "f"), ("v", "sum", "v")))
    assert_same(results(step, *(row(f=f) for f in values)), [(len(values), 0, "x", want, None)])


def test_the_result_of_a_window_has_the_time_of_its_last_ms() -> None:
    source = stream_of(Source(((row(at=12),),)), [])
    made = stream_of(Window(0, Key(("s",)), 10, 10, 0, COUNT), [source])
    assert [one.time for one in made.rows] == [19]
    stamped = stream_of(Stamp(0), [made])
    assert [one.row["at"] for one in stamped.rows] == [19]
    assert [one.time for one in stream_of(Assign(0), [made]).rows] == [10]


X = (1, 25, "x", 0.5, 2), (2, 3, "x", -0.0, None), (3, 3, "x", 0.0, 2), (4, 25, "y", None, None)


@pytest.mark.parametrize(
    ("function", "want"),
    [
        pytest.param("Total", [(3, FAR, "('x',)", None, 4), (1, FAR, "('y',)", None, None)], id="Total"),
        pytest.param(
            "InOrder",
            [(1, 3, "x", -0.0, None), (2, 3, "x", 0.0, 2), (3, 25, "x", 0.5, 2), (1, 25, "y", None, None)],
            id="InOrder",
        ),
        pytest.param("Newest", [X[0], X[3]], id="Newest"),
        pytest.param(
            "Distinct", [(1, FAR, "('x',)", 0.5, None), (2, FAR, "('x',)", 0.0, None)], id="Distinct"
        ),
        pytest.param(
            "Buckets",
            [
                (2, 0, "{'n': 2, 'at': 3, 's': 'x', 'f': -0.0, 'v': None}", None, 0),
                (1, 20, "{'n': 1, 'at': 25, 's': 'x', 'f': 0.5, 'v': 2}", None, 2),
                (1, 20, "{'n': 4, 'at': 25, 's': 'y', 'f': None, 'v': None}", None, 2),
            ],
            id="Buckets",
        ),
    ],
)
def test_functions_with_state(function: str, want: list[tuple]) -> None:
    assert_same(results(Process(0, Key(("s",)), function), *(Row(*one) for one in X)), want)


def test_the_side_of_a_function() -> None:
    found = results(Process(0, Key(("s",)), "InOrder"), *(Row(*one) for one in X), side=True)
    assert_same(found, [(1, 3, "x", -0.0, None), (3, 25, "x", 0.5, 2), (1, 25, "y", None, None)])


@pytest.mark.parametrize(
    ("how", "latest", "want"),
    [
        pytest.param("inner", False, [*2 * [(0.0, "first"), (0.0, "zero")], (nan, "NaN")], id="inner"),
        pytest.param("inner", True, [*2 * [(0.0, "zero")], (nan, "NaN")], id="the largest label"),
        pytest.param(
            "left", True, [*2 * [(0.0, "zero")], (nan, "NaN"), (1.5, None), (None, None)], id="left"
        ),
    ],
)
def test_joins(how: str, latest: bool, want: list[tuple[float | None, str | None]]) -> None:
    """All of equal keys, of which -0.0 and 0.0 are some; null meets nothing; the row stays as it is."""
    table = ((0.0, "first"), (-0.0, "zero"), (nan, "NaN"), (None, "null"))
    floats = [-0.0, 0.0, nan, 1.5, None]
    found = results(Join(0, "f", how, table, latest), *(row(f=f) for f in floats))
    signs = iter([-0.0, -0.0, 0.0, 0.0] if not latest else [-0.0, 0.0])
    assert_same(found, [(0, 0, f"x+{s}", next(signs) if f == 0 else f, None) for f, s in want])


@pytest.mark.parametrize(
    ("at", "most"), [([], 0), ([1, 2, 2], 0), ([5, 3, 4, 9, 2], 7), ([-3, -5], 2)], ids=str
)
def test_disorder(at: list[int], most: int) -> None:
    assert disorder([row(at=one) for one in at]) == most


def test_the_bound_of_files_is_that_of_each_unless_they_are_in_order() -> None:
    files = ((row(at=5), row(at=3)), (row(at=0),), ())
    assert Source(files).bound == 2
    assert Source(files, in_order=True).bound == 5
    assert Source(files, kind="static").bound == 5


PRINTED = Pipeline(
    (
        Source(((row(1, 5, "x", -0.0, 2), row(2, 3)), ())),
        Window(0, Key(("s",)), 10, 5, 0, COUNT),
        Process(0, Key(("f",)), "InOrder"),
        Side(2),
    ),
    frozenset({0}),
)


def test_streams_that_nothing_reads_have_a_sink() -> None:
    assert PRINTED.written() == [0, 1, 3]
    assert {name: len(rows) for name, rows in expected(PRINTED).items()} == {"a": 2, "b": 3, "d": 2}


def test_a_printed_pipeline_is_a_program() -> None:
    run = subprocess.run([sys.executable, "-c", str(PRINTED)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for name, rows in expected(PRINTED).items():
        after = run.stdout.partition(f"{name} out\n")[2].splitlines()[: len(rows)]
        assert sorted(line.strip() for line in after) == sorted(map(text, rows))
