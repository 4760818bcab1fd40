"""On which host a Spark task finds itself, by its executor's command line."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.eventually import WAIT_S
from unistream.host.executor import executor_host, hostname_of

PRINT = "from unistream.host.executor import executor_host; print(executor_host())"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PRINT!r}], check=True)"


@pytest.mark.parametrize(
    ("command", "host"),
    [
        pytest.param(
            "java CoarseGrainedExecutorBackend --hostname 10.0.0.7 --cores 4", "10.0.0.7", id="standalone"
        ),
        pytest.param("java YarnCoarseGrainedExecutorBackend --hostname node-7", "node-7", id="YARN"),
        pytest.param(
            "java KubernetesExecutorBackend --app-id x --hostname 10.1.2.3", "10.1.2.3", id="Kubernetes"
        ),
        pytest.param("server --hostname elsewhere", None, id="some other program"),
        pytest.param("java CoarseGrainedExecutorBackend --cores 4", None, id="no name"),
        pytest.param("java CoarseGrainedExecutorBackend --hostname", None, id="cut off"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_what_a_command_line_says(command: str, host: str | None) -> None:
    assert hostname_of(command.split()) == host


def test_without_an_executor_it_is_the_machine_s_own_name() -> None:
    assert executor_host() == socket.gethostname()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ancestors are not looked for")
def test_it_is_found_two_processes_up() -> None:
    words = [sys.executable, "-c", CHILD, "CoarseGrainedExecutorBackend", "--hostname", "127.0.0.9"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert said.stdout.strip() == "127.0.0.9"
