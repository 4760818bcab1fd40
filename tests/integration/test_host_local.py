"""Child processes that misbehave, and a parent that is gone."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S, eventually
from unistream.base.ids import TaskManagerId
from unistream.host.forked import can_fork
from unistream.host.local import LocalProcessHost
from unistream.host.logs import log_path
from unistream.port.host import TaskManagerSpec

Losses = queue.Queue[tuple[TaskManagerId, str, str, bool]]
RunModule = Callable[[str], tuple[LocalProcessHost, TaskManagerSpec]]


@pytest.fixture
def losses() -> Losses:
    return queue.Queue()


@pytest.fixture(params=[True, False], ids=["forked", "spawned"])
def forks(request: pytest.FixtureRequest) -> bool:
    if request.param and not can_fork():
        pytest.skip("workers are forked on Linux only")
    return bool(request.param)


@pytest.fixture
def run(tmp_path: Path, losses: Losses, forks: bool) -> Iterator[RunModule]:
    """Runs a program in the place of the TaskManager."""
    hosts: list[LocalProcessHost] = []

    def run(program: str) -> tuple[LocalProcessHost, TaskManagerSpec]:
        (tmp_path / "program.py").write_text(textwrap.dedent(program))
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        host = LocalProcessHost(
            lambda *lost: losses.put(lost), python=sys.executable, env=env, module="program", forks=forks
        )
        hosts.append(host)
        spec = spec_of(1, tmp_path)
        host.start(spec)
        return host, spec

    yield run
    for host in hosts:
        host.close()


def spec_of(number: int, folder: Path) -> TaskManagerSpec:
    return TaskManagerSpec(
        id=TaskManagerId(f"tm-{number}"), master="grpc+tcp://x:1", slots=3, log_dir=str(folder / "logs")
    )


def await_log(spec: TaskManagerSpec, lines: int) -> list[str]:
    """The first lines of a worker's log, once it has written them."""
    path = log_path(spec)
    assert path is not None
    eventually(
        lambda: path.exists() and len(path.read_text().splitlines()) >= lines,
        f"{path} has {lines} lines",
        WAIT_S,
    )
    return path.read_text().splitlines()


def test_the_spec_arrives_as_json_on_stdin(run: RunModule, losses: Losses) -> None:
    _, spec = run("""
        import json, sys
        print(json.load(sys.stdin)["slots"], flush=True)
    """)
    assert losses.get(timeout=WAIT_S)[0] == spec.id
    assert await_log(spec, 1) == ["3"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(7)", "exited with code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("raise ValueError('broken')", "exited with code 1"),
        ("pass", "exited with code 0"),
    ],
    ids=["an exit code", "a signal", "an exception", "an end in peace"],
)
def test_the_end_of_a_process_is_told_in_words(
    run: RunModule, losses: Losses, program: str, reason: str
) -> None:
    _, spec = run(program)
    lost, reported, *_ = losses.get(timeout=WAIT_S)
    assert lost == spec.id
    assert reason in reported
    assert str(log_path(spec)) in reported


def test_a_process_that_ignores_sigterm_is_killed(run: RunModule, losses: Losses) -> None:
    host, spec = run("""
        import signal, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        threading.Event().wait()
    """)
    await_log(spec, 1)
    host.stop(spec.id)
    assert "was killed by SIGKILL after it was requested to stop" in losses.get(timeout=WAIT_S)[1]


def test_what_user_code_has_started_goes_with_the_worker(run: RunModule, losses: Losses) -> None:
    _, spec = run("""
        import subprocess, sys, threading
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        print(child.pid, flush=True)
        threading.Event().wait()
    """)
    child = psutil.Process(int(await_log(spec, 1)[0]))
    os.kill(child.ppid(), signal.SIGKILL)
    losses.get(timeout=WAIT_S)
    assert psutil.wait_procs([child], timeout=WAIT_S)[1] == []


def test_a_python_that_does_not_exist_is_a_loss_with_its_name(
    losses: Losses, forks: bool, tmp_path: Path
) -> None:
    host = LocalProcessHost(lambda *lost: losses.put(lost), python="/nowhere/python", forks=forks)
    host.start(spec_of(1, tmp_path))
    reason = losses.get(timeout=WAIT_S)[1]
    assert "No such file" in reason
    assert "/nowhere/python" in reason
    host.close()


def test_a_worker_does_not_outlive_a_killed_parent(tmp_path: Path, forks: bool) -> None:
    (tmp_path / "program.py").write_text(
        "import os, threading\nprint(os.getpid(), flush=True)\nthreading.Event().wait()\n"
    )
    parent_program = textwrap.dedent("""
        import sys, threading
        from unistream.host.local import LocalProcessHost
        from unistream.port.host import TaskManagerSpec
        host = LocalProcessHost(lambda *lost: None, module="program", forks=sys.argv[2] == "True")
        host.start(TaskManagerSpec(id="tm-1", master="m", slots=1, log_dir=sys.argv[1]))
        threading.Event().wait()
    """)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", parent_program, str(tmp_path), str(forks)], env=env)
    try:
        spec = TaskManagerSpec(id=TaskManagerId("tm-1"), master="m", slots=1, log_dir=str(tmp_path))
        worker = psutil.Process(int(await_log(spec, 1)[0]))
    finally:
        parent.kill()
        parent.wait(WAIT_S)
    assert psutil.wait_procs([worker], timeout=WAIT_S)[1] == []


@pytest.mark.parametrize("forks", [False], indirect=True, ids=["spawned"])
def test_an_end_is_reported_although_somebody_else_took_the_exit_code(run: RunModule, losses: Losses) -> None:
    _, spec = run("""
        import os, sys
        print(os.getpid(), flush=True)
        sys.stdin.read()
        sys.exit(3)
    """)
    pid = int(await_log(spec, 1)[0])
    with contextlib.suppress(ChildProcessError):  # the host was faster
        os.waitpid(pid, 0)
    lost, reason, *_ = losses.get(timeout=WAIT_S)
    assert lost == spec.id
    assert str(pid) in reason
