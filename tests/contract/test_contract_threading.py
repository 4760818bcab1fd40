"""The private name of `threading` that `client.at_exit` uses: a hook that runs while executors still work."""

from __future__ import annotations

import subprocess
import sys

from tests.eventually import WAIT_S

PROGRAM = """
import atexit, threading
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(1)
pool.submit(print, "begun", flush=True).result()
threading._register_atexit(lambda: print("hook", pool.submit(str, 1).result(), flush=True))
atexit.register(lambda: print("atexit", flush=True))
"""


def test_a_hook_runs_while_executors_still_work_and_before_atexit() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout.splitlines() == ["begun", "hook 1", "atexit"]
