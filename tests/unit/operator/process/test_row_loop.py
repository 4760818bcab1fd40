"""The loops around `process_element`: each row with its position, time and key, whatever its columns are."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from unistream.model.column_values import ROWS_AT_ONCE
from unistream.model.elements import Batch
from unistream.operator.process.row_loop import loops, rows_of

ODD = ["a b", "", "{x}", "'", "\\", "{{", "v0", "rows", "place", "context", "' + str(1/0) + '"]


def batch_of(names: list[str], rows: int, *, timed: bool) -> Batch:
    records = pa.record_batch([pa.array(range(n, n + rows)) for n, _ in enumerate(names)], names=names)
    return Batch(records, pa.array(range(1000, 1000 + rows)) if timed else None)


def world() -> tuple[Any, Any, list[Any], Any]:
    """A context, a collector, what was seen, and a function that sees."""
    context = SimpleNamespace(timestamp=-1, current=None)
    out = SimpleNamespace(place=SimpleNamespace(position=-1))
    seen: list[Any] = []

    def process(row: dict[str, Any], given: Any, to: Any) -> None:
        assert (given, to) == (context, out)
        seen.append((out.place.position, context.current, context.timestamp, row))

    return context, out, seen, process


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("rows", [0, 1, ROWS_AT_ONCE + 1])
@pytest.mark.parametrize("names", [["n"], ["a", "b"], ODD], ids=["one", "two", "odd"])
def test_of_any_keys(names: list[str], rows: int, timed: bool) -> None:
    batch, keys = batch_of(names, rows, timed=timed), [f"key {n % 3}" for n in range(rows)]
    context, out, seen, process = world()
    current: list[str] = []
    _, loop = loops(tuple(names))
    loop(rows_of(batch, keys), process, context, out, current.append)
    times = range(1000, 1000 + rows) if timed else [None] * rows
    assert seen == list(zip(range(rows), keys, times, batch.records.to_pylist(), strict=True))
    assert current == keys


@pytest.mark.parametrize("names", [["n"], ODD], ids=["one", "odd"])
def test_of_one_key_after_the_other(names: list[str]) -> None:
    """The rows of a batch are taken from one iterator: none is lost where a key ends."""
    batch = batch_of(names, 10, timed=True)
    context, out, seen, process = world()
    loop, _ = loops(tuple(names))
    rows = rows_of(batch)
    for key, size in (("a", 3), ("b", 1), ("c", 6)):
        context.current = key
        loop(islice(rows, size), process, context, out)
    expected = zip(range(10), "aaabcccccc", range(1000, 1010), batch.records.to_pylist(), strict=True)
    assert seen == list(expected)


@pytest.mark.parametrize("which", [0, 1], ids=["one key", "any keys"])
def test_a_value_that_is_returned_is_refused_at_its_row(which: int) -> None:
    batch = batch_of(["n"], 5, timed=True)
    context, out, _, _ = world()
    keys, switch = ([list("abcde")], [lambda _: None]) if which else ([], [])

    def process(row: dict[str, int], *_: Any) -> str | None:
        return "a row" if row["n"] == 3 else None

    with pytest.raises(TypeError, match=r"returned 'a row', which would be lost"):
        loops(("n",))[which](rows_of(batch, *keys), process, context, out, *switch)
    assert (out.place.position, context.timestamp) == (3, 1003)
