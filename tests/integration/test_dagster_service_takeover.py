"""Streams under a real daemon and a real webserver, on a cluster of two masters: the leader is killed, and
the standby takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.dagster_service import OF_DAGSTER_MATRIX, Service
from tests.integration.zookeeper_leaders import new_cluster
from unistream.client.remote.address import options_of

pytestmark = [OF_DAGSTER_MATRIX]


def test_runs_and_commits_go_on_with_the_next_leader(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attached run waits through it, and what a detached one has left is found by the next click."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    found_by = {
        **options_of(f"zookeeper://{zookeeper}"),
        "high-availability.cluster-id": new_cluster(),
        "high-availability.zookeeper.client.session-timeout": "3 s",
    }
    with Service(tmp_path, "dagster_streams", found_by=found_by) as service:
        ui = service.ui
        service.start("cluster", "standby", "daemon", "webserver")
        attached, clicked = ui.materialize("leader"), ui.materialize("clicks")
        service.await_end(clicked)
        before = {name: service.await_rows(name) for name in ("leader", "clicks")}
        service.kill(service.leader())
        again = ui.materialize("clicks")
        for name, rows in before.items():
            service.await_rows(name, rows)
        service.await_end(again)
        assert ui.status(attached) == "STARTED"
        [job] = service.jobs("clicks")
        assert {ui.tags(run)["unistream/job_id"] for run in (clicked, again)} == {job.job}
        ui.terminate(attached)
        service.await_end(attached, "CANCELED")
        [ended] = service.jobs("leader")
        assert (ended.state, ended.job) == ("FINISHED", ui.tags(attached)["unistream/job_id"])
        service.stop("clicks")
        total = len(service.ids("clicks"))

        def reported() -> int:
            events = ui.materializations("clicks")
            return sum(event["unistream/new_rows"] for event in events if not event["run"])

        service.await_that("all rows are reported", lambda: reported() >= total)
        assert reported() == total, "those before and after it, each once"
        for name in before:
            service.assert_exact(name)
    assert service.left() == []
