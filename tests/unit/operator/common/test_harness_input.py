"""What a harness of functions takes: rows in three forms, an object, a timestamp for each row or none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.testing import KeyedProcessFunctionHarness, ProcessFunctionHarness


class Twice(us.ProcessFunction):
    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"n": 2 * row["n"]})


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(pa.record_batch({"n": [1, 2]}), id="a batch"),
        pytest.param({"n": [1, 2]}, id="columns"),
        pytest.param([{"n": 1}, {"n": 2}], id="dicts"),
    ],
)
def test_rows_come_in_three_forms(rows: Any) -> None:
    with ProcessFunctionHarness(Twice()) as harness:
        harness.process(rows, timestamps=[0, 1])
        assert harness.rows() == [{"n": 2}, {"n": 4}]


def test_there_is_a_timestamp_for_each_row() -> None:
    refused = pytest.raises(ConfigError, match="1 timestamps for 2 rows")
    with ProcessFunctionHarness(Twice()) as harness, refused:
        harness.process({"n": [1, 2]}, timestamps=[0])


def test_a_class_is_no_function() -> None:
    given: Any = Twice
    with pytest.raises(ConfigError, match=r"Twice\(\), not the class itself"):
        KeyedProcessFunctionHarness(given, "n")
