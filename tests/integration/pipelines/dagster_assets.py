"""A code location for the tests: pipelines whose assets are materialised in processes of their own.

Settings come from the environment: LAKE, ROWS (empty: without end), FAIL_AT, ON_TERMINATE, MODE,
EXECUTOR, TARGET, JOBMANAGER, CLIENT_TIMEOUT, HEARTBEAT_S, SILENT_AFTER_S (empty: no sensor looks for dead
runs).
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

import unistream as us
from unistream.dagster import (
    UnistreamResource,
    build_reconciling_sensor,
    sink_asset,
    unistream_assets,
)

RATE = 3_000  # rows/s: checkpoints fall into a bounded run
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, 10),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10),
}


def rows(env: us.Environment) -> us.DataStream:
    count = os.environ.get("ROWS")
    source = us.DatagenSource(
        COLUMNS, rows=int(count) if count else None, bounded=bool(count), rows_per_second=RATE, seed=1
    )
    by_at = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    return env.from_source(source, by_at, name="numbers").uid("numbers")


def good(env: us.Environment) -> None:
    lake = Path(os.environ["LAKE"])
    numbers = rows(env)
    numbers.sink_to(us.DeltaSink(str(lake / "rows"))).uid("raw")
    numbers.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count()).uid(
        "window"
    ).sink_to(us.DeltaSink(str(lake / "windows"))).uid("windows")


def to_iceberg(env: us.Environment) -> None:
    folder = os.environ["LAKE"]
    lake = {"type": "sql", "uri": f"sqlite:///{folder}.db", "warehouse": folder}
    rows(env).sink_to(us.IcebergSink("lake.rows", catalog_properties=lake)).uid("iceberg")


def raises(env: us.Environment) -> None:
    fail_at = int(os.environ.get("FAIL_AT", "42"))

    def invert(row: dict[str, int]) -> dict[str, float]:
        if row["id"] == fail_at:
            logging.getLogger("numbers").warning("row %s has no inverse", fail_at)
        return {"inverse": 1 / (row["id"] - fail_at)}

    rows(env).map(invert, returns={"inverse": pa.float64()}).name("invert").uid("invert").sink_to(
        us.DeltaSink(str(Path(os.environ["LAKE"]) / "rows"))
    ).uid("raw")


def bad_column(env: us.Environment) -> None:
    rows(env).key_by("nothing").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())


SPECS = [
    sink_asset("rows", sink_uid="raw", kinds={"deltalake"}),
    sink_asset("windows", sink_uid="windows", kinds={"deltalake"}),
]


@unistream_assets(specs=SPECS)
def numbers(
    context: dg.AssetExecutionContext, unistream: UnistreamResource
) -> Iterator[dg.MaterializeResult[Any]]:
    yield from unistream.run(context, good)


@unistream_assets(specs=[sink_asset("snapshots", sink_uid="iceberg", kinds={"iceberg"})])
def snapshots(
    context: dg.AssetExecutionContext, unistream: UnistreamResource
) -> Iterator[dg.MaterializeResult[Any]]:
    yield from unistream.run(context, to_iceberg)


@unistream_assets(specs=[sink_asset("inverses", sink_uid="raw")])
def failing(
    context: dg.AssetExecutionContext, unistream: UnistreamResource
) -> Iterator[dg.MaterializeResult[Any]]:
    yield from unistream.run(context, raises)


@unistream_assets(specs=[sink_asset("nothing", sink_uid="raw")])
def unbuildable(
    context: dg.AssetExecutionContext, unistream: UnistreamResource
) -> Iterator[dg.MaterializeResult[Any]]:
    yield from unistream.run(context, bad_column)


def resource(**options: Any) -> UnistreamResource:
    return UnistreamResource(
        target=os.environ.get("TARGET", "local"),
        jobmanager=os.environ.get("JOBMANAGER", ""),
        mode=os.environ.get("MODE", "auto"),
        heartbeat_interval_s=float(os.environ.get("HEARTBEAT_S", "10")),
        config={
            "execution.runtime-mode": "STREAMING",
            "execution.checkpointing.interval": "300 ms",
            "client.timeout": os.environ.get("CLIENT_TIMEOUT", "60 s"),
        },
        **options,
    )


def sensors() -> list[dg.SensorDefinition]:
    silent_after_s = os.environ.get("SILENT_AFTER_S")
    if not silent_after_s:
        return []
    return [
        build_reconciling_sensor([numbers], silent_after_s=float(silent_after_s), minimum_interval_seconds=1)
    ]


defs = dg.Definitions(
    assets=[numbers, failing, unbuildable],
    jobs=[dg.define_asset_job("stream", dg.AssetSelection.assets("rows", "windows"))],
    sensors=sensors(),
    resources={"unistream": resource(on_terminate=os.environ.get("ON_TERMINATE", "stop_with_savepoint"))},
    executor=dg.multiprocess_executor if os.environ.get("EXECUTOR") else dg.in_process_executor,
)
