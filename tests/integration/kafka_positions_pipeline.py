"""A bounded job from the offsets of a group: `unistream run kafka_positions_pipeline:build`."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

import unistream as us

BOOTSTRAP, TOPIC, GROUP = "TEST_KAFKA", "TEST_TOPIC", "TEST_GROUP"
SCHEMA = pa.schema([("i", pa.int64()), ("name", pa.string())])


def build(env: us.Environment) -> None:
    source = us.KafkaSource(
        bootstrap_servers=os.environ[BOOTSTRAP],
        topic=os.environ[TOPIC],
        schema=SCHEMA,
        starting_offsets="committed",
        stopping_offsets="latest",
        properties={"group.id": os.environ[GROUP]},
    )
    pipeline(env, source, Path.cwd() / "rows")


def pipeline(env: us.Environment, source: us.KafkaSource, folder: Path) -> None:
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "topic").uid("topic")
    rows.sink_to(us.DeltaSink(str(folder), on_foreign="append")).uid("rows")
