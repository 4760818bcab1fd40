"""Rows that are given to a simulation come as they are, or are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.testing.simulation.job import _table

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])


def test_columns_that_are_left_out_are_null() -> None:
    assert _table([{"n": 1}], SCHEMA, "in").to_pylist() == [{"n": 1, "name": None}]


@pytest.mark.parametrize(
    ("row", "text"),
    [({"n": 1.5}, "cannot hold: 1.5"), ({"n": 1, "m": 2}, r"columns \(n, name, m\), wanted \(n, name\)")],
    ids=["a fraction", "a column too many"],
)
def test_what_would_be_lost_is_refused(row: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=rf"row 1 of source 'in' does not fit its schema: .*{text}"):
        _table([{"n": 1}, row], SCHEMA, "in")
