"""`unistream run --detached` on a cluster of its own: starts one in the background, for this job.

The pipeline is built here, where its errors are shown; the background process gets job graph and code.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Final

import msgspec

from unistream.base.durable_files import private
from unistream.base.errors import Unreachable
from unistream.cli.application import Answer, Application, ApplicationRefused, ApplicationStarted
from unistream.client.machine import home

START_TIMEOUT_S: Final = 180.0  # a first Spark session on a busy machine takes half a minute
GIVE_UP_S: Final = 30.0  # a cluster that shuts down cancels its job and its workers first
LOGS_MAX: Final = 100  # of background runs
LOG_TAIL_LINES: Final = 20


class Detached(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the background."""

    job: str
    url: str
    pid: int
    log: str


def start(application: Application) -> Detached | ApplicationRefused:
    """Starts the background process and returns when its job was accepted or refused. Unless it was accepted,
    nothing is left running.

    Raises:
        Unreachable: the process ended, or did not answer in time.
    """
    log = _log_file()
    content = msgspec.msgpack.encode(application)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as answers, open(log, "wb", opener=private) as output:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "unistream.cli.application", str(writer)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                start_new_session=True,  # neither Ctrl-C nor the end of this terminal reaches it
            )
        finally:
            os.close(writer)
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(content)
            answer = _answer(answers.fileno())
        except BaseException:
            _end(process)
            raise
    match answer:
        case ApplicationStarted(job=job, url=url, pid=pid):
            return Detached(job=job, url=url, pid=pid, log=str(log))
        case ApplicationRefused():
            process.wait(GIVE_UP_S)
            log.unlink(missing_ok=True)
            return answer
    _end(process)
    raise Unreachable(
        f"the background process did not accept the job in {START_TIMEOUT_S:.0f} s (log: {log})\n{_tail(log)}"
    )


def _answer(descriptor: int) -> Answer | None:
    """The answer of the background process; None if it ends or takes too long before one."""
    deadline = time.monotonic() + START_TIMEOUT_S
    content = b""
    while not content.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(descriptor, 65_536) if ready else b""
        if not piece:
            return None
        content += piece
    answer: Answer = msgspec.json.decode(content, type=Answer)
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it and its job; by force after `GIVE_UP_S`."""
    process.terminate()
    try:
        process.wait(GIVE_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(GIVE_UP_S)


def _log_file() -> Path:
    """A new file for the log of one run; the oldest above `LOGS_MAX` are removed."""
    folder = home.home() / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    logs = sorted(folder.glob("run-*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[: max(0, len(logs) - LOGS_MAX + 1)]:
        path.unlink(missing_ok=True)
    return folder / f"run-{uuid.uuid4().hex[:12]}.log"


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
