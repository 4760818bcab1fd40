"""State larger than the memory for it survives the death of a worker; the full size is a benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMORY_MB = 32
TIMEOUT_S = 240.0


def test_state_that_does_not_fit_into_memory_comes_back_after_a_kill() -> None:
    command = [sys.executable, "-m", "benchmarks.large_state", "--gb", "0.1", "--memory-mb", str(MEMORY_MB)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.returncode == 0, f"lost, doubled or wrong keys, or no end at all:\n{run.stderr[-4000:]}"
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["stored_mb"] > 2 * MEMORY_MB
