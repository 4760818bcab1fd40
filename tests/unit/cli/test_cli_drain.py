"""`unistream taskmanager drain`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.unit.cli.test_cli_rescale import await_running
from unistream.cli.main import main
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

Start = Callable[[], EmbeddedCluster]
Capture = pytest.CaptureFixture[str]


def listed(capsys: Capture) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["taskmanager", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["taskmanagers"]
    assert isinstance(found, list)
    return found


def test_a_worker_is_drained_and_what_cannot_be_is_said(
    start_cluster: Start, pipelines: str, capsys: Capture
) -> None:
    start_cluster()
    assert main(["run", f"{pipelines}:endless", "-t", "remote", "--detached", "-p", "1", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    await_running(job)
    (worker,) = [str(one["id"]) for one in listed(capsys)]

    assert main(["taskmanager", "drain", worker]) == 0
    assert f"worker {worker} is drained and has ended" in capsys.readouterr().out
    (other,) = [str(one["id"]) for one in listed(capsys)]
    assert other != worker
    await_running(job)

    assert main(["taskmanager", "drain", other, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["taskmanager"], answer["phase"]) == (other, "DRAINED")

    for words, says in (
        ([worker], f"there is no worker '{worker}'"),
        (["tm-nowhere"], "'unistream taskmanager list' has those that there are"),
        ([""], "there is no worker ''"),
    ):
        assert main(["taskmanager", "drain", *words]) == 2
        assert says in capsys.readouterr().err
    assert main(["cancel", job]) == 0
