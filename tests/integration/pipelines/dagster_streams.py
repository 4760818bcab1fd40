"""A code location for tests with a daemon and a webserver: many streams, each with a table of its own.

Settings come from the environment: LAKE; KAFKA (the broker of the streams into topics; empty: they cannot
run); CLUSTER (options, as JSON, by which a cluster of several masters is found; empty: the only one that
runs); BROKEN (what is wrong with the definitions; empty: nothing).
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

import unistream as us
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

LAKE = Path(os.environ["LAKE"])
START_MS = 1_767_225_600_000  # 2026-01-01
RATE = 500  # rows/s
STEP_MS = 7_200  # of event time between two rows: an hour in a second
CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "parallelism.default": "1",
    "heartbeat.interval": "500 ms",
    **json.loads(os.environ.get("CLUSTER") or "{}"),
}
SLOW_RESTART = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "10 min",
}
COLUMNS = {"id": us.datagen.Sequential(), "at": us.datagen.EventTime(start_ms=START_MS, step_ms=STEP_MS)}


def sink_of(name: str) -> Any:
    """A topic of the name, if that says so, else a table; `appending`: whichever line of jobs writes it."""
    if "topic" in name:
        servers = os.environ.get("KAFKA") or "127.0.0.1:9"
        return us.KafkaSink(bootstrap_servers=servers, topic=name)
    return us.DeltaSink(str(LAKE / name), on_foreign="append" if "appending" in name else "refuse")


def numbers(env: us.Environment, name: str) -> None:
    """An unbounded stream of numbers into a table. The file NAME.version changes it: "broken" fails. While
    the file NAME.fails is there, the job fails with its next row; of the stream "letters" its rows fail."""
    version, fails = LAKE / f"{name}.version", LAKE / f"{name}.fails"
    text = version.read_text() if version.exists() else ""

    def checked(row: dict[str, Any]) -> bool:
        return bool((text != "broken" and not fails.exists()) or row["id"] / 0)

    by_at = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    source = us.DatagenSource(COLUMNS, rows=None, bounded=False, rows_per_second=RATE)
    rows = env.from_source(source, by_at, name="numbers").uid("numbers")
    rows = rows.filter(checked, on_error="dead-letter" if name == "letters" else "fail").name("checked")
    rows = rows.uid("checked")
    rows.sink_to(sink_of(name)).uid("lake")


def stream(
    name: str,
    key: str = "unistream",
    sink_uid: str = "lake",
    freshness: dg.FreshnessPolicy | None = None,
) -> dg.AssetsDefinition:
    """`key`: of the resource with which it runs."""

    def step(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        resource: UnistreamResource = getattr(context.resources, key)
        yield from resource.run(context, lambda env: numbers(env, name))

    declare: Callable[..., Any] = unistream_assets(
        specs=[sink_asset(name, sink_uid=sink_uid, freshness_policy=freshness)],
        name=name,
        required_resource_keys={key},
    )
    return declare(step)


DETACHED = [
    stream(name) for name in ("clicks", "ended", "daemon", "days", "below", "upgraded", "nightly", "evening")
]
GOES_ON = [
    stream(name) for name in ("topic", "lost_topic", "gone", "gone_appending", "chosen", "over", "redeployed")
]
DETACHED += [stream(name) for name in ("upkept", "saved")]
MINUTE = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=1))
DETACHED += [stream("fresh", freshness=MINUTE), stream("letters")]
CHECKS = build_stream_checks(DETACHED[-1], max_dead_letter_ratio=0.5)
ATTACHED = [
    stream(name, "attached")
    for name in (
        *("killed", "lost", "leader", "terminated", "retried", "kept"),
        *("stopped_outside", "drained_outside"),
    )
]
POLICIES = {
    "drained": {"on_terminate": "drain"},
    "cancelled": {"on_terminate": "cancel"},
    "left": {"on_terminate": "detach"},
    "late": {"terminate_timeout_s": 3.0, "config": CONFIG | SLOW_RESTART},
}
"""Options of the resource with which the stream of that name runs."""
OF_POLICIES = [stream(name, f"of_{name}") for name in POLICIES]
EMBEDDED = [stream("embedded", "embedded")]
WRONG = [stream("wrong", sink_uid="lakes")]

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-01-03:00")
hours = dg.AssetSpec("hours", deps=["days"], partitions_def=HOURS)
FOR_EACH_CLOSED = dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())


@dg.asset(deps=[hours], partitions_def=HOURS, automation_condition=FOR_EACH_CLOSED)
def summary(context: dg.AssetExecutionContext) -> None:
    """Says how many rows there are of its hour."""
    from deltalake import DeltaTable

    window = context.partition_time_window
    times = DeltaTable(str(LAKE / "days")).to_pyarrow_table(columns=["at"])["at"].to_pylist()
    rows = sum(window.start <= at < window.end for at in times)
    with (LAKE / "summary.txt").open("a") as file:
        file.write(f"{context.partition_key} {rows}\n")


@dg.asset(deps=["below"], automation_condition=dg.AutomationCondition.eager())
def report() -> None:
    """Runs while the stream goes on."""
    with (LAKE / "report.txt").open("a") as file:
        file.write("1\n")


def between(context: dg.OpExecutionContext) -> None:
    """Of a night: nobody writes."""
    with (LAKE / "between.txt").open("a") as file:
        file.write("1\n")


def held(context: dg.OpExecutionContext) -> None:
    """Works on the table of `upkept` as long as the file held.by.test is there."""
    with (LAKE / "held.txt").open("a") as file:
        file.write(f"{context.run_id}\n")
    until = time.monotonic() + 120
    while (LAKE / "held.by.test").exists() and time.monotonic() < until:
        time.sleep(0.1)


DEFAULTS = {
    "target": "remote",
    "config": CONFIG,
    "heartbeat_interval_s": 0.5,
    "first_checkpoint_timeout_s": 20.0,
}


def resource(**options: Any) -> UnistreamResource:
    return UnistreamResource(**{**DEFAULTS, **options})


def named(name: str) -> dg.AssetsDefinition:
    return next(one for one in DETACHED if one.op.name == name)


nightly = build_drain_and_resume_schedule(named("nightly"), "* * * * *", between=between, drain=False)
upkept = build_drain_and_resume_schedule(named("upkept"), "0 3 1 1 *", between=held, drain=False)
saved = build_savepoint_schedule(named("saved"), "0 3 1 1 *", savepoint_dir=str(LAKE / "saved.savepoints"))

if os.environ.get("BROKEN") == "partitions":
    unistream_assets(
        specs=[
            sink_asset("daily", sink_uid="lake", partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
        ]
    )

defs = dg.Definitions(
    assets=[*DETACHED, *GOES_ON, *ATTACHED, *OF_POLICIES, *EMBEDDED, *WRONG, hours, summary, report],
    asset_checks=[CHECKS],
    resources={
        "unistream": resource(),
        "attached": resource(mode="attached"),
        "embedded": resource(target="local"),
        **{f"of_{name}": resource(mode="attached", **options) for name, options in POLICIES.items()},
    },
    sensors=[
        build_commit_sensor(DETACHED, partitions=[hours], minimum_interval_seconds=1),
        build_reconciling_sensor(
            ATTACHED, resource="attached", silent_after_s=4.0, minimum_interval_seconds=1
        ),
        build_reconciling_sensor(
            [],
            operations=[upkept, saved],
            name="operations",
            silent_after_s=4.0,
            minimum_interval_seconds=1,
        ),
        nightly.sensor,
        upkept.sensor,
        dg.AutomationConditionSensorDefinition(
            "automation",
            target=dg.AssetSelection.assets("summary", "report"),
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        ),
    ],
    schedules=[
        build_stop_with_savepoint_schedule(named("evening"), "* * * * *"),
        nightly.schedule,
        upkept.schedule,
        saved,
    ],
    executor=dg.in_process_executor,
)
