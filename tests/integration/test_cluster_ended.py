"""The cluster of one job was killed: who speaks to it hears at once what is left, and how to go on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.eventually import WAIT_S
from tests.integration.crash_runs import Command, commands_in
from tests.integration.test_cluster_sessions import PIPELINES, STREAM, await_checkpoints
from tests.integration.test_cluster_stop import PIPELINES as MORE_PIPELINES
from unistream.base.ids import JobId

Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "session_pipelines.py").write_text(PIPELINES)
    (tmp_path / "slow_pipelines.py").write_text(MORE_PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def detached(start: Start, pipeline: str) -> dict[str, Any]:
    run = start("run", pipeline, "-t", "local", "-d", "--json", "--name", "lines", *STREAM)
    assert run.wait() == 0, run.err
    found: dict[str, Any] = json.loads(run.out)
    return found


def killed(pid: int) -> None:
    process = psutil.Process(pid)
    family = process.children(recursive=True)
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([process, *family], timeout=WAIT_S)


def goes_on(start: Start, sentence: str, job: JobId) -> None:
    """The command that the sentence names."""
    quoted = re.search(r"'(unistream cluster start [^']+)'", sentence)
    assert quoted is not None, sentence
    words = shlex.split(quoted[1])[1:]
    if "-t" not in words:
        words += ["-t", "local"]
    cluster = start(*words, "--json")
    facts = json.loads(cluster.line())
    assert facts["jobs_found"] == 1
    cancelled = start("cancel", job)
    assert cancelled.wait() == 0, cancelled.err
    assert cluster.end(signal.SIGTERM) == 0


def test_who_waits_hears_at_once_that_the_cluster_was_killed(start: Start, tmp_path: Path) -> None:
    facts = detached(start, "slow_pipelines:slow")
    job = JobId(facts["job"])
    await_checkpoints(facts["url"], job, 1)
    stopping = start("stop", job, "-D", "client.timeout=1 h")  # which is not waited for
    [folder] = (tmp_path / "home" / "runs").iterdir()
    request = folder / "ha" / "values" / "jobs" / job / "request"
    while not request.exists():
        assert stopping.process.poll() is None, stopping.wait() or stopping.err
    killed(facts["pid"])
    assert stopping.wait() == 3
    [sentence] = stopping.err.splitlines()
    assert f"(process {facts['pid']}), and its job runs no more; its newest checkpoint is " in sentence
    goes_on(start, sentence, job)


@pytest.mark.parametrize("command", ["stop", "cancel", "info"])
def test_who_comes_later_hears_the_same(start: Start, tmp_path: Path, command: str) -> None:
    facts = detached(start, "session_pipelines:endless")
    job = JobId(facts["job"])
    await_checkpoints(facts["url"], job)
    killed(facts["pid"])
    for name in (job[:8], "lines"):
        late = start(command, name)
        assert late.wait() == 3, late.err
        [sentence] = late.err.splitlines()
        assert (
            f"job 'lines' ({job}) does not run: its cluster has ended; its newest checkpoint is" in sentence
        )
    unknown = start(command, "nothing")
    assert unknown.wait() == 3
    assert "no cluster runs here" in unknown.err
    goes_on(start, sentence, job)
    after = start(command, job[:8])
    if command == "info":
        assert after.wait() == 0, "it was cancelled there, and the history has it"
        assert "CANCELED" in after.out
    else:
        assert after.wait() == 3, "it was cancelled there"
        assert "no cluster runs here" in after.err
