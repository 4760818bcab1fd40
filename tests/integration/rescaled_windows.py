"""A keyed pipeline whose tables show every row that was lost or doubled, for tests that rescale it.

    rows (6 splits) ── key_by ── 10 s windows ── Delta "windows"
                  └───────────────────────────── Delta "rows"

What was generated is known, so the rows are compared with it, and the windows with what DuckDB makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import unistream as us
from tests.eventually import WAIT_S
from tests.integration import crash_runs
from tests.modes import STREAMING
from unistream.client.embedded.embedded_cluster import EmbeddedJobClient
from unistream.model.job_info import JobInfo

ROWS = 120_000
SLOW = 2_000  # rows/s: a minute to the end, which no job comes to before its stop
FAST = 150_000
SPLITS = 6  # more than any parallelism, so that readers change hands
KEYS = 40
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, KEYS),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=10, disorder_ms=500),
}


def pipeline(
    lake: Path, parallelism: int, *, windows_in: str = "default", rate: float = SLOW
) -> us.Environment:
    env = us.Environment(
        {**STREAMING, "parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"}
    )
    source = us.DatagenSource(COLUMNS, rows=ROWS, seed=7, rows_per_second=rate, splits=SPLITS)
    crash_runs.keyed_windows(env, lake, source, windows_in=windows_in)
    return env


def all_running(info: JobInfo) -> bool:
    return info.state == "RUNNING" and {subtask.state for subtask in info.subtasks} == {"RUNNING"}


def stop_and_finish(job: EmbeddedJobClient, lake: Path, go_on: Callable[[str], EmbeddedJobClient]) -> JobInfo:
    """Stops the slow job; a fast one reads the rest. Every row is there once, every window is right.

    Args:
        go_on: Submits the fast job from a savepoint.

    Returns:
        The last status of the slow job.
    """
    job.wait_for(all_running, WAIT_S)
    savepoint = job.stop(target=str(lake / "savepoints"))
    assert job.wait(WAIT_S).state == "FINISHED"
    result = go_on(savepoint).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    crash_runs.assert_exact(lake, ROWS)
    return job.status()
