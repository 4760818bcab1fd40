"""A keyed pipeline whose tables show every row that was lost or doubled, for tests that rescale it.

    rows (6 splits) ── key_by ── 10 s windows ── Delta "windows"
                  └───────────────────────────── Delta "rows"

What was generated is known, so the rows are compared with it, and the windows with what DuckDB makes of them.
"""

from __future__ import annotations

from pathlib import Path

import unistream as us
from tests.integration import crash_runs

ROWS = 60_000
RATE = 6_000  # rows/s
SPLITS = 6  # more than any parallelism, so that readers change hands
KEYS = 40
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}


def pipeline(
    lake: Path, parallelism: int, rows: int, windows_in: str = "default", rate: float = RATE
) -> us.Environment:
    env = us.Environment({"parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"})
    source = us.DatagenSource(COLUMNS, rows=rows, seed=7, rows_per_second=rate, splits=SPLITS)
    crash_runs.keyed_windows(env, lake, source, windows_in=windows_in)
    return env


def assert_exact(lake: Path, rows: int = ROWS) -> None:
    """Every row once, every window right."""
    crash_runs.assert_exact(lake, rows)
