"""The report of a worker of pytest-xdist that ends within a test says how, and where (`tests/crashed.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.eventually import WAIT_S

CONFTEST = """
from tests import crashed

def pytest_configure(config):
    config.pluginmanager.register(crashed)
"""
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


def test_how_a_worker_has_ended(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "1", "--rootdir", str(tmp_path)),
            *("-p", "xdist", "-p", "no:cacheprovider", "-W", "error", "test_x.py"),
        ],
        cwd=tmp_path,
        env={
            **environment,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "ResourceWarning" not in done.stderr
    for test, how in (
        ("segfault", "ended by SIGSEGV"),
        ("kill", "ended by SIGKILL"),
        ("exit", "exit code 3"),
    ):
        assert f"crashed while running 'test_x.py::test_{test}': {how}\n" in said
    places = [said.find(line) for line in ("Fatal Python error", "Current thread", "in string_at", "in wait")]
    assert -1 < places[0] < places[1] < places[2] < places[3], "the thread that crashed comes first"
