"""The address of Dagster's UI is given to people once the UI answers there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagster_defs.demo import web_ui
from dagster_defs.demo.__main__ import main as demo
from dagster_defs.demo.processes import Child, DemoError
from dagster_defs.dev.__main__ import main as dev
from unistream.testing.devtools.process import free_ports

SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[2].encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


@pytest.mark.parametrize("command", [dev, lambda options: demo([*options, "--keep"])], ids=["dev", "demo"])
def test_a_taken_port_is_refused_before_anything_is_started(
    command: Callable[[list[str]], int],
    taken: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert command(["--target", "local", "--port", str(taken)]) == 1
    assert f"port {taken}, meant for Dagster's UI, is taken by another process" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def served(folder: Path, answer: str) -> tuple[Child, int]:
    [port] = free_ports(1)
    program = folder / "answers.py"
    program.write_text(SERVER)
    environment = {"PYTHONPATH": str(folder)}
    child = Child(["answers", str(port), answer], log=folder / "log", environment=environment, grace_s=5.0)
    return child, port


def test_it_returns_when_the_webserver_answers(tmp_path: Path) -> None:
    child, port = served(tmp_path, '{"dagster_webserver_version": "1"}')
    with child:
        web_ui.wait_until_served(child, port)
        assert child.exit_code is None


def test_a_server_of_another_kind_is_no_ui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_ui, "WAIT_S", 1.0)
    child, port = served(tmp_path, "<html></html>")
    with child, pytest.raises(DemoError, match=rf"does not answer at http://127.0.0.1:{port} after 1 s"):
        web_ui.wait_until_served(child, port)


def test_a_ui_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    child = Child(["json.no_such_module"], log=tmp_path / "log")
    with child, pytest.raises(DemoError, match=r"json.no_such_module ended with exit code 1\n.*No module"):
        web_ui.wait_until_served(child, free_ports(1)[0])
