"""A code location for the tests: a stream whose rows came wrong from its topic and right from its history.

    history: right ─┐
                    ├─ HybridSource (all history is behind its fence) ─ 10 s windows ─ Delta, by minute
    topic: value + 1┘

Settings come from the environment: KAFKA, TOPIC, FOLDER, BEGIN_MS.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import os
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa

import unistream as us
from unistream.dagster import (
    UnistreamResource,
    build_backfill_asset,
    build_commit_sensor,
    sink_asset,
    unistream_assets,
)

SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("ms"))]
)
CONFIG = {"execution.checkpointing.interval": "300 ms", "parallelism.default": "2"}
MINUTES = dg.TimeWindowPartitionsDefinition(
    start="1970-01-01T00:16",
    end="1970-01-01T00:30",  # a page of the UI lists them all
    fmt="%Y-%m-%dT%H:%M",
    cron_schedule="* * * * *",
)


def build(env: us.Environment) -> None:
    live = us.KafkaSource(bootstrap_servers=os.environ["KAFKA"], topic=os.environ["TOPIC"], schema=SCHEMA)
    history = us.FileSource(f"{os.environ['FOLDER']}/history")
    fence = int(os.environ["BEGIN_MS"])
    source = us.HybridSource(history, live, fence=fence, timestamp_column="at")
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    windows = env.from_source(source, times, "rows").uid("rows").key_by("key")
    totals = windows.window(us.TumblingEventTimeWindows.of("10 s"))
    totals.aggregate(n=us.count(), total=us.sum("value")).uid("window").sink_to(
        us.DeltaSink(f"{os.environ['FOLDER']}/lake")
    ).uid("lake")


@unistream_assets(specs=[sink_asset("totals", sink_uid="lake")], name="flights")
def flights(
    context: dg.AssetExecutionContext, unistream: UnistreamResource
) -> Iterator[dg.MaterializeResult[Any]]:
    yield from unistream.run(context, build)


minutes = build_backfill_asset(flights, build, key="minutes", partitions_def=MINUTES)
commits = build_commit_sensor([flights], partitions=[minutes])


def resource() -> UnistreamResource:
    return UnistreamResource(target="remote", config=CONFIG)


defs = dg.Definitions(
    assets=[flights, minutes],
    sensors=[commits],
    resources={"unistream": resource()},
    executor=dg.in_process_executor,
)
