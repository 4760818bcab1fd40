"""A server that workers of pytest-xdist share lives until the last of them needs it no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S

ROOT = Path(__file__).parents[2]
LIMIT_S = 20  # of a test; a server starts within it
TESTS = """
import socket
import time

import pytest


def answers(address: str) -> None:
    host, port = address.split(":")
    socket.create_connection((host, int(port)), 5).close()


def test_starts_the_server_and_is_the_last_of_its_worker(s3_server: str) -> None:
    answers(s3_server)
    time.sleep(HELD_S)


def test_needs_it_for_longer_than_that_one_may_take(request: pytest.FixtureRequest) -> None:
    time.sleep(1)
    address = request.getfixturevalue("s3_server")
    time.sleep(LIMIT_S + 3)
    answers(address)
"""


@pytest.mark.parametrize("held_s", [2, 0], ids=["used by both", "which may come when it ends"])
def test_who_has_started_it_waits_for_the_others_beyond_the_limit_of_a_test(
    tmp_path: Path, held_s: int
) -> None:
    (tmp_path / "test_two.py").write_text(f"LIMIT_S, HELD_S = {LIMIT_S}, {held_s}\n{TESTS}")
    options = ("-q", "-n", "2", "-p", "tests.conftest", "-p", "no:cacheprovider", f"--timeout={LIMIT_S}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "UNISTREAM_NIGHTLY"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
