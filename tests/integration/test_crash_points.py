"""When crash points count; what else they do is tested with the master's parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S
from unistream.base.crash_points import (
    AFTER_VARIABLE,
    POINTS_VARIABLE,
    SIGNAL_VARIABLE,
    TESTING_VARIABLE,
    crash_points,
)
from unistream.base.errors import ConfigError

COMES_BY_TWICE = """
import sys
from unistream.base.crash_points import crash_point
crash_point("here")
print("past", flush=True)
open(sys.argv[1], "x").close()
crash_point("elsewhere")
print("past", flush=True)
crash_point("here")
"""


def test_a_point_counts_nothing_before_the_file_exists(tmp_path: Path) -> None:
    after = str(tmp_path / "now")
    ended = subprocess.run(
        [sys.executable, "-c", COMES_BY_TWICE, after],
        env={**os.environ, POINTS_VARIABLE: "here:1", AFTER_VARIABLE: after},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "past\npast\n")


def test_a_process_may_stand_still_instead_and_go_on(tmp_path: Path) -> None:
    coming = subprocess.Popen(
        [sys.executable, "-c", COMES_BY_TWICE, str(tmp_path / "now")],
        env={**os.environ, POINTS_VARIABLE: "elsewhere", SIGNAL_VARIABLE: "STOP"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert coming.stdout is not None
    assert coming.stdout.readline() == "past\n"
    os.waitid(os.P_PID, coming.pid, os.WSTOPPED)
    assert psutil.Process(coming.pid).status() == psutil.STATUS_STOPPED
    coming.send_signal(signal.SIGCONT)
    out, _ = coming.communicate(timeout=WAIT_S)
    assert (coming.returncode, out) == (0, "past\n")


def test_another_signal_is_refused_when_a_process_starts() -> None:
    environment = {POINTS_VARIABLE: "here", TESTING_VARIABLE: "1", SIGNAL_VARIABLE: "USR1"}
    with pytest.raises(ConfigError, match="UNISTREAM_CRASH_SIGNAL is one of KILL, STOP"):
        crash_points(environment)
