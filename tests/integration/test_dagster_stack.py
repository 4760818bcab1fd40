"""`make dev` on Spark, and `make demo KEEP=1`, with what one clicks there: each table has each row once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.integration.dagster_service import OF_DAGSTER_MATRIX
from tests.integration.kept_stack import DEMO, DEV, stack

pytestmark = [OF_DAGSTER_MATRIX, pytest.mark.kafka, pytest.mark.timeout(1_200)]

TABLES: Final = ("flights_hourly", "flights_cancelled")
MONTH_S: Final = 300.0
RUN_S: Final = 240.0  # on Spark
JANUARY: Final = "2013-01-01"
HOURS_OF_A_YEAR: Final = 115_205  # rows of flights_hourly


def of_january(table: pa.Table) -> set[tuple[Any, ...]]:
    start = table["window_start"].cast(pa.timestamp("us")).cast(pa.int64())
    first, last = (int(datetime(2013, month, 1, tzinfo=UTC).timestamp() * 1e6) for month in (1, 2))
    rows = table.filter(pc.and_(pc.greater_equal(start, first), pc.less(start, last)))
    names = ("origin", "carrier", "window_start", "flights")
    found = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
    assert len(set(found)) == len(found), "no hour is there twice"
    return set(found)


@pytest.mark.spark
def test_all_assets_of_the_location_on_spark(tmp_path: Path, mark: str) -> None:
    """The stream, its archive, the report of a month that the watermark has closed, and the history, in which
    that month has the same hours."""
    pace = ("--since", JANUARY, "--backlog-months", "0", "--seconds-a-year", "240")
    with stack(tmp_path, mark, "dagster_defs.dev", "--target", "spark", *pace, steps=DEV) as dev:
        streams = [dev.materialized(*assets, limit_s=RUN_S) for assets in (TABLES, ("flights_archive",))]
        jobs = {dev.ui.tags(run)["unistream/job_id"] for run in streams}
        assert len(jobs) == 2, "each stream has a job of its own, and they run side by side"

        def reports() -> list[dict[str, Any]]:
            return [event for event in dev.ui.materializations("flights_report") if event["run"]]

        dev.await_that("a month is reported", reports, MONTH_S)
        oldest = reports()[-1]
        january = of_january(dev.table("flights_hourly"))
        assert oldest["partition"] == JANUARY
        assert oldest["days"] == 31
        assert oldest["flights"] == sum(row[-1] for row in january)
        assert oldest["plot"].startswith("![flights a day](data:image/png;base64,")
        dev.materialized("flights_history", limit_s=RUN_S)
        assert of_january(dev.table("flights_history")) == january
        versions = [event["unistream/table_version"] for event in dev.ui.materializations("flights_history")]
        dev.materialized("flights_history", limit_s=RUN_S)
        assert of_january(dev.table("flights_history")) == january, "a second time nothing is added"
        assert len(dev.ui.materializations("flights_history")) == len(versions) + 1


def test_a_kept_demo_that_is_materialized_again_doubles_nothing(tmp_path: Path, mark: str) -> None:
    options = ("--target", "local", "--seconds", "8", "--keep")
    with stack(tmp_path, mark, "dagster_defs.demo", *options, steps=DEMO) as demo:
        ui, before = demo.ui, demo.table("flights_hourly")
        assert before.num_rows == HOURS_OF_A_YEAR
        first, second = ui.materialize(*TABLES), ui.materialize(*TABLES)
        demo.await_that(
            "one of them has a job",
            lambda: any("unistream/job_id" in ui.tags(run) for run in (first, second)),
        )
        for run in (first, second):
            # Dagster terminates no run whose process it is starting
            demo.await_that("it has begun", lambda run=run: ui.status(run) != "STARTING")
            if not ui.has_ended(run):
                ui.terminate(run)
        demo.await_that("both have ended", lambda: ui.has_ended(first) and ui.has_ended(second))
        statuses = sorted(ui.status(run) for run in (first, second))
        assert "SUCCESS" not in statuses, "a stream has no end"
        assert "CANCELED" in statuses
        third = ui.materialize(*TABLES)
        demo.await_that("it runs", lambda: "unistream/job_id" in ui.tags(third))
        ui.terminate(third)
        demo.await_that("it has ended", lambda: ui.has_ended(third))
        after = demo.table("flights_hourly")
        assert after.num_rows == HOURS_OF_A_YEAR, demo.log()
        shown = [event.get("dagster/row_count") for event in ui.materializations("flights_hourly")]
        assert {count for count in shown if count is not None} <= {HOURS_OF_A_YEAR}, "what the UI says"
