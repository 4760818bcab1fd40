"""Machine code of loops: made by one process of a machine, whoever else needs it at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.eventually import WAIT_S

LOOP = """
import logging, sys
from unistream.base.compiling import PROCESS
from unistream.connector.common.compiled import compiled, one_compiles

@compiled
def total(numbers):
    found = 0
    for number in numbers:
        found += number
    return found

class Told(logging.Handler):
    def emit(self, record):
        told.append((record.getMessage().partition(":")[0].partition(" seconds")[0], PROCESS.is_under_way))

told = []
logging.getLogger("unistream").addHandler(Told())
logging.getLogger("unistream").setLevel(logging.INFO)
print("ready", flush=True)
sys.stdin.readline()
with one_compiles(total):
    total((1, 2, 3))
print(sum(total.stats.cache_misses.values()), told)
"""


TOLD = [("event=compiling loop=total", True), ("event=compiled", False)]


def started(script: Path, environment: dict[str, str]) -> Any:
    return subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_one_process_compiles_and_the_others_take_its_code(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP, encoding="utf-8")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    processes = [started(tmp_path / "loop.py", environment) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    found = sorted(process.communicate(timeout=WAIT_S)[0] for process in processes)
    assert found == ["0 []\n", "0 []\n", f"1 {TOLD}\n"], "who compiles says so, before and afterwards"
