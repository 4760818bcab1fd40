"""The code location that people start from: archive, the table rebuilt from it, report, and upkeep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from dagster_defs import definitions
from dagster_defs.demo.compare import compare
from dagster_defs.demo.data import airlines_csv, messages
from dagster_defs.flights import FlightsConfig
from dagster_defs.history import publish, table_of
from dagster_defs.tables import read_table
from tests.eventually import WAIT_S, eventually
from tests.integration.test_dagster_runs import instance  # noqa: F401 - a fixture
from tests.support.servers.kafka_tools import produce_values
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.dagster import UnistreamResource

pytestmark = [pytest.mark.kafka]

FLIGHTS = 8_000  # of the first days of January
INTO_FEBRUARY = 28_000
JANUARY = "2013-01-01"
CONFIG = {"execution.checkpointing.interval": "500 ms"}
KEYS = ["origin", "carrier", "window_start"]
VALUES = ["flights", "delay_mean", "delay_max"]


@pytest.fixture(scope="module")
def year() -> pa.Table:
    return messages()


@pytest.fixture
def sent(year: pa.Table) -> pa.Table:
    return year.slice(0, FLIGHTS)


def send(config: FlightsConfig, flights: pa.Table) -> None:
    values = [value.encode() for value in flights["value"].to_pylist()]
    produce_values(config.bootstrap, config.topic, values)


class Location:
    """Materialises assets of the code location for one topic and lake."""

    def __init__(self, instance: dg.DagsterInstance, config: FlightsConfig) -> None:  # noqa: F811
        self.instance = instance
        self.config = config
        self.cursor: str | None = None

    def materialize(self, asset: Any, **arguments: Any) -> dg.ExecuteInProcessResult:
        config = self.config
        lake = definitions.FlightsLake(
            bootstrap=config.bootstrap, airlines=config.airlines, lake=config.lake, topic=config.topic
        )
        unistream = UnistreamResource(target="remote", config=CONFIG)
        resources = {"unistream": unistream, "lake": lake}
        return dg.materialize([asset], instance=self.instance, resources=resources, **arguments)

    def tick(self) -> None:
        """Of the sensor of commits, as Dagster's daemon runs it."""
        resource = UnistreamResource(target="remote", config=CONFIG)
        (sensor,) = [one for one in definitions.defs.sensors or () if one.name == "unistream_commits"]
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"unistream": resource}
        ) as context:
            result = sensor.evaluate_tick(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor = result.cursor

    def closed(self) -> set[str]:
        """Months that are complete."""
        return set(self.instance.get_materialized_partitions(definitions.flights_months.key))

    def metadata(self, asset: Any, **arguments: Any) -> dict[str, Any]:
        (event,) = self.materialize(asset, **arguments).get_asset_materialization_events()
        return {name: value.value for name, value in event.materialization.metadata.items()}


@pytest.fixture
def config(kafka: str, topic: str, sent: pa.Table, tmp_path: Path) -> FlightsConfig:
    config = FlightsConfig(kafka, airlines_csv(), str(tmp_path / "lake"), topic)
    send(config, sent)
    return config


@pytest.fixture
def location(
    session: RestClient,
    config: FlightsConfig,
    instance: dg.DagsterInstance,  # noqa: F811
) -> Iterator[Location]:
    yield Location(instance, config)
    cancel_all(session)


def cancel_all(session: RestClient) -> None:
    for job in session.jobs():
        if job.ended_ms is None:
            session.client(JobId(job.job)).cancel()
    eventually(lambda: all(job.ended_ms is not None for job in session.jobs()), "all have ended", WAIT_S)


def hourly(sent: pa.Table) -> pa.Table:
    """What the table has to hold, by DuckDB."""
    rows = pa.Table.from_pylist([json.loads(value) for value in sent["value"].to_pylist()])
    with duckdb.connect() as connection:
        connection.register("sent", rows)
        return connection.sql("""
            SELECT origin, carrier, date_trunc('hour', scheduled::TIMESTAMP) AS window_start,
                   count(*) AS flights, avg(dep_delay) AS delay_mean, max(dep_delay) AS delay_max
            FROM sent WHERE dep_delay IS NOT NULL GROUP BY ALL
        """).to_arrow_table()


def message_of(result: dg.ExecuteInProcessResult, step: str) -> str:
    """Why the step has failed."""
    failure = result.failure_data_for_node(step)
    assert failure is not None
    assert failure.error is not None
    return failure.error.message


def archived(lake: str) -> int:
    return sum(pq.read_metadata(path).num_rows for path in Path(lake, "flights_archive").rglob("part-*"))


def test_the_history_is_rebuilt_from_the_archive_as_often_as_one_likes(
    location: Location, sent: pa.Table
) -> None:
    lake = location.config.lake
    assert location.materialize(definitions.flights_archive).success
    eventually(lambda: archived(lake) == FLIGHTS, "all flights are in the archive", WAIT_S, 0.5)
    for version in range(2):
        metadata = location.metadata(definitions.flights_history)
        assert metadata["unistream/table_version"] == str(version)
        table = read_table(f"{lake}/flights_history")
        assert compare(table, hourly(sent), keys=KEYS, values=VALUES).is_none, version
        assert metadata["dagster/row_count"] == len(table)
    (run,) = table_of(location.config, "any").parent.iterdir()
    assert publish(location.config, run.name) == 1, "a retry behind its replacement changes nothing"


def test_a_history_without_an_archive_says_so_and_changes_nothing(location: Location) -> None:
    result = location.materialize(definitions.flights_history, raise_on_error=False)
    assert "flights_archive" in message_of(result, "flights_history")
    assert not DeltaTable.is_deltatable(f"{location.config.lake}/flights_history")


def departed(flights: pa.Table, month: str) -> int:
    """Flights of the month that were not cancelled."""
    rows = (json.loads(value) for value in flights["value"].to_pylist())
    return sum(row["dep_delay"] is not None and row["scheduled"].startswith(month) for row in rows)


def test_a_month_is_reported_when_it_is_complete_and_upkeep_changes_no_row(
    location: Location, session: RestClient, year: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = location.config.lake
    table = f"{lake}/flights_hourly"
    early = location.materialize(definitions.flights_report, partition_key=JANUARY, raise_on_error=False)
    assert "materialize flights_hourly first" in message_of(early, "flights_report")
    assert location.materialize(definitions.flights_tables).success
    eventually(lambda: DeltaTable.is_deltatable(table), "some hours are visible", WAIT_S, 0.5)
    location.tick()
    assert location.closed() == set()
    version = DeltaTable(table).version()
    send(location.config, year.slice(FLIGHTS, INTO_FEBRUARY - FLIGHTS))
    eventually(lambda: DeltaTable(table).version() > version, "more hours are", WAIT_S, 0.5)
    eventually(lambda: location.tick() or location.closed() == {JANUARY}, "January is over", WAIT_S, 0.5)
    metadata = location.metadata(definitions.flights_report, partition_key=JANUARY)
    assert (metadata["days"], metadata["flights"]) == (31, departed(year.slice(0, INTO_FEBRUARY), "2013-01"))
    assert metadata["plot"].startswith("![flights a day](data:image/png;base64,")
    monkeypatch.setenv("FLIGHTS_LAKE", lake)
    cancel_all(session)
    files, rows = len(DeltaTable(table).file_uris()), len(read_table(table))
    definitions.compact(dg.build_op_context())
    assert len(DeltaTable(table).file_uris()) < files
    assert len(read_table(table)) == rows
