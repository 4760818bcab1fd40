"""A backfill as a person starts it: in the dialog of an asset that has the time partitions of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, found
from tests.browser.pages import Pages
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
from tests.integration.dagster_service import Service

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def service(tmp_path: Path, kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A stream runs, and all that it has finished is wrong; its history is right."""
    if found() is None:
        pytest.skip("there is no Chromium on the PATH: `make browser` installs it, as root on Debian")
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    write_history(tmp_path)
    send(kafka, topic, 0, FIRST)
    with Service(tmp_path, "dagster_backfill", **settings(kafka, topic, tmp_path)) as service:
        service.start("cluster", "daemon", "webserver")
        service.await_end(service.ui.materialize("totals"))
        service.await_that("all rows", lambda: rows_of(tmp_path) == truth(FIRST))
        yield service
    assert service.left() == []


def test_a_range_of_the_dialog_is_computed_again_and_the_stream_goes_on(
    service: Service, kafka: str, topic: str, tmp_path: Path
) -> None:
    [before] = service.jobs("flights")
    with Chromium(tmp_path / "chromium") as browser:
        pages = Pages(browser, service.url)
        pages.enter()
        pages.backfill("minutes", f"[{RANGE[0]}...{RANGE[1]}]", count=2)
        replaced = pages.until_partition_metadata("minutes", RANGE[0], "unistream/rows_added")
    assert int(replaced) > 0
    service.await_that("it is right", lambda: rows_of(tmp_path) == truth(FIRST, TWO_MINUTES))
    [_, after] = service.jobs("flights")
    assert (after.job == before.job, after.ended_ms) == (False, None)
    send(kafka, topic, FIRST, ALL)
    service.await_that("it goes on", lambda: rows_of(tmp_path) == truth(ALL, TWO_MINUTES))
    service.stop("flights")
