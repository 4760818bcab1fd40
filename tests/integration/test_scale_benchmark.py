"""The benchmark of one master at tiny sizes: every scenario comes to its end, and nothing is left. Figures
are for the benchmark; what it counts is the same on any machine."""

from __future__ import annotations

import json
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


def scale(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.scale", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def steps(*scenarios: str) -> dict[str, dict[str, Any]]:
    """The rows of these scenarios, by their steps."""
    run = scale(*scenarios, *TINY, "--json")
    assert run.returncode == 0, run.stderr[-4000:]
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [process.pid for process in psutil.process_iter() if _is_ours(process)] == []
    return {row["step"]: row for row in rows}


def _is_ours(process: psutil.Process) -> bool:
    """It was started by the benchmark, which this process has started."""
    try:
        return "benchmarks.scale_" in " ".join(process.cmdline()) and process.parent() is None
    except psutil.Error:
        return False  # it has ended


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_a_wide_job_is_deployed_takes_a_checkpoint_loses_a_region_and_is_cancelled() -> None:
    found = steps("heartbeats", "subtasks")
    assert found["workers register"]["workers"] == 4
    assert found["each beats"]["heartbeats"] >= 4
    assert found["deployed"]["subtasks"] == 40
    assert found["deployed"]["sql_rows"] >= 40, "an attempt of each"
    assert found["a checkpoint"]["metadata_mb"] > 0
    assert found["one region fails"]["subtasks"] == 20, "two regions, of which one runs again"
    assert found["cancelled"]["wire_mb"]["to workers: CancelTask"] > 0


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_an_edge_between_all_subtasks_and_many_jobs_that_the_next_master_takes_over() -> None:
    found = steps("exchange", "jobs")
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
def test_bad_input_gets_one_sentence(words: list[str], said: str) -> None:
    run = scale(*words)
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
