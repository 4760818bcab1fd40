"""The demo's judge must itself be right: it sees each kind of difference."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dagster_defs.demo.compare import Difference, compare

TRUTH = pa.table({"k": ["a", "b", None], "v": [1.5, 2.0, None]})


@pytest.mark.parametrize(
    ("actual", "then"),
    [
        pytest.param(TRUTH, Difference(3, 0, 0, 0, 0), id="equal tables do not differ, nulls included"),
        pytest.param(TRUTH.slice(0, 2), Difference(2, 1, 0, 0, 0), id="a missing row is lost"),
        pytest.param(
            pa.concat_tables([TRUTH, TRUTH.slice(0, 1)]),
            Difference(4, 0, 1, 0, 0),
            id="a second copy is seen",
        ),
        pytest.param(
            pa.concat_tables([TRUTH, pa.table({"k": ["z"], "v": [0.0]})]),
            Difference(4, 0, 0, 1, 0),
            id="a row that should not be there is unexpected",
        ),
        pytest.param(
            pa.table({"k": ["a", "b", None], "v": [1.5, 2.1, None]}),
            Difference(3, 0, 0, 0, 1),
            id="another value is wrong",
        ),
    ],
)
def test_compare_sees(actual: pa.Table, then: Difference) -> None:
    assert compare(actual, TRUTH, keys=["k"], values=["v"]) == then
    assert then.is_none is (actual is TRUTH)
