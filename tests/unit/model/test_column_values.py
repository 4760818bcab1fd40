"""Rows as dicts are those of Arrow, whatever their columns are called."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.model.columns.column_values import ROWS_AT_ONCE, row_values


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["n"], id="one"),
        pytest.param(["a", "b", "c"], id="several"),
        pytest.param(["a b", "", "{x}", "'", '"', "\\", "\n", "{{", "ä", "v0", "rows", "None"], id="odd"),
        pytest.param([f"c{number}" for number in range(300)], id="many"),
    ],
)
def test_names_of_columns(names: list[str]) -> None:
    records = pa.record_batch([pa.array([place, None]) for place, _ in enumerate(names)], names=names)
    assert list(row_values(records)) == records.to_pylist()
    assert [list(row) for row in row_values(records)] == [names, names]


def test_a_name_that_is_code_is_a_name() -> None:
    names = ["' + str(1/0) + '", "v0}, exit(), {'"]
    records = pa.record_batch([pa.array([1]), pa.array([2])], names=names)
    assert list(row_values(records)) == [dict(zip(names, (1, 2), strict=True))]


@pytest.mark.parametrize("rows", [0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_rows_beyond_those_at_once(rows: int) -> None:
    numbers = pa.array([None if n % 7 == 3 else n for n in range(rows)], pa.int64())
    records = pa.record_batch({"n": numbers, "text": numbers.cast(pa.string())}).slice(rows // 3)
    assert list(row_values(records)) == records.to_pylist()
