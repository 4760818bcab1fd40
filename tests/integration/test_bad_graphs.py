"""Graphs that cannot run are refused by a command in a process of its own, before anything is made.

All cases are in the unit tests of the command line; here are two of them, end to end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S

PIPELINES = Path(__file__).parent / "pipelines"
BAD_INPUT = 2


@pytest.mark.parametrize(
    ("function", "arguments", "texts"),
    [
        pytest.param("apart", (), ["'numbers'", "'filter", "co-located"], id="co-location across regions"),
        pytest.param(
            "good",
            ("-D", "jobmanager.scheduler=best"),
            ["jobmanager.scheduler: 'best' is not one of default, adaptive"],
            id="a strategy that does not exist",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_refused_by_name(
    tmp_path: Path, function: str, arguments: tuple[str, ...], texts: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unistream.cli", "run", f"bad_graphs:{function}", "-t", "local", *arguments],
        cwd=PIPELINES,
        check=False,
        env={**os.environ, "LAKE": str(tmp_path / "lake"), "UNISTREAM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == BAD_INPUT, done.stderr
    for text in texts:
        assert text in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "lake").exists()
    assert not list((tmp_path / "home").glob("work/*")), "a cluster was started"
