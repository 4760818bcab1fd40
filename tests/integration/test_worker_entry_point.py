from __future__ import annotations

import signal
import subprocess
import sys

import msgspec
import pytest

from tests.eventually import WAIT_S
from unistream.base.crash_points import POINTS_VARIABLE, crash_point, crash_points, no_crash
from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.port.host import TaskManagerSpec
from unistream.worker.process.entry_point import NOT_STARTED


def test_crash_points_work_in_tests_only() -> None:
    assert crash_points({}) is no_crash
    assert crash_points({POINTS_VARIABLE: "ack.sent", "UNISTREAM_TESTING": "1"}) is crash_point
    with pytest.raises(ConfigError, match=POINTS_VARIABLE):
        crash_points({POINTS_VARIABLE: "ack.sent"})


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        pytest.param("{", "its spec as JSON", id="not JSON"),
        pytest.param(
            msgspec.json.encode(
                TaskManagerSpec(
                    id=TaskManagerId("tm"),
                    master="grpc+unix:///nowhere.sock",
                    slots=1,
                    config={"heartbeat.timeout": "100 ms"},
                )
            ).decode(),
            "did not answer",
            id="no master",
        ),
        pytest.param(
            '{"id": "tm", "master": "grpc+unix:///x", "slots": 1, "config": {"heartbeat.timeou": "1 s"}}',
            "did you mean 'heartbeat.timeout'",
            id="unknown key",
        ),
        pytest.param(
            '{"id": "tm", "master": "grpc+unix:///x", "slots": 1, "host": "node-7", "version": "99.1.0"}',
            "host node-7 has unistream",
            id="another version than the master",
        ),
    ],
)
def test_a_worker_that_cannot_start_says_why_in_one_line(stdin: str, says: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "unistream.worker"],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == NOT_STARTED
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("unistream.worker: ")
    assert says in last


FORKS = """
import os, signal, threading
from unistream.worker.process import entry_point
entry_point._on_signals(lambda _name: threading.Event().wait())  # for what only another thread does
at, to = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(to, b"x")
    threading.Event().wait()
os.read(at, 1)
os.kill(pid, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_fork_that_user_code_makes_in_a_worker_is_ended_by_a_signal() -> None:
    """As those of a pool of `multiprocessing` are."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS], check=False, capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.stdout.strip(), done.stderr) == (str(-signal.SIGTERM), "")
