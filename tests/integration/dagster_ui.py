"""Dagster's webserver as its pages use it: by GraphQL."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.eventually import WAIT_S

ENDED: Final = ("SUCCESS", "FAILURE", "CANCELED")
LAUNCH: Final = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
AGAIN: Final = """
mutation($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
TERMINATE: Final = """
mutation($run: String!) { terminateRun(runId: $run, terminatePolicy: SAFE_TERMINATE) {
  __typename ... on TerminateRunFailure { message } } }
"""
RUN: Final = """
query($run: ID!) { runOrError(runId: $run) { ... on Run { runId status parentRunId tags { key value } } } }
"""
RUNS: Final = """
query { runsOrError { ... on Runs { results { runId status parentRunId tags { key value }
  assetSelection { path } } } } }
"""
EVENTS: Final = """
query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
  assetMaterializations(limit: 1000) { runId partition metadataEntries { label
    ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text }
    ... on PathMetadataEntry { path } ... on MarkdownMetadataEntry { mdStr } } } } } }
"""
CHECKED: Final = """
query($key: AssetKeyInput!, $name: String!) {
  assetCheckExecutions(assetKey: $key, checkName: $name, limit: 1) {
    runId status evaluation { description } } }
"""
BACKFILL: Final = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }
"""
BACKFILL_STATUS: Final = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) {
  __typename ... on PartitionBackfill { status } } }
"""
FRESHNESS: Final = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  freshnessStatusInfo { freshnessStatus } } } }
"""
LOCATIONS: Final = """
query { workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
  __typename ... on PythonError { message cause { message } } } } } } }
"""


class Ui:
    """Of one code location."""

    def __init__(self, port: int, location: str) -> None:
        self._url = f"http://127.0.0.1:{port}/graphql"
        self._of = {"repositoryLocationName": location, "repositoryName": "__repository__"}

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return dict(found["data"])

    @property
    def is_up(self) -> bool:
        try:
            return bool(self.ask("query { version }"))
        except OSError:
            return False

    def load_error(self) -> str:
        """Why the code location cannot be loaded; empty: it is."""
        for entry in self.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]:
            found = entry["locationOrLoadError"]
            if found is not None and found["__typename"] == "PythonError":
                return str(found["message"]) + str((found.get("cause") or {}).get("message", ""))
        return ""

    def materialize(self, *assets: str, **tags: str) -> str:
        """Its run. `tags`: of unistream."""
        selector = {**self._of, "pipelineName": "__ASSET_JOB", "assetSelection": _paths(assets)}
        metadata = {"tags": [{"key": f"unistream/{name}", "value": value} for name, value in tags.items()]}
        params = {"selector": selector, "mode": "default", "executionMetadata": metadata}
        return _run_of(self.ask(LAUNCH, params=params)["launchRun"])

    def launch(self, job: str) -> str:
        """A run of a job, as its page launches it."""
        params = {"selector": {**self._of, "pipelineName": job}, "mode": "default"}
        return _run_of(self.ask(LAUNCH, params=params)["launchRun"])

    def check(self, asset: str, *names: str) -> str:
        """The run that performs these checks."""
        checks = [{"assetKey": {"path": [asset]}, "name": name} for name in names]
        selector = {
            **self._of,
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [],
            "assetCheckSelection": checks,
        }
        params = {"selector": selector, "mode": "default"}
        return _run_of(self.ask(LAUNCH, params=params)["launchRun"])

    def checked(self, asset: str, name: str) -> tuple[str, str]:
        """Status of the newest execution of a check (SUCCEEDED, FAILED, …), and what it says."""
        [newest] = self.ask(CHECKED, key={"path": [asset]}, name=name)["assetCheckExecutions"]
        return str(newest["status"]), str((newest["evaluation"] or {}).get("description"))

    def again(self, run: str) -> str:
        """Re-executes all of it; the new run."""
        params = {"parentRunId": run, "strategy": "ALL_STEPS"}
        return _run_of(self.ask(AGAIN, params=params)["launchRunReexecution"])

    def terminate(self, run: str) -> None:
        done = self.ask(TERMINATE, run=run)["terminateRun"]
        assert done["__typename"] == "TerminateRunSuccess", done

    def run(self, run: str) -> dict[str, Any]:
        return dict(self.ask(RUN, run=run)["runOrError"])

    def status(self, run: str) -> str:
        return str(self.run(run)["status"])

    def has_ended(self, run: str) -> bool:
        return self.status(run) in ENDED

    def tags(self, run: str) -> dict[str, str]:
        return {tag["key"]: tag["value"] for tag in self.run(run)["tags"]}

    def runs_of(self, asset: str) -> list[dict[str, Any]]:
        """All runs that have selected it, the newest first."""
        found = self.ask(RUNS)["runsOrError"]["results"]
        return [run for run in found if {"path": [asset]} in (run["assetSelection"] or [])]

    def backfill(self, asset: str, *partitions: str) -> str:
        """Of a range, as the dialog requests it; its id."""
        params = {"assetSelection": _paths([asset]), "partitionNames": list(partitions)}
        launched = self.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        return str(launched["backfillId"])

    def backfill_status(self, backfill: str) -> str:
        return str(self.ask(BACKFILL_STATUS, id=backfill)["partitionBackfillOrError"]["status"])

    def freshness(self, asset: str) -> str:
        """How the daemon has judged it last: HEALTHY, WARNING, DEGRADED, UNKNOWN."""
        found = self.ask(FRESHNESS, key={"path": [asset]})["assetNodeOrError"]["freshnessStatusInfo"]
        return str(found["freshnessStatus"]) if found else "UNKNOWN"

    def materializations(self, asset: str) -> list[dict[str, Any]]:
        """The newest first: run, partition, and numbers, texts and paths of the metadata."""
        found = self.ask(EVENTS, key={"path": [asset]})["assetOrError"].get("assetMaterializations", [])
        return [
            {
                "run": event["runId"],
                "partition": event["partition"],
                **{one["label"]: _value_of(one) for one in event["metadataEntries"]},
            }
            for event in found
        ]


def _value_of(entry: Mapping[str, Any]) -> Any:
    return next((entry[kind] for kind in ("intValue", "text", "path", "mdStr") if kind in entry), None)


def _paths(assets: Sequence[str]) -> list[dict[str, list[str]]]:
    return [{"path": [asset]} for asset in assets]


def _run_of(launched: Mapping[str, Any]) -> str:
    assert launched["__typename"] == "LaunchRunSuccess", launched
    return str(launched["run"]["runId"])
