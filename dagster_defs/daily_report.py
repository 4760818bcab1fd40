"""What the table by hour says about each day of a month, with a picture."""

from __future__ import annotations

import base64
from datetime import datetime
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc

from dagster_defs.tables import read_table


def days_in(table: str, start: datetime, end: datetime) -> pa.Table:
    """Flights and their mean delay by day, in order, from `start` until before `end`.

    Columns: day (date32), flights (int64), delay_mean (minutes).
    """
    hour = pc.field("window_start")
    rows = (hour >= pa.scalar(start)) & (hour < pa.scalar(end))
    return by_day(read_table(table, ["window_start", "flights", "delay_mean"], rows))


def by_day(hours: pa.Table) -> pa.Table:
    """See `days_in`."""
    day = pc.cast(pc.floor_temporal(hours["window_start"], unit="day"), pa.date32())
    delay = pc.multiply(hours["flights"], hours["delay_mean"])
    rows = pa.table({"day": day, "flights": hours["flights"], "delay": delay})
    days = rows.group_by("day").aggregate([("flights", "sum"), ("delay", "sum")]).sort_by("day")
    mean = pc.divide(days["delay_sum"], days["flights_sum"])
    return pa.table({"day": days["day"], "flights": days["flights_sum"], "delay_mean": mean})


def picture_of(days: pa.Table) -> str:
    """A plot of the days as Markdown, which Dagster shows in the metadata."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    flights = figure.subplots()
    flights.bar(days["day"].to_pylist(), days["flights"].to_pylist(), color="#9ecae1")
    flights.set_ylabel("flights a day")
    delay = flights.twinx()
    delay.plot(days["day"].to_pylist(), days["delay_mean"].to_pylist(), color="#d94801")
    delay.set_ylabel("mean delay, minutes")
    figure.autofmt_xdate()
    content = BytesIO()
    figure.savefig(content, format="png", dpi=90)
    return f"![flights a day](data:image/png;base64,{base64.b64encode(content.getvalue()).decode()})"
