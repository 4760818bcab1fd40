"""The code location: flights from Kafka in tables by hour and day, and what is made of them. Settings come
from the environment.

    flights_topic ─┬─ flights ─────────► flights_hourly ──► flights_months ──► flights_report   a picture
                   │                └──► flights_cancelled    closed by the watermark
                   └─ flights_archive ─► files ───────────► flights_history   rebuilt by a batch job
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow.compute as pc
from deltalake import DeltaTable

from dagster_defs.daily_report import days_in, picture_of
from dagster_defs.flights import FlightsConfig, flights
from dagster_defs.history import archive, history, is_computed, publish
from unistream.dagster import (
    UnistreamResource,
    build_commit_sensor,
    build_drain_and_resume_schedule,
    build_reconciling_sensor,
    build_savepoint_schedule,
    build_stop_with_savepoint_schedule,
    build_stream_checks,
    sink_asset,
    unistream_assets,
)


class FlightsLake(dg.ConfigurableResource[Any]):
    """Addresses of the flights pipeline; see `FlightsConfig`."""

    bootstrap: str
    airlines: str
    lake: str
    topic: str = "flights"

    def flights(self) -> FlightsConfig:
        """For the pipelines."""
        return FlightsConfig(
            bootstrap=self.bootstrap, airlines=self.airlines, lake=self.lake, topic=self.topic
        )


RETRY = "dagster/retry_number"
GROUP = "flights"
OWNERS = ["team:flights"]
IS_FRESH = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1), warn_window=timedelta(minutes=15))


@unistream_assets(
    name="flights",
    specs=[
        sink_asset(
            "flights_hourly",
            sink_uid="lake",
            kinds={"kafka", "deltalake"},
            deps=["flights_topic"],
            freshness_policy=IS_FRESH,
            group_name=GROUP,
            owners=OWNERS,
        ),
        sink_asset(
            "flights_cancelled",
            sink_uid="lake-cancelled",
            kinds={"kafka", "deltalake"},
            deps=["flights_topic"],
            group_name=GROUP,
            owners=OWNERS,
        ),
    ],
)
def flights_tables(
    context: dg.AssetExecutionContext, unistream: UnistreamResource, lake: FlightsLake
) -> Iterator[dg.MaterializeResult[Any]]:
    """Departures and cancellations, kept up to date while the run lasts; ends with a drain."""
    yield from unistream.run(context, lambda env: flights(env, lake.flights()), name="flights")


@unistream_assets(
    name="flights_archive",
    specs=[
        sink_asset(
            "flights_archive",
            sink_uid="archive",
            kinds={"kafka", "parquet"},
            deps=["flights_topic"],
            group_name=GROUP,
            owners=OWNERS,
        )
    ],
)
def flights_archive(
    context: dg.AssetExecutionContext, unistream: UnistreamResource, lake: FlightsLake
) -> Iterator[dg.MaterializeResult[Any]]:
    """All messages in Parquet files, a folder for each day; goes on for ever."""
    yield from unistream.run(context, lambda env: archive(env, lake.flights()))


@unistream_assets(
    name="flights_history",
    specs=[
        sink_asset(
            "flights_history",
            sink_uid="history",
            kinds={"deltalake"},
            deps=["flights_archive"],
            group_name=GROUP,
            owners=OWNERS,
        )
    ],
)
def flights_history(
    context: dg.AssetExecutionContext, unistream: UnistreamResource, lake: FlightsLake
) -> Iterator[dg.MaterializeResult[Any]]:
    """The hours of the whole archive, computed again by a batch job; replaces the table when it is done."""
    config, run, metadata = lake.flights(), first_of_retries(context), dict[str, Any]()
    if not is_computed(config, run):
        for result in unistream.run(context, lambda env: history(env, config, run)):
            metadata |= result.metadata or {}
    if not is_computed(config, run):
        raise dg.Failure("the archive has no flight that has departed yet", allow_retries=False)
    version = publish(config, run)
    metadata["unistream/table_version"] = str(version)
    yield dg.MaterializeResult(
        "flights_history", metadata=metadata, data_version=dg.DataVersion(str(version))
    )


def first_of_retries(context: dg.AssetExecutionContext) -> str:
    """The run itself, or the one whose retry by Dagster it is."""
    run = context.run
    while RETRY in run.tags and run.parent_run_id is not None:
        parent = context.instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            break
        run = parent
    return run.run_id


MONTHS = dg.MonthlyPartitionsDefinition(
    dg.EnvVar("FLIGHTS_SINCE").get_value(default="2013-01-01") or "2013-01-01"
)

flights_months = dg.AssetSpec(
    "flights_months",
    deps=["flights_hourly"],
    partitions_def=MONTHS,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"deltalake"},
    description="The hours of a month, complete: the watermark of the stream has passed its end.",
)


@dg.asset(
    deps=[flights_months],
    partitions_def=MONTHS,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"python"},
    # By itself `eager` looks only at the month of the wall's clock; flights of the past close earlier ones.
    automation_condition=dg.AutomationCondition.eager().without(
        dg.AutomationCondition.in_latest_time_window()
    ),
)
def flights_report(context: dg.AssetExecutionContext, lake: FlightsLake) -> dg.MaterializeResult[Any]:
    """Flights and their mean delay by day, of each month that is complete; the picture is in the metadata."""
    table = f"{lake.lake}/flights_hourly"
    if not DeltaTable.is_deltatable(table):
        raise dg.Failure(
            f"there is no table {table} yet: materialize flights_hourly first", allow_retries=False
        )
    month = context.partition_time_window
    days = days_in(table, month.start, month.end)
    metadata: dict[str, Any] = {"days": len(days), "flights": pc.sum(days["flights"]).as_py() or 0}
    if len(days):
        metadata["plot"] = dg.MetadataValue.md(picture_of(days))
    return dg.MaterializeResult(metadata=metadata)


def compact(context: dg.OpExecutionContext) -> None:
    """Few large files instead of many small ones, while no job writes."""
    lake = dg.EnvVar("FLIGHTS_LAKE").get_value()
    if not lake:
        raise dg.Failure("FLIGHTS_LAKE is not set: it names the folder of the tables", allow_retries=False)
    for name in ("flights_hourly", "flights_cancelled"):
        if not DeltaTable.is_deltatable(f"{lake}/{name}"):
            context.log.info("%s: there is no such table in %s yet", name, lake)
            continue
        done = DeltaTable(f"{lake}/{name}").optimize.compact()
        context.log.info("%s: %s files instead of %s", name, done["numFilesAdded"], done["numFilesRemoved"])


def _settings() -> dict[str, str]:
    return dict(json.loads(dg.EnvVar("UNISTREAM_CONFIG").get_value(default="{}") or "{}"))


# Stopped, not drained: no window fires before it is complete.
maintenance = build_drain_and_resume_schedule(flights_tables, "0 3 * * *", between=compact, drain=False)
in_the_evening = build_stop_with_savepoint_schedule(flights_tables, "0 22 * * *")
during_the_day = build_savepoint_schedule(flights_tables, "0 */6 * * *")

defs = dg.Definitions(
    assets=[
        dg.AssetSpec("flights_topic", kinds={"kafka"}, group_name=GROUP, owners=OWNERS),
        flights_tables,
        flights_archive,
        flights_history,
        flights_months,
        flights_report,
    ],
    resources={
        "unistream": UnistreamResource(
            target=dg.EnvVar("UNISTREAM_TARGET").get_value(default="spark") or "spark", config=_settings()
        ),
        "lake": FlightsLake(
            bootstrap=dg.EnvVar("FLIGHTS_BOOTSTRAP"),
            airlines=dg.EnvVar("FLIGHTS_AIRLINES"),
            lake=dg.EnvVar("FLIGHTS_LAKE"),
        ),
    },
    sensors=[
        build_commit_sensor([flights_tables, flights_archive], partitions=[flights_months]),
        build_reconciling_sensor(
            [flights_tables, flights_archive, flights_history],
            operations=[maintenance, in_the_evening, during_the_day],
        ),
        maintenance.sensor,
        dg.AutomationConditionSensorDefinition(
            "automation", target=dg.AssetSelection.all(), default_status=dg.DefaultSensorStatus.RUNNING
        ),
    ],
    schedules=[
        in_the_evening,
        during_the_day,
        maintenance.schedule,
    ],
    asset_checks=[
        build_stream_checks(flights_tables, max_checkpoint_age="10 min", max_restarts=5),
        build_stream_checks(flights_archive),
    ],
    executor=dg.in_process_executor,
)
