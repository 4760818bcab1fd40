"""A range of partitions in Dagster's backfill dialog, under a real daemon that is killed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.dagster_minutes import (
    ALL,
    FIRST,
    RANGE,
    TWO_MINUTES,
    rows_of,
    send,
    settings,
    truth,
    write_history,
)
from tests.integration.dagster_service import OF_DAGSTER_MATRIX, Service

pytestmark = [OF_DAGSTER_MATRIX, pytest.mark.kafka]


def test_a_backfill_of_the_dialog_is_one_run_though_the_daemon_dies(
    tmp_path: Path, kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    write_history(tmp_path)
    send(kafka, topic, 0, FIRST)
    with Service(tmp_path, "dagster_backfill", **settings(kafka, topic, tmp_path)) as service:
        ui = service.ui

        def await_rows(wanted: list[tuple[int, int, int, int]]) -> None:
            service.await_that("all rows", lambda: len(rows_of(tmp_path)) >= len(wanted))
            assert rows_of(tmp_path) == wanted

        service.start("cluster", "daemon", "webserver")
        service.await_end(ui.materialize("totals"))
        await_rows(truth(FIRST))
        for times in (1, 2):
            backfill = ui.backfill("minutes", *RANGE)
            if times == 1:
                service.await_that("its run", lambda: ui.runs_of("minutes"))
                service.kill("daemon")
                service.start("daemon")
            service.await_that("it ends", lambda found=backfill: ui.backfill_status(found) != "REQUESTED")
            assert ui.backfill_status(backfill) == "COMPLETED_SUCCESS", service.logs()
            runs = ui.runs_of("minutes")
            assert [run["status"] for run in runs] == ["SUCCESS"] * times
            await_rows(truth(FIRST, TWO_MINUTES))
        events = [event for event in ui.materializations("minutes") if event["run"]]
        assert sorted(event["partition"] for event in events) == sorted(RANGE * 2)
        assert len([job for job in service.jobs("flights") if job.ended_ms is None]) == 1
        send(kafka, topic, FIRST, ALL)
        await_rows(truth(ALL, TWO_MINUTES))
        service.stop("flights")
    assert service.left() == []
