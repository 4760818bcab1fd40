"""What has ended a worker of pytest-xdist, in the report of its test: the signal, and where its threads were.

A plugin that `tests/conftest.py` registers. Without it such a report has no reason, and a crash that is rare
is never explained. A signal that leaves no stacks was sent from elsewhere (SIGKILL).
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER: Final = "UNISTREAM_STACKS"  # in the environment of the workers: where each writes its stacks
ENDS_S: Final = 10.0  # its connection is lost a moment before the process is gone
STACK_CHARS: Final = 6_000
OWN_FRAME: Final = re.compile(r"/(_pytest|pluggy|xdist|execnet)/")


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="unistream-stacks-")
        os.environ[FOLDER] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_sessionstart(
    session: pytest.Session,
) -> None:  # later than pytest's own plugin, which takes stderr
    worker, place = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get(FOLDER)
    if worker is not None and place is not None:
        stacks = Path(place, f"{worker}-{os.getpid()}").open("w", encoding="utf-8")  # noqa: SIM115
        faulthandler.enable(file=stacks)
        session.config.add_cleanup(stacks.close)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: Any) -> None:
    gateway = report.node.gateway
    process = gateway._io.popen  # execnet's
    code = process.wait(ENDS_S)
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    stacks = Path(os.environ[FOLDER], f"{gateway.id}-{process.pid}")
    report.longrepr = (
        f"{report.longrepr}: {how}\n{current_first(stacks.read_text()) if stacks.exists() else ''}"
    )


def current_first(stacks: str) -> str:
    """The thread that crashed, then others as far as they fit, without pytest's own frames."""
    lines = [line for line in stacks.splitlines() if not OWN_FRAME.search(line)]
    heading, *threads = "\n".join(lines).split("\n\n")
    threads.sort(key=lambda thread: not thread.startswith("Current thread"))
    return "\n\n".join([heading, *threads])[:STACK_CHARS]
