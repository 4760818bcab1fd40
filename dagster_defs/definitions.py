"""The code location: the flights pipeline as two assets. Settings come from the environment."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import json
from collections.abc import Iterator
from typing import Any

import dagster as dg

from dagster_defs.flights import FlightsConfig, flights
from unistream.dagster import (
    UnistreamResource,
    build_commit_sensor,
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


@unistream_assets(
    name="flights",
    specs=[
        sink_asset("flights_hourly", sink_uid="lake", kinds={"kafka", "deltalake"}, deps=["flights_topic"]),
        sink_asset(
            "flights_cancelled",
            sink_uid="lake-cancelled",
            kinds={"kafka", "deltalake"},
            deps=["flights_topic"],
        ),
    ],
)
def flights_tables(
    context: dg.AssetExecutionContext, unistream: UnistreamResource, lake: FlightsLake
) -> Iterator[dg.MaterializeResult[Any]]:
    """Departures and cancellations, kept up to date while the run lasts; ends with a drain."""
    config = FlightsConfig(bootstrap=lake.bootstrap, airlines=lake.airlines, lake=lake.lake)
    yield from unistream.run(context, lambda env: flights(env, config), name="flights")


def _settings() -> dict[str, str]:
    return dict(json.loads(dg.EnvVar("UNISTREAM_CONFIG").get_value(default="{}") or "{}"))


defs = dg.Definitions(
    assets=[dg.AssetSpec("flights_topic", kinds={"kafka"}), flights_tables],
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
    sensors=[build_commit_sensor([flights_tables]), build_reconciling_sensor([flights_tables])],
    schedules=[
        build_stop_with_savepoint_schedule(flights_tables, "0 22 * * *"),
        build_savepoint_schedule(flights_tables, "0 */6 * * *"),
    ],
    asset_checks=[build_stream_checks(flights_tables, max_checkpoint_age="10 min", max_restarts=5)],
    executor=dg.in_process_executor,
)
