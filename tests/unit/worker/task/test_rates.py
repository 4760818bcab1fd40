"""Rates of a task, from one report to the next."""

from __future__ import annotations

import pytest

from unistream.model.messages import TaskMetrics
from unistream.worker.task.run import RATE_WINDOW_MS, Rates


@pytest.mark.parametrize(
    ("reports", "busy", "records"),
    [
        pytest.param([(0, 0, 0)], 0, None, id="the first report has no rate of records"),
        pytest.param([(0, 0, 0), (10_000, 5_000, 200_000)], 500, 20_000, id="since the report before"),
        pytest.param([(0, 0, 0), (10_000, 0, 0)], 0, 0, id="nothing came: that is known"),
        pytest.param(
            [(0, 0, 0), (10_000, 5_000, 200_000), (10_000 + RATE_WINDOW_MS // 2, 5_500, 900_000)],
            *(500, 20_000),
            id="a report that comes soon has the rates before it",
        ),
        pytest.param([(0, 0, 0), (2_000, 2_000, 3)], 1_000, 1, id="in whole records"),
    ],
)
def test_rates(reports: list[tuple[int, int, int]], busy: int, records: int | None) -> None:
    rates = Rates()
    for now_ms, busy_ms, records_in in reports:
        found = rates.added_to(TaskMetrics(busy_ms=busy_ms, records_in=records_in), now_ms)
    assert (found.busy_per_s, found.records_in_per_s) == (busy, records)
