"""A job that copies a growing topic into a folder of files: `unistream run kafka_growth_pipeline:build`."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

import unistream as us

BOOTSTRAP, TOPIC, INTERVAL = "TEST_KAFKA", "TEST_TOPIC", "TEST_INTERVAL_MS"
SCHEMA = pa.schema([("i", pa.int64()), ("name", pa.string())])


def build(env: us.Environment) -> None:
    source = us.KafkaSource(
        bootstrap_servers=os.environ[BOOTSTRAP],
        topic=os.environ[TOPIC],
        schema=SCHEMA,
        partition_discovery_interval_ms=int(os.environ.get(INTERVAL, "100")),
    )
    pipeline(env, source, Path.cwd() / "rows", "topic")


def pipeline(env: us.Environment, source: us.KafkaSource, folder: Path, uid: str) -> None:
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "topic").uid(uid)
    rows.sink_to(us.DeltaSink(str(folder))).uid("rows")
