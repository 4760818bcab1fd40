"""What commands print for programs that end with a line for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unistream.base.ids import TaskManagerId
from unistream.cli.main import main
from unistream.cli.taskmanager import print_registered
from unistream.port.host import TaskManagerSpec

Capture = pytest.CaptureFixture[str]
WORKER = TaskManagerSpec(
    id=TaskManagerId("tm-a"), master="grpc+tcp://127.0.0.1:6123", slots=2, config={}, standalone=True
)


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """The folder of a stack whose Kafka has run."""
    log = tmp_path / "kafka" / "kafka.log"
    log.parent.mkdir()
    log.write_text("one\ntwo\nthree\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "for_people", "for_programs"),
    [
        (["logs", "kafka", "-n", "2"], "two\nthree\n", {"server": "kafka", "lines": ["two", "three"]}),
        (["down"], "nothing was running\n", {"stopped": []}),
    ],
)
def test_the_stack(
    words: list[str], for_people: str, for_programs: object, stack: Path, capsys: Capture
) -> None:
    assert main(["stack", *words, "--dir", str(stack)]) == 0
    assert capsys.readouterr().out == for_people
    assert main(["stack", *words, "--dir", str(stack), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == for_programs


def test_a_worker_that_is_registered(capsys: Capture) -> None:
    print_registered(WORKER, as_json=False)
    assert capsys.readouterr().out == "worker tm-a is registered at 127.0.0.1:6123 with 2 slots\n"
    print_registered(WORKER, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "taskmanager": "tm-a",
        "jobmanager": "grpc+tcp://127.0.0.1:6123",
        "slots": 2,
    }
