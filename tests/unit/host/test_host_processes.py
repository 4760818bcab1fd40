"""Waiting for, and killing, processes of which only the number is known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.eventually import WAIT_S
from unistream.host.processes import Processes, below

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pidfd and /proc are Linux's")

LIVES = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", LIVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_descendants_are_found_and_others_are_not(process: subprocess.Popen[bytes]) -> None:
    assert process.pid in below(os.getpid())
    assert os.getpid() not in below(process.pid)


def test_a_process_that_ends_in_time_is_not_killed(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    watched = Processes([process.pid])
    process.stdin.close()
    watched.end(patience_s=20)
    assert process.wait(WAIT_S) == 0


def test_a_process_that_stays_is_killed(process: subprocess.Popen[bytes]) -> None:
    Processes([process.pid]).end(patience_s=0.1)
    assert process.wait(WAIT_S) == -9


def test_a_process_that_is_gone_needs_no_wait(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.wait(WAIT_S) == -9
    Processes([process.pid]).end(patience_s=10_000)
