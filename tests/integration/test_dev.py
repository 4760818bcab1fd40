"""`make dev` as a user meets it: Dagster's UI and daemon, a session cluster, data that flows, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.dagster_ui import Ui
from tests.integration.test_demo import ROOT, marked
from unistream.testing.devtools.process import free_ports

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def mark() -> Iterator[str]:
    """An environment value that every process inherits; none of them may be left."""
    value = uuid.uuid4().hex
    yield value
    assert marked(value) == []


def test_a_stream_is_materialised_once_and_its_commits_are_seen(tmp_path: Path, mark: str) -> None:
    [port] = free_ports(1)
    options = ("--target", "local", "--port", str(port), "--seconds-a-year", "120")
    dev = subprocess.Popen(
        [sys.executable, "-m", "dagster_defs.dev", *options],
        cwd=ROOT,
        env={**os.environ, "TEST_MARK": mark, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        ui = Ui(port, "dagster_defs.definitions")
        eventually(lambda: ui.is_up or dev.poll() is not None, "the UI answers", WAIT_S, 0.5)
        assert dev.poll() is None, dev.stdout and dev.stdout.read()
        first = ui.materialize("flights_hourly", "flights_cancelled")
        eventually(lambda: ui.has_ended(first), "the run ends", WAIT_S, 0.5)
        assert ui.status(first) == "SUCCESS"
        second = ui.materialize("flights_hourly", "flights_cancelled")
        eventually(lambda: ui.has_ended(second), "it ends, too", WAIT_S, 0.5)
        assert ui.status(second) == "SUCCESS"
        assert ui.tags(second)["unistream/job_id"] == ui.tags(first)["unistream/job_id"], "one job writes"
        eventually(
            lambda: any(
                not event["run"] and event["unistream/new_rows"]
                for event in ui.materializations("flights_hourly")
            ),
            "a commit is a materialisation without a run",
            WAIT_S,
            1.0,
        )
    finally:
        dev.send_signal(signal.SIGINT)
        # each of its three children gets 25 s to end, and the broker 30 s
        output, _ = dev.communicate(timeout=120)
        print(output, *(log.read_text() for log in tmp_path.glob("unistream-dev-*/*.log")), sep="\n")
    assert dev.returncode == 130, output
    assert "everything that was started has been stopped" in output
