"""Commands next to clusters that are silent or slow, with names that look like markup, and Ctrl-C at once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import WAIT_S
from unistream.base.errors import ProtocolError, Unreachable
from unistream.base.ids import JobId
from unistream.cli.main import main
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient

Start = Callable[[], EmbeddedCluster]
JOB = JobId("ab" * 16)
IN_PROGRESS = '{"status":{"id":"IN_PROGRESS"},"operation":null}'
INTERRUPTED = """import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
os.kill(os.getpid(), signal.SIGINT)
"""
HUNG = 10
COMPLETED = '{"status":{"id":"COMPLETED"},"operation":{"location":"file:/there"}}'


class Cluster:
    """Answers requests with what `script` says, one after the other, the last one again and again; None: the
    connection is closed without an answer."""

    def __init__(self, *script: tuple[int, str] | None) -> None:
        left = list(script)
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                with lock:
                    said = left.pop(0) if len(left) > 1 else left[0]
                if said is None:
                    self.close_connection = True
                    return
                status, body = said
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST = answer

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def clusters() -> Iterator[Callable[..., str]]:
    """Starts one, gives its URL."""
    started: list[Cluster] = []

    def start(*script: tuple[int, str] | None) -> str:
        started.append(Cluster(*script))
        return started[-1].url

    yield start
    for cluster in started:
        cluster.close()


def test_who_waits_for_a_savepoint_survives_a_cluster_that_is_silent_for_a_while(
    clusters: Callable[..., str],
) -> None:
    url = clusters((202, '{"request-id":"x"}'), (200, IN_PROGRESS), None, None, (200, COMPLETED))
    with RestClient(url) as client:
        assert client.client(JOB).stop() == "file:/there"


def test_who_waits_for_a_savepoint_gives_a_cluster_up_that_stays_silent(clusters: Callable[..., str]) -> None:
    with (
        RestClient(clusters((202, '{"request-id":"x"}'), None), timeout_s=2) as client,
        pytest.raises(Unreachable, match="does not answer"),
    ):
        client.client(JOB).savepoint()


def test_a_defect_of_the_cluster_is_not_the_fault_of_who_asked(clusters: Callable[..., str]) -> None:
    url = clusters((500, '{"errors":["Internal server error.","KeyError"]}'))
    with RestClient(url) as client, pytest.raises(ProtocolError, match=r"its log says why: .*KeyError"):
        client.info(JOB)


def test_a_silent_cluster_is_named_where_its_jobs_would_be(
    clusters: Callable[..., str], start_cluster: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = clusters(None)
    start_cluster()
    entry = home.register("00" * 16, url=silent, target="local", now_ms=0)
    assert main(["list", "--all"]) == 0
    assert f"the cluster at {silent} does not answer" in (reported := capsys.readouterr().err)
    assert "its jobs are not listed" in reported
    assert main(["taskmanager", "list"]) == 0
    assert "its workers are not listed" in capsys.readouterr().err
    assert main(["info", "lost"]) == 2
    assert f"there is no job 'lost' here; 'unistream list --all' shows all jobs; the cluster at {silent}" in (
        capsys.readouterr().err
    )
    entry.unlink()


class Hung:
    """A cluster that takes connections and never says a word. `at_once`: the most that were open together."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.at_once, self._open = 0, 0
        self._lock = threading.Lock()
        threading.Thread(target=self._take_all, daemon=True).start()

    def _take_all(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._take, args=[connection], daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        with self._lock:
            self._open += 1
            self.at_once = max(self.at_once, self._open)
        with connection, suppress(OSError):
            while connection.recv(1_024):
                pass
        with self._lock:
            self._open -= 1

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def hung() -> Iterator[Hung]:
    with closing(Hung()) as hung:
        yield hung


@pytest.mark.parametrize("command", [["list", "--all"], ["taskmanager", "list"]], ids=" ".join)
def test_clusters_that_hang_are_named_and_delay_a_list_once(
    command: list[str], hung: Hung, start_cluster: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    start_cluster()
    for number in range(HUNG):
        home.register(f"{number:032x}", url=hung.url, target="local", now_ms=0)
    assert main(command) == 0
    assert hung.at_once > 1, "one after the other"
    assert capsys.readouterr().err.count(f"the cluster at {hung.url} does not answer") == HUNG


def test_ctrl_c_before_the_command_is_loaded_needs_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(INTERRUPTED)
    ended = subprocess.run(
        [sys.executable, "-m", "unistream.cli.main", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted\n")


def test_a_server_that_is_no_cluster_hides_no_job_of_one(
    clusters: Callable[..., str], start_cluster: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = clusters((200, "<html>"))
    start_cluster()
    home.register("00" * 16, url=strange, target="local", now_ms=0)
    assert main(["list", "--all"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"the response of {strange}/v1/unistream/jobs is not as expected")
    assert line.endswith("; its jobs are not listed")


@pytest.mark.parametrize("command", [["list", "--all"], ["taskmanager", "list"]], ids=" ".join)
def test_programs_read_which_clusters_do_not_answer(
    command: list[str],
    clusters: Callable[..., str],
    start_cluster: Start,
    capsys: pytest.CaptureFixture[str],
) -> None:
    silent = clusters(None)
    start_cluster()
    home.register("00" * 16, url=silent, target="local", now_ms=0)
    assert main([*command, "--json"]) == 0
    shown = capsys.readouterr()
    (unanswered,) = json.loads(shown.out)["unanswered"]
    assert unanswered["cluster"] == silent
    assert unanswered["error"].startswith(f"the cluster at {silent} does not answer")
    assert shown.err == ""


def test_an_empty_list_with_a_timeout_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "-D", "client.timeout=2 s"]) == 0
    assert capsys.readouterr().out == "no job runs here\n"


def test_all_clusters_that_do_not_answer_are_in_the_error(
    clusters: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [clusters(None), clusters(None)]
    for number, url in enumerate(urls):
        home.register(f"{number:032x}", url=url, target="local", now_ms=0)
    assert main(["cancel", "lost"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert all(url in line for url in urls)
