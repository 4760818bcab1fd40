"""`unistream taskmanager start`: where its cluster is, and what is said while nobody answers there."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.eventually import WAIT_S
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.cli.main import main
from unistream.cli.taskmanager import LOOK_UPS, SAY_EVERY_MS, NoClusterReporter, location

PORT = {"jobmanager.rpc.port": "7000"}


@pytest.mark.parametrize(
    ("given", "config", "expected"),
    [
        pytest.param("127.0.0.1:6123", {}, "grpc+tcp://127.0.0.1:6123", id="address and port"),
        pytest.param("localhost:6123", PORT, "grpc+tcp://localhost:6123", id="its own port comes first"),
        pytest.param("localhost", PORT, "grpc+tcp://localhost:7000", id="the port by its option"),
        pytest.param("[::1]:6123", {}, "grpc+tcp://[::1]:6123", id="IPv6"),
    ],
)
def test_where_the_cluster_is(given: str, config: dict[str, str], expected: str) -> None:
    assert location(given, Configuration(config)) == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param("foo", "takes HOST:PORT, such as 127.0.0.1:6123, not 'foo'", id="no port"),
        pytest.param("localhost", "takes HOST:PORT", id="no port of a host that there is"),
        pytest.param("localhost:0", "takes HOST:PORT", id="port 0"),
        pytest.param("localhost:65536", "takes HOST:PORT", id="no such port"),
        pytest.param("http://localhost:6123", "takes HOST:PORT", id="a URL"),
        pytest.param("nowhere.invalid:6123", "host 'nowhere.invalid' cannot be found: ", id="no such host"),
        pytest.param("a..b:6123", "host 'a..b' cannot be found: ", id="not a host's name"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_at_once(
    given: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["taskmanager", "start", "--jobmanager", given]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --jobmanager")
    assert said.count("\n") == 1
    assert says in said


@pytest.mark.parametrize("answers", [1, LOOK_UPS - 1, LOOK_UPS])
def test_a_name_server_that_cannot_tell_now_is_asked_again(
    answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def busy(host: str, _port: int, **_options: object) -> list[object]:
        asked.append(host)
        if len(asked) <= answers:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return []

    monkeypatch.setattr("unistream.cli.taskmanager.LOOK_UP_PAUSE_S", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", busy)
    if answers < LOOK_UPS:
        assert location("[::1]:6123", Configuration()) == "grpc+tcp://[::1]:6123"
    else:
        with pytest.raises(ConfigError, match="Temporary failure"):
            location("[::1]:6123", Configuration())
    assert asked == ["::1"] * min(answers + 1, LOOK_UPS)


@pytest.mark.parametrize(
    ("silences", "lines"),
    [
        pytest.param([0], 1, id="at once"),
        pytest.param([0, 50, 150, SAY_EVERY_MS - 1], 1, id="not all the time"),
        pytest.param([0, SAY_EVERY_MS, SAY_EVERY_MS + 1, 3 * SAY_EVERY_MS], 3, id="every few seconds"),
        pytest.param([0, SAY_EVERY_MS, 0, 10], 3, id="a master that was lost again"),
    ],
)
def test_waiting_is_told_now_and_then(
    silences: list[int], lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = NoClusterReporter("here:6123", 300_000)
    for silent_ms in silences:
        waiting.on_silence(silent_ms, Unreachable("Connection refused"))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    for line in said:
        assert line.startswith("no cluster has answered at here:6123 for ")
        assert line.endswith("trying for 5 min (taskmanager.registration.timeout): Connection refused")
    assert "for 0 ms," in said[0]


def test_a_cluster_of_another_authority_is_said_to_be_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    why = "self-signed certificate in certificate chain"
    NoClusterReporter("here:6123", 300_000).on_silence(0, Unreachable(f"gRPC: {why}"))
    [said] = capsys.readouterr().err.splitlines()
    assert f"{why}; another cluster is there than the one that this host has joined" in said


def test_a_worker_says_that_nobody_answers_and_gives_up() -> None:
    with socket.socket() as taken:  # bound and silent: nobody listens
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["--jobmanager", where, "-D", "taskmanager.registration.timeout=300 ms"]
        ended = subprocess.run(
            [sys.executable, "-m", "unistream.cli", "taskmanager", "start", *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    assert ended.returncode == 3
    first, *_, last = ended.stderr.splitlines()
    assert first.startswith(f"no cluster has answered at {where} for ")
    assert "Connection refused" in first
    assert last.startswith("error: the master did not answer for ")
