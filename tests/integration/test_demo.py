"""The main job as a user runs it: Kafka, a Dagster materialisation, a kill, a drain, the truth."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.crash_runs import OF_MATRIX
from tests.integration.marked import marked

ROOT = Path(__file__).resolve().parents[2]
DEMO_TIMEOUT_S = 900


def start(tmp_path: Path, mark: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dagster_defs.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "TEST_MARK": mark, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.kafka
@pytest.mark.timeout(DEMO_TIMEOUT_S + 30)
@pytest.mark.parametrize(
    "target", [pytest.param("local", marks=OF_MATRIX), pytest.param("spark", marks=pytest.mark.spark)]
)
def test_the_demo_finds_no_difference(tmp_path: Path, mark: str, target: str) -> None:
    with start(tmp_path, mark, "--target", target, "--seconds", "8") as demo:
        output, _ = demo.communicate(timeout=DEMO_TIMEOUT_S)
    assert demo.returncode == 0, output
    last = output.rstrip().splitlines()[-1]
    assert last == "demo ok: 336776 events, 116077 result rows, 0 lost, 0 duplicated, 1 restarts", output


@pytest.mark.kafka
def test_ctrl_c_ends_everything_that_was_started(tmp_path: Path, mark: str) -> None:
    with start(tmp_path, mark, "--target", "local", "--seconds", "60") as demo:
        assert demo.stdout is not None
        before: list[str] = []
        while not (before and "publishing" in before[-1]):
            before.append(demo.stdout.readline())
            assert before[-1], f"the demo ended too early: {''.join(before)}"
        assert len(marked(mark)) >= 5, "the demo, the broker, Dagster and two workers"
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=WAIT_S)
    assert demo.returncode == 130, output
    assert "everything that was started has been stopped" in output
