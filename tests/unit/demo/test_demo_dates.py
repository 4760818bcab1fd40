"""When flights of the demo depart, and when they are published."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from dagster_defs.demo.data import a_year_ago
from dagster_defs.demo.producer import PACE_ROWS, waits

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("today", "first"),
    [
        pytest.param(date(2026, 11, 30), date(2025, 11, 1), id="a month begins"),
        pytest.param(date(2028, 2, 29), date(2027, 2, 1), id="on a day that no other year has"),
    ],
)
def test_a_year_of_flights_comes_up_to_the_present(today: date, first: date) -> None:
    assert a_year_ago(today) == first


@pytest.mark.parametrize(
    ("at_once_until", "now", "then"),
    [
        pytest.param(None, 0, [0.0, 10.0, 20.0, 30.0], id="at a steady rate, whatever time it is"),
        pytest.param(date(2026, 1, 1), 9, [0.0, 10.0, 20.0, 30.0], id="nothing is there at the start"),
        pytest.param(date(2026, 1, 3), 9, [0.0, 0.0, 0.0, 10.0], id="two days are there at the start"),
        pytest.param(date(2026, 2, 1), 9, [0.0, 0.0, 0.0, 0.0], id="all are there at the start"),
        pytest.param(date(2026, 1, 3), 2, [0.0, 0.0, 0.0, 86_400.0], id="none comes before it departs"),
    ],
)
def test_when_flights_are_published(at_once_until: date | None, now: int, then: list[float]) -> None:
    """Four days of flights, which all take 40 s; `now` in days behind the first."""
    days = [FIRST + timedelta(days=day) for day in range(4) for _ in range(PACE_ROWS)]
    scheduled = pa.chunked_array([pa.array(days, pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))])
    now_s = (FIRST + timedelta(days=now)).timestamp()
    assert waits(scheduled, 40.0, at_once_until, now_s) == then
