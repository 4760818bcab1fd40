"""What is said of each day, and its picture."""

from __future__ import annotations

import base64
from datetime import date, datetime, timedelta

import pyarrow as pa

from dagster_defs.daily_report import by_day, picture_of


def hours(*rows: tuple[str, int, float]) -> pa.Table:
    return pa.table(
        {
            "window_start": pa.array([datetime.fromisoformat(row[0]) for row in rows], pa.timestamp("us")),
            "flights": [row[1] for row in rows],
            "delay_mean": [row[2] for row in rows],
        }
    )


def test_days_are_whole_and_in_order_and_their_mean_is_by_flight() -> None:
    found = by_day(
        hours(
            ("2013-01-03T00:00", 7, 1.0),
            ("2013-01-02T23:00", 1, 40.0),
            ("2013-01-01T00:00", 5, -2.0),
            ("2013-01-02T04:00", 3, 0.0),
        )
    )
    assert found.to_pylist() == [
        {"day": date(2013, 1, 1), "flights": 5, "delay_mean": -2.0},
        {"day": date(2013, 1, 2), "flights": 4, "delay_mean": 10.0},
    ], "hours of the newest day are still to come"


def test_without_a_whole_day_there_is_nothing() -> None:
    assert by_day(hours()).num_rows == 0
    assert by_day(hours(("2013-01-02T04:00", 3, 0.0))).num_rows == 0


def test_the_picture_is_a_png_in_markdown() -> None:
    days = [date(2013, 1, 1) + timedelta(number) for number in range(100)]
    text = picture_of(pa.table({"day": days, "flights": [7] * 100, "delay_mean": [1.5] * 100}))
    start = "![flights a day](data:image/png;base64,"
    assert text.startswith(start)
    content = base64.b64decode(text.removeprefix(start).removesuffix(")"), validate=True)
    assert content.startswith(b"\x89PNG")
    assert len(content) < 100_000, "it is stored with each event"
