"""The first rows of a stream: as many as were asked for, over batches, barriers and restores."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.operator.limit import LimitRows
from unistream.testing.harness import OperatorHarness, restore_state


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


@pytest.mark.parametrize(
    ("limit", "batches", "passed"),
    [
        (1, [(1, 2, 3)], [1]),
        (3, [(1, 2, 3)], [1, 2, 3]),
        (4, [(1, 2, 3), (4, 5), (6,)], [1, 2, 3, 4]),
        (9, [(1,), (2,)], [1, 2]),
    ],
)
def test_the_first_rows_pass(limit: int, batches: list[tuple[int, ...]], passed: list[int]) -> None:
    with OperatorHarness(LimitRows(limit)) as harness:
        for numbers in batches:
            harness.process(batch(*numbers), list(numbers))
        harness.watermark(7)
        assert [row["n"] for row in harness.rows()] == passed


@pytest.mark.parametrize("before", [0, 1, 3, 4, 6])
def test_a_restored_one_goes_on(before: int) -> None:
    """Four rows in all, wherever the snapshot was; rows behind it come again."""
    with OperatorHarness(LimitRows(4)) as harness:
        if before:
            harness.process(batch(*range(before)), list(range(before)))
        snapshot = harness.snapshot(1)
        kept = [row["n"] for row in harness.rows()]
        harness.process(batch(before), [before])
    with OperatorHarness(LimitRows(4), state=restore_state([snapshot], 1)) as harness:
        harness.process(batch(*range(before, 9)), list(range(before, 9)))
        assert [*kept, *(row["n"] for row in harness.rows())] == [0, 1, 2, 3]
