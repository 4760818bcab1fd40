"""A job that copies a growing Delta table into another: `unistream run delta_growth_pipeline:build`."""

from __future__ import annotations

import os
from pathlib import Path

import unistream as us

TABLE = "TEST_TABLE"


def build(env: us.Environment) -> None:
    pipeline(env, source(Path(os.environ[TABLE])), Path.cwd() / "rows", "table")


def source(table: Path, **options: object) -> us.DeltaSource:
    return us.DeltaSource(str(table), bounded=False, discovery_interval_ms=100, **options)  # type: ignore[arg-type]


def pipeline(env: us.Environment, given: us.DeltaSource, folder: Path, uid: str) -> None:
    rows = env.from_source(given, us.WatermarkStrategy.no_watermarks(), "table").uid(uid)
    rows.sink_to(us.DeltaSink(str(folder))).uid("rows")
