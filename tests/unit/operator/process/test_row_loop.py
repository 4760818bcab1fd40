"""The loops around `process_element`: each row with its position and key, whatever its columns are."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.columns.column_values import ROWS_AT_ONCE
from unistream.model.elements import Batch
from unistream.operator.process.row_loop import RowsByKey, loop_over_keys, rows_of

ODD = ["a b", "", "{x}", "'", "\\", "{{", "v0", "rows", "place", "context", "' + str(1/0) + '"]


def records_of(names: list[str], rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(n, n + rows)) for n, _ in enumerate(names)], names=names)


def world() -> tuple[Any, Any, list[Any], Any]:
    """A context, a collector, what was seen, and a function that sees."""
    context = SimpleNamespace(current=None)
    out = SimpleNamespace(place=SimpleNamespace(position=-1))
    seen: list[Any] = []

    def process(row: dict[str, Any], given: Any, to: Any) -> None:
        assert (given, to) == (context, out)
        seen.append((out.place.position, context.current, row))

    return context, out, seen, process


@pytest.mark.parametrize("rows", [0, 1, ROWS_AT_ONCE + 1, BATCH_ROWS_MAX + 1])
@pytest.mark.parametrize("names", [["n"], ["a", "b"], ODD], ids=["one", "two", "odd"])
def test_of_any_keys(names: list[str], rows: int) -> None:
    batch, keys = Batch(records_of(names, rows)), [f"key {n % 3}" for n in range(rows)]
    context, out, seen, process = world()
    current: list[str] = []
    loop_over_keys(names)(rows_of(batch, keys), process, context, out, current.append)
    assert seen == list(zip(range(rows), keys, batch.records.to_pylist(), strict=True))
    assert current == keys


@pytest.mark.parametrize(
    ("names", "keys"),
    [(["n"], ["n"]), (["a", "b"], ["b"]), (["a", "b", "c"], ["c", "a"]), (ODD, ODD[3:6]), (ODD, ODD)],
    ids=["only the key", "one", "two", "odd", "all"],
)
def test_of_one_key_after_the_other(names: list[str], keys: list[str]) -> None:
    """The rows of a batch are taken from one iterator: none is lost where a key ends, and each has the values
    of its key in their places."""
    sizes = [3, 1, ROWS_AT_ONCE]
    of_key = np.repeat([5, 6, 7], sizes)
    records = records_of(names, len(of_key))
    for name in keys:
        place = names.index(name)
        records = records.set_column(place, name, pa.array(of_key * 10 + place))
    context, out, seen, process = world()
    rows = RowsByKey(records, keys, records.take(pa.array([0, 3, 4])))
    for key, size, key_values in zip("abc", sizes, rows.key_values, strict=True):
        context.current = key
        rows.loop(islice(rows.others, size), process, context, out, key_values)
    current = np.repeat(list("abc"), sizes).tolist()
    assert seen == list(zip(range(len(of_key)), current, records.to_pylist(), strict=True))


@pytest.mark.parametrize(
    "key",
    [
        pa.array([{"a": 1}, {"a": 1}]),
        pa.array([[1], [1]]),
        pa.array([{"a": [1]}, {"a": [1]}]),
    ],
    ids=["struct", "list", "list in a struct"],
)
def test_a_key_that_a_row_may_change_is_no_other_rows(key: pa.Array) -> None:
    context, out, _, _ = world()
    seen: list[Any] = []

    def process(row: dict[str, Any], *_: Any) -> None:
        seen.append(repr(row["k"]))
        row["k"].clear()

    records = pa.record_batch({"k": key, "n": [1, 2]})
    rows = RowsByKey(records, ["k"], records.slice(0, 1))
    rows.loop(rows.others, process, context, out, rows.key_values[0])
    assert seen == [repr(value) for value in key.to_pylist()]


def test_a_value_that_is_returned_is_refused_at_its_row() -> None:
    records = records_of(["n"], 5)
    context, out, _, _ = world()

    def process(row: dict[str, int], *_: Any) -> str | None:
        return "a row" if row["n"] == 3 else None

    with pytest.raises(TypeError, match=r"returned 'a row', which would be lost"):
        loop_over_keys(["n"])(rows_of(Batch(records), list("abcde")), process, context, out, lambda _: None)
    assert out.place.position == 3
    out.place.position = -1
    rows = RowsByKey(records, [], records.slice(0, 1))
    with pytest.raises(TypeError, match=r"returned 'a row', which would be lost"):
        rows.loop(rows.others, process, context, out, rows.key_values[0])
    assert out.place.position == 3
