"""A code location for the tests: a bounded pipeline of one day a run, from files to a table.

Settings come from the environment: LAKE, TARGET.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import os
from functools import partial
from pathlib import Path

import dagster as dg
import pyarrow as pa

import unistream as us
from unistream.dagster import UnistreamResource, sink_asset, unistream_assets

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
TOTALS = pa.schema([("day", pa.string()), ("user", pa.int64()), ("rows", pa.int64())])


def build(env: us.Environment, days: list[str]) -> None:
    """How many rows each user has on each of the days."""
    lake = Path(os.environ["LAKE"])
    source = us.FileSource([str(lake / "in" / f"{day}.parquet") for day in days])
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    totals = rows.key_by("day", "user").process(Total(), returns=TOTALS).uid("totals")
    totals.sink_to(
        us.DeltaSink(
            str(lake / "out"), mode="overwrite-partitions", partition_by=["day"], on_foreign="append"
        )
    ).uid("lake")


class Total(us.KeyedProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        context.register_event_time_timer(0)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        day, user = context.key
        out.emit({"day": day, "user": user, "rows": context.state(self.seen).value()})


@unistream_assets(
    specs=[sink_asset("totals", sink_uid="lake")],
    partitions_def=DAYS,
    bounded=True,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def totals(context: dg.AssetExecutionContext, unistream: UnistreamResource):
    yield from unistream.run(context, partial(build, days=list(context.partition_keys)))


defs = dg.Definitions(
    assets=[totals],
    resources={"unistream": UnistreamResource(target=os.environ.get("TARGET", "local"))},
    executor=dg.in_process_executor,
)
