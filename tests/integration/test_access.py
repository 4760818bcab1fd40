"""A cluster that wants tokens, and another user of its machine who knows its ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import WAIT_S
from tests.integration.crash_runs import Command, commands_in
from tests.integration.test_cluster_sessions import PIPELINES, STREAM, Start, begin
from unistream.rest.openapi import OPERATIONS

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")]

TOKEN = ("-D", "security.rest.authentication=token")
NOBODY = 65_534

STRANGER = """
import encodings.idna, json, os, sys, urllib.error, urllib.request
from pyarrow import flight
from unistream.model.codec import encode
from unistream.model.messages import Heartbeat

given = json.loads(sys.stdin.read())
"x".encode("idna")  # later its module could not be read
beat = flight.Action("control", encode(Heartbeat(task_manager="forged")))
os.setgroups([]); os.setgid(65534); os.setuid(65534)

def status(method, path):
    request = urllib.request.Request(given["url"] + path, data=b"{}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

def refused(action):
    try:
        action()
    except PermissionError:
        return True
    return False

def call(control):
    options = flight.FlightCallOptions(timeout=60)
    try:
        list(flight.FlightClient("grpc+tcp://" + control).do_action(beat, options))
    except flight.FlightError as error:
        return type(error).__name__
    return "answered"

print(json.dumps({
    "statuses": sorted({status(*one) for one in given["paths"]}),
    "reads the tokens": not all(refused(lambda: open(path).read()) for path in given["files"]),
    "control": call(given["control"]) if given["control"] else None,
}))
"""


def stranger(url: str, files: list[Path], control: str = "") -> Any:
    """What another user gets, who sends what each path takes."""
    paths = [key.partition(" ")[::2] for key, one in OPERATIONS.items() if one.needs is not None]
    given = {"url": url, "paths": paths, "files": [str(path) for path in files], "control": control}
    done = subprocess.run(
        [sys.executable, "-c", STRANGER],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "session_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def done(command: Command) -> str:
    assert command.wait() == 0, command.err
    return command.out


def test_the_owner_types_nothing_and_another_user_gets_nothing(start: Start, tmp_path: Path) -> None:
    cluster, said = begin(start, *TOKEN)
    url = said["url"]
    run = ("run", "session_pipelines:endless", "-t", "remote", "-d", "--json", "--name", "numbers", *STREAM)
    job = json.loads(done(start(*run)))["job"]
    tokens = [path for path in tmp_path.rglob("*.json") if path.parent.name == "clusters"]
    secret = list(tmp_path.rglob("security/secret"))
    assert (len(tokens), len(secret)) == (1, 1)
    got = stranger(url, [*tokens, *secret])
    assert (got["statuses"], got["reads the tokens"]) == ([401], False)
    [listed] = json.loads(done(start("list", "--json")))["jobs"]
    assert listed["job"]["job"] == job
    assert listed["job"]["state"] in {"INITIALIZING", "CREATED", "RUNNING"}, "nobody has cancelled it"
    done(start("cancel", job))
    audited = [
        json.loads(line) for path in tmp_path.rglob("audit.jsonl") for line in path.read_text().splitlines()
    ]
    assert {line["name"] for line in audited} == {"the owner of the cluster"}
    assert [line["method"] for line in audited] == ["POST", "PATCH"]
    cluster.process.terminate()
    assert cluster.wait() == 0


def test_nobody_else_registers_a_worker_or_forges_a_report(start: Start, tmp_path: Path) -> None:
    """The port of a standalone cluster is TCP."""
    _cluster, said = begin(start, *TOKEN, "-D", "jobmanager.rpc.port=0", target="standalone")
    worker = start("taskmanager", "start", "--jobmanager", said["jobmanager"], "--json")
    assert json.loads(worker.line())["slots"] == 1
    assert stranger(said["url"], [], said["jobmanager"])["control"] == "FlightUnauthenticatedError"
    run = ("run", "session_pipelines:short", "-t", "remote", "--json")
    assert json.loads(done(start(*run)))["state"] == "FINISHED"
    workers = json.loads(done(start("taskmanager", "list", "--json")))["taskmanagers"]
    assert len(workers) == 1
