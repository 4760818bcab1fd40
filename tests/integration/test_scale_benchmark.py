"""The benchmark of one master at tiny sizes: every scenario comes to its end, and nothing is left. Figures
are for the benchmark; what it counts is the same on any machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.scale_measure import Row, Wanted, table

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240.0
TINY = (
    "--workers", "4", "--subtasks", "40", "--width", "3", "--jobs", "3",
    "--interval", "0.5", "--steady", "0.5", "--timeout", "120",
)  # fmt: skip


def scale(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A run with its temporary files in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *words],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def steps(folder: Path, *scenarios: str) -> dict[str, dict[str, Any]]:
    """The rows of these scenarios, by their steps."""
    run = scale(folder, *scenarios, *TINY, "--json")
    assert run.returncode == 0, run.stderr[-4000:]
    assert [process.pid for process in psutil.process_iter() if _has_folder(process, folder)] == []
    assert list(folder.glob("us-scale-*")) == []
    return {row["step"]: row for row in map(json.loads, run.stdout.splitlines())}


def _has_folder(process: psutil.Process, folder: Path) -> bool:
    """It was started by a run in `folder`."""
    try:
        return bool(process.environ().get("TMPDIR") == str(folder))
    except psutil.Error:
        return False  # it has ended, or is another user's


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_a_wide_job_is_deployed_takes_a_checkpoint_loses_a_region_and_is_cancelled(tmp_path: Path) -> None:
    found = steps(tmp_path, "heartbeats", "subtasks")
    assert found["workers register"]["workers"] == 4
    assert found["each beats"]["heartbeats"] >= 4
    assert found["deployed"]["subtasks"] == 40
    assert found["deployed"]["sql_rows"] >= 40, "an attempt of each"
    assert found["a checkpoint"]["metadata_mb"] > 0
    assert found["one region fails"]["subtasks"] == 20, "two regions, of which one runs again"
    assert found["cancelled"]["wire_mb"]["to workers: CancelTask"] > 0


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_an_edge_between_all_subtasks_and_many_jobs_that_the_next_master_takes_over(tmp_path: Path) -> None:
    found = steps(tmp_path, "exchange", "jobs")
    assert found["all restart"]["channels"] == 9
    assert found["submitted"]["jobs"] == 3
    assert found["takeover"]["jobs"] == 3
    assert found["takeover"]["seconds"] >= found["takeover"]["leads_s"]
    assert found["submitted"]["ha_writes"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["heartbeet"], "there is no scenario 'heartbeet'; there are heartbeats, ", id="no scenario"
        ),
        pytest.param(["--workers", "0"], "'0' is not a whole number from 1 on", id="no workers"),
        pytest.param(["--timeout", "soon"], "'soon' is not a number of seconds above 0", id="no number"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path: Path, words: list[str], said: str) -> None:
    run = scale(tmp_path, *words)
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_a_figure_that_is_missed_is_named() -> None:
    row = Row(
        scenario="jobs",
        step="takeover",
        units=500,
        unit="jobs",
        seconds=61.0,
        figures={"cpu_s": 5.0, "core_share": 0.1, "peak_mb": 300, "sql_rows": 1, "ha_writes": 2},
        wanted=(Wanted(figure="seconds", below=60), Wanted(figure="core_share", below=1)),
    )
    assert row.missed == ["jobs, takeover: seconds 61.00, wanted below 60"]
    assert row.as_json()["kept"] is False
    assert table([row]).row_count == 1
