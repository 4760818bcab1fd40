"""What a Delta table says of the line of jobs that writes it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.contract.sinks.test_sink_exactly_once import (
    delta,
)
from tests.contract.sinks.test_sink_line import LINE, OTHER, Job
from unistream.connector.common import number_of
from unistream.connector.delta.branch import LINE_ID


def transactions(table: Path) -> list[dict[str, int]]:
    """Of each version: application id and version."""
    found = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        found.append({one["txn"]["appId"]: one["txn"]["version"] for one in actions if "txn" in one})
    return found


def test_each_commit_names_the_line_and_the_job_so_that_neither_expires_while_it_is_used(
    tmp_path: Path,
) -> None:
    job = Job(delta(tmp_path), "a")
    saved = [job.checkpoint(1), job.checkpoint(2)][-1]
    Job(delta(tmp_path), "b", since=saved).checkpoint(3)
    Job(delta(tmp_path, on_foreign="append"), "c", lineage=OTHER).checkpoint(4)
    writer, other = (f"unistream/{lineage}/the sink/writer" for lineage in (LINE, OTHER))
    a, b, c = (number_of(name * 32) for name in "abc")
    said = [
        {name: version for name, version in one.items() if name in (LINE_ID, writer, other)}
        for one in transactions(tmp_path / "table")
    ]
    assert [one for one in said if one] == [
        {LINE_ID: number_of(LINE), writer: a},
        {LINE_ID: number_of(LINE), writer: a},
        {LINE_ID: number_of(LINE), writer: b},
        {other: c},
    ]
