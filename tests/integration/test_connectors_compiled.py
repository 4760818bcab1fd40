"""Machine code of loops: made by one process of a machine, whoever else needs it at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.eventually import WAIT_S

LOOP = """
from unistream.connector.common.compiled import compiled

@compiled("i8[:]")
def total(numbers):
    found = 0
    for number in numbers:
        found += number
    return found
"""

SCRIPT = """
import logging, pathlib, sys
import numpy as np
from unistream.base.compiling import PROCESS
from unistream.connector.common import machine_code
from unistream.connector.common.machine_code import loops

machine_code._PACKAGE = pathlib.Path(sys.argv[1])  # what a test compiles stays out of the checkout

class Told(logging.Handler):
    def emit(self, record):
        told.append((record.getMessage().partition(":")[0].partition(" seconds")[0], PROCESS.is_under_way))

told = []
logging.getLogger("unistream").addHandler(Told())
logging.getLogger("unistream").setLevel(logging.INFO)
print("ready", flush=True)
sys.stdin.readline()
assert loops("of_a_test").total(np.array([1, 2, 3])) == 6
assert "numba" not in sys.modules
print(int(bool(told)), told)
"""


TOLD = [("event=compiling loops=of_a_test", True), ("event=compiled", False)]


def started(script: Path, environment: dict[str, str], package: str = "package") -> Any:
    return subprocess.Popen(
        [sys.executable, str(script), str(script.parent / package)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_one_process_compiles_and_the_others_take_its_code(tmp_path: Path) -> None:
    (tmp_path / "of_a_test.py").write_text(LOOP, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "UNISTREAM_LOOPS": str(tmp_path / "kept")}
    processes = [started(tmp_path / "script.py", environment) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    found = sorted(process.communicate(timeout=WAIT_S)[0] for process in processes)
    assert found == ["0 []\n", "0 []\n", f"1 {TOLD}\n"], "who compiles says so, before and afterwards"


def test_without_a_folder_that_can_be_written_a_process_compiles_for_itself(tmp_path: Path) -> None:
    (tmp_path / "of_a_test.py").write_text(LOOP, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "file").touch()
    nowhere = {name: str(tmp_path / "file" / "below") for name in ("UNISTREAM_LOOPS", "XDG_CACHE_HOME")}
    process = started(tmp_path / "script.py", {**os.environ, **nowhere}, package="file/below")
    assert process.communicate("go\n", timeout=WAIT_S)[0] == f"ready\n1 {TOLD}\n"


def test_loops_that_need_numba_at_run_time_are_refused(tmp_path: Path) -> None:
    allocating = LOOP.replace("found = 0", "found = [0][0]")
    (tmp_path / "of_a_test.py").write_text(allocating, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "package")],
        env={**os.environ, "UNISTREAM_LOOPS": str(tmp_path / "kept")},
        check=False,
        capture_output=True,
        input="go\n",
        text=True,
        timeout=WAIT_S,
    )
    assert done.stderr.splitlines()[-1].startswith(
        "unistream.base.errors.ConfigError: what reads records cannot be compiled on this machine: "
    )
