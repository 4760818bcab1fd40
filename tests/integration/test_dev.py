"""`make dev` as a user meets it: Dagster's UI and daemon, a session cluster, data that flows, and Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.kept_stack import DEV, stack

pytestmark = [pytest.mark.kafka]


def test_a_stream_is_materialised_once_and_its_commits_are_seen(tmp_path: Path, mark: str) -> None:
    options = ("--target", "local", "--seconds-a-year", "120")
    with stack(tmp_path, mark, "dagster_defs.dev", *options, steps=DEV) as dev:
        ui = dev.ui
        first = dev.materialized("flights_hourly", "flights_cancelled")
        second = dev.materialized("flights_hourly", "flights_cancelled")
        assert ui.tags(second)["unistream/job_id"] == ui.tags(first)["unistream/job_id"], "one job writes"
        dev.await_that(
            "a commit is a materialisation without a run",
            lambda: any(
                not event["run"] and event["unistream/new_rows"]
                for event in ui.materializations("flights_hourly")
            ),
        )
    assert "everything that was started has been stopped" in dev.log()
