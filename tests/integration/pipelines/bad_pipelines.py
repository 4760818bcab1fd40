"""Pipelines that users get wrong; the command line runs them from this folder."""

from __future__ import annotations

import os

import pyarrow as pa

import unistream as us

ROW = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms"))])
BY_AT = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")


def numbers(env: us.Environment, rows: int = 100, rate: float | None = None) -> us.DataStream:
    columns = {"id": us.datagen.Sequential(), "at": us.datagen.EventTime()}
    source = us.DatagenSource(columns, rows=rows, rows_per_second=rate, seed=1)
    return env.from_source(source, BY_AT, name="numbers").uid("numbers")


def to_lake(stream: us.DataStream) -> None:
    stream.sink_to(us.DeltaSink(os.environ["LAKE"])).uid("lake")


def good(env: us.Environment) -> None:
    to_lake(numbers(env))


def kafka(env: us.Environment) -> None:
    source = us.KafkaSource(
        bootstrap_servers=os.environ["BOOTSTRAP"], topic=os.environ["TOPIC"], schema=ROW, bounded=True
    )
    to_lake(env.from_source(source, BY_AT, name="orders").uid("orders"))


def no_timestamp_column(env: us.Environment) -> None:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=10)
    to_lake(env.from_source(source, BY_AT, name="numbers").uid("numbers"))


def duplicate_uid(env: us.Environment) -> None:
    to_lake(numbers(env).filter(us.col("id") > 5).uid("numbers"))


def parallelism_above_max(env: us.Environment) -> None:
    env.set_max_parallelism(4)
    to_lake(numbers(env).with_columns(twice=us.col("id") * 2).uid("twice").set_parallelism(5))


def user_function_raises(env: us.Environment) -> None:
    def invert(row: dict[str, int]) -> dict[str, float]:
        return {"inverse": 1 / (row["id"] - 42)}

    to_lake(numbers(env).map(invert, returns={"inverse": pa.float64()}).name("invert").uid("invert"))


def schema_does_not_fit(env: us.Environment) -> None:
    to_lake(numbers(env).select(id=us.col("id").cast(pa.string())).uid("text"))
