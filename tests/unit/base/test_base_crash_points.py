"""When crash points count; what else they do is tested with the master's parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from unistream.base.crash_points import AFTER_VARIABLE, POINTS_VARIABLE

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
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "past\npast\n")
