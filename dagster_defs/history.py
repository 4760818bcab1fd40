"""The archive of all flights, and the table by hour computed again from it.

    Kafka ── archive ──► files ── history, a batch job ──► table of the run ── publish ──► flights_history

A batch job commits once, so the table of a run is complete as soon as it is there. Its rows take the place of
those before in one transaction. So a run may be repeated, and one that dies changes nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, write_deltalake

import unistream as us
from dagster_defs.flights import FLIGHT, STRATEGY, FlightsConfig, airlines_of, by_hour
from dagster_defs.messages import MESSAGE
from dagster_defs.tables import dataset_of

RUN = "flights.run"
"""In the log of the table: the run whose rows a version has."""


def archive(env: us.Environment, config: FlightsConfig) -> None:
    """All messages as they are, in a folder for each day of departure."""
    source = us.KafkaSource(
        bootstrap_servers=config.bootstrap,
        topic=config.topic,
        schema=MESSAGE,
        properties={"group.id": "unistream-flights-archive"},
    )
    files = us.FileSink(archive_of(config), bucket_by_time="%Y-%m-%d", time_column="scheduled")
    env.from_source(source, STRATEGY, name="flights").uid("flights").sink_to(files).uid("archive")


def history(env: us.Environment, config: FlightsConfig, run: str) -> None:
    """The same hours as in `flights`, of all that is in the archive, in the table of one run."""
    source = us.FileSource(archive_of(config), columns=FLIGHT.names)
    departures = env.from_source(source, STRATEGY, name="archive").uid("archive")
    flown = departures.filter(us.col("dep_delay").is_valid()).uid("flown")
    table = us.DeltaSink(str(table_of(config, run)), partition_by=["origin"])
    by_hour(flown, airlines_of(env, config)).sink_to(table).uid("history")


def archive_of(config: FlightsConfig) -> str:
    """The folder of the archive."""
    return f"{config.lake}/flights_archive"


def table_of(config: FlightsConfig, run: str) -> Path:
    """The table that one run computes."""
    return Path(config.lake, "_flights_history", run)


def is_computed(config: FlightsConfig, run: str) -> bool:
    """The table of the run is there, and so is complete."""
    return DeltaTable.is_deltatable(str(table_of(config, run)))


def publish(config: FlightsConfig, run: str) -> int:
    """The rows of the run's table take the place of those in `flights_history`; returns the version. Once for
    each run; tables of earlier runs are removed."""
    found, published = table_of(config, run), f"{config.lake}/flights_history"
    if not DeltaTable.is_deltatable(published) or _run_of(DeltaTable(published)) != run:
        write_deltalake(
            published,
            dataset_of(str(found)).scanner().to_reader(),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=["origin"],
            commit_properties=CommitProperties(custom_metadata={RUN: run}),
        )
    for other in found.parent.iterdir():
        if other != found:
            shutil.rmtree(other)
    return DeltaTable(published).version()


def _run_of(table: DeltaTable) -> str | None:
    """Whose rows it has; compactions do not change them."""
    return next((str(commit[RUN]) for commit in table.history() if RUN in commit), None)
