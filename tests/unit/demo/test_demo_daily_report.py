"""What is said of each day, and its picture."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from dagster_defs.daily_report import by_day, days_in, picture_of


def hours(*rows: tuple[str, int, float]) -> pa.Table:
    return pa.table(
        {
            "window_start": pa.array([datetime.fromisoformat(row[0]) for row in rows], pa.timestamp("us")),
            "flights": [row[1] for row in rows],
            "delay_mean": [row[2] for row in rows],
        }
    )


def test_days_are_in_order_and_their_mean_is_by_flight() -> None:
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
        {"day": date(2013, 1, 3), "flights": 7, "delay_mean": 1.0},
    ]
    assert by_day(hours()).num_rows == 0


def test_only_hours_of_the_month_are_in_it(tmp_path: Path) -> None:
    table = hours(
        ("2013-01-31T23:00", 1, 0.0),
        ("2013-02-01T00:00", 2, 0.0),
        ("2013-02-28T23:00", 3, 0.0),
        ("2013-03-01T00:00", 4, 0.0),
    )
    column = pa.field("window_start", pa.timestamp("us", "UTC"))
    write_deltalake(str(tmp_path / "t"), table.set_column(0, column, table[0].cast(column.type)))
    found = days_in(str(tmp_path / "t"), datetime(2013, 2, 1, tzinfo=UTC), datetime(2013, 3, 1, tzinfo=UTC))
    assert found["flights"].to_pylist() == [2, 3]


def test_the_picture_is_a_png_in_markdown() -> None:
    days = [date(2013, 1, 1) + timedelta(number) for number in range(100)]
    text = picture_of(pa.table({"day": days, "flights": [7] * 100, "delay_mean": [1.5] * 100}))
    start = "![flights a day](data:image/png;base64,"
    assert text.startswith(start)
    content = base64.b64decode(text.removeprefix(start).removesuffix(")"), validate=True)
    assert content.startswith(b"\x89PNG")
    assert len(content) < 100_000, "it is stored with each event"
