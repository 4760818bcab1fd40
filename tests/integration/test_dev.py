"""`make dev` as a user meets it: Dagster's UI and daemon, a session cluster, data that flows, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.test_demo import ROOT, marked

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

WAIT_S = 120.0
LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
RUN = 'query { runOrError(runId: "%s") { ... on Run { status tags { key value } } } }'
TABLE = """
query { assetOrError(assetKey: {path: ["flights_hourly"]}) {
  ... on Asset { assetMaterializations(limit: 20) {
    runId metadataEntries { label ... on IntMetadataEntry { intValue } }
  } }
} }
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """An environment value that every process inherits; none of them may be left."""
    value = uuid.uuid4().hex
    yield value
    assert marked(value) == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ui:
    """Dagster's GraphQL API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/graphql"

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return dict(found["data"])

    @property
    def is_up(self) -> bool:
        try:
            return bool(self.ask("query { version }"))
        except OSError:
            return False

    def materialize(self, *assets: str) -> str:
        """Its run."""
        selector = {
            "repositoryLocationName": "dagster_defs.definitions",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [asset]} for asset in assets],
        }
        launched = self.ask(LAUNCH, params={"selector": selector, "mode": "default"})["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def run(self, run: str) -> dict[str, Any]:
        return dict(self.ask(RUN % run)["runOrError"])

    def tags(self, run: str) -> dict[str, str]:
        return {tag["key"]: tag["value"] for tag in self.run(run)["tags"]}

    def materializations(self) -> list[dict[str, Any]]:
        """Of flights_hourly: the run, and the numbers."""
        events = self.ask(TABLE)["assetOrError"]["assetMaterializations"]
        return [
            {"run": event["runId"], **{e["label"]: e.get("intValue") for e in event["metadataEntries"]}}
            for event in events
        ]


def test_a_stream_is_materialised_once_and_its_commits_are_seen(tmp_path: Path, mark: str) -> None:
    port = free_port()
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
        ui = Ui(port)
        eventually(lambda: ui.is_up or dev.poll() is not None, "the UI answers", WAIT_S, 0.5)
        assert dev.poll() is None, dev.stdout and dev.stdout.read()
        first = ui.materialize("flights_hourly", "flights_cancelled")
        eventually(lambda: ui.run(first)["status"] in ("SUCCESS", "FAILURE"), "the run ends", WAIT_S, 0.5)
        assert ui.run(first)["status"] == "SUCCESS"
        second = ui.materialize("flights_hourly", "flights_cancelled")
        eventually(lambda: ui.run(second)["status"] in ("SUCCESS", "FAILURE"), "it ends, too", WAIT_S, 0.5)
        assert ui.run(second)["status"] == "SUCCESS"
        assert ui.tags(second)["unistream/job_id"] == ui.tags(first)["unistream/job_id"], "one job writes"
        eventually(
            lambda: any(not event["run"] and event["unistream/rows"] for event in ui.materializations()),
            "a commit is a materialisation without a run",
            WAIT_S,
            1.0,
        )
    finally:
        dev.send_signal(signal.SIGINT)
        output, _ = dev.communicate(timeout=90)
    assert dev.returncode == 130, output
    assert "everything that was started has been stopped" in output
