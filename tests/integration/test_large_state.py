"""State larger than the memory for it survives the death of workers: here at a few named places, with `make
crash-matrix` at each of them and in full size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.large_state import POINTS
from tests.integration.crash_runs import MATRIX, assert_none_forgotten, points_in_code, runs

ROOT = Path(__file__).parents[2]
MEMORY_MB = 32
TIMEOUT_S = 240.0
NOT_REACHED = {
    "file.staged": "its only sink is a table",
    "file.before_record": "its only sink is a table",
    "file.recorded": "its only sink is a table",
    "file.first_renamed": "its only sink is a table",
}


FEW = (
    "snapshot.half_written",
    "snapshot.uploaded",
    "committer.before_commit",
    "restore.before_commit",
    "delta.appended",
)


def test_every_named_place_of_a_worker_kills() -> None:
    """Masters are killed in other jobs: this one's is the process that looks at the result."""
    of_masters = [point for point, folders in points_in_code().items() if folders == {"master"}]
    assert_none_forgotten([*POINTS, *NOT_REACHED, *of_masters])


@pytest.mark.timeout(TIMEOUT_S + 10)
@pytest.mark.parametrize("points", runs(POINTS if MATRIX else FEW), ids=lambda points: points[-1])
def test_state_that_does_not_fit_into_memory_comes_back_after_kills(points: tuple[str, ...]) -> None:
    size = ("--gb", "0.1", "--memory-mb", str(MEMORY_MB), "--interval-ms", "500")
    command = [sys.executable, "-m", "benchmarks.large_state", *size, "--points", ",".join(points)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.returncode == 0, f"lost, doubled or wrong keys, or no end at all:\n{run.stderr[-4000:]}"
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["stored_mb"] > 2 * MEMORY_MB
    assert found["restarts"] >= 1
