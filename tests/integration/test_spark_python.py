"""Spark's workers run another Python than the program: one that has no unistream."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from tests.eventually import WAIT_S

pytestmark = pytest.mark.spark

PROGRAM = """
    from pyspark.sql import SparkSession
    import unistream as us

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    env = us.Environment({"execution.runtime-mode": "MODE"}, target="spark")
    env.from_collection([{"n": 1}]).print()
    try:
        env.execute()
    except us.UnistreamError as error:
        print("REFUSED", error)
    finally:
        spark.stop()
"""


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_an_interpreter_without_unistream_is_named_at_once(mode: str, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    python = bare / "bin" / "python"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("MODE", mode)],
        cwd=tmp_path,  # Python looks for modules where it is started
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        | {"PYSPARK_PYTHON": str(python), "UNISTREAM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=WAIT_S,  # slots are waited for twice as long; most of this is Java on a busy machine
        check=False,
    )
    prefix = "no worker can start: " if mode == "STREAMING" else ""
    assert (
        f"{prefix}the Python of Spark's workers, {python}, cannot run unistream "
        "(ModuleNotFoundError: No module named 'unistream'): install unistream for it, or set PYSPARK_PYTHON"
    ) in done.stdout, done.stderr
    assert done.stdout.startswith("REFUSED job 'unistream job'")
    assert done.stderr.count("event=worker_lost") == (1 if mode == "STREAMING" else 0)
