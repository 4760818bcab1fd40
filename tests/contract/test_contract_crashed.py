"""The report of a worker of pytest-xdist that ends within a test says how, and where (`tests/crashed.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S

TESTS = """
import ctypes, os, signal, threading

def test_segfault():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    ctypes.string_at(0)

def test_kill():
    os.kill(os.getpid(), signal.SIGKILL)

def test_exit():
    os._exit(3)
"""


@pytest.mark.parametrize(
    ("test", "how", "stacks"),
    [
        (
            "segfault",
            "ended by SIGSEGV",
            ["Fatal Python error: Segmentation fault", "in string_at", "test_x.py"],
        ),
        ("kill", "ended by SIGKILL", []),
        ("exit", "exit code 3", []),
    ],
)
def test_how_a_worker_has_ended(test: str, how: str, stacks: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(TESTS)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "1", "--rootdir", str(tmp_path)),
            *("-p", "tests.crashed", "-p", "no:cacheprovider", f"test_x.py::test_{test}"),
        ],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"crashed while running 'test_x.py::test_{test}': {how}\n" in done.stdout
    last = 0
    for line in stacks:
        assert (last := done.stdout.find(line, last)) > 0, done.stdout
