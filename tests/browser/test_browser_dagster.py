"""Dagster's UI as a person uses it: Materialize, the page of the run, its metadata, Terminate.

The stack is that of `make dev`, the browser a real one: `make browser` installs Chromium and runs this.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.browser.chromium import Chromium, found
from tests.browser.dev_stack import ATTACHED, TABLES, DevStack
from tests.browser.pages import COMMIT_S, Pages
from tests.eventually import eventually
from tests.integration.test_demo import marked

PACE: Final = ("--seconds-a-year", "360")  # a month in 30 s
FLIGHTS: Final = ("--since", "2013-01-01", "--backlog-months", "0", *PACE)
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]  # with the start of everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    stack: DevStack
    browser: Chromium
    pages: Pages


@pytest.fixture(scope="module")
def mark() -> Iterator[str]:
    """An environment value that every process inherits; none of them may be left."""
    value = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TEST_MARK", value)
        yield value
        environment.delenv("TEST_MARK")
        eventually(lambda: marked(value) == [], "no process is left")


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Iterator[Screen]:
    """The UI of a new stack, at its asset graph."""
    if found() is None:
        pytest.skip("there is no Chromium on the PATH: `make browser` installs it, as root on Debian")
    folder = tmp_path_factory.mktemp("browser")
    with (
        DevStack(folder / "stack", *FLIGHTS) as stack,
        Chromium(folder / "chromium") as browser,
    ):
        pages = Pages(browser, stack.url)
        pages.enter(stack.has_started)
        yield Screen(stack=stack, browser=browser, pages=pages)


def test_materialize_shows_the_job_and_then_what_it_commits(screen: Screen) -> None:
    run = screen.pages.materialize(*TABLES)
    screen.pages.until_run(run, "Success")
    job = screen.pages.tags()["unistream/job_id"]
    assert screen.stack.job(job)["state"] == "RUNNING", "the run has ended, and its job goes on"
    assert number(screen.pages.until_metadata("flights_hourly", "unistream/new_rows")) > 0
    assert screen.pages.until_metadata("flights_hourly", "unistream/job_id") == job
    assert number(screen.pages.until_metadata("flights_hourly", "unistream/checkpoint_id")) > 0


def number(shown: str) -> int:
    return int(shown.replace(",", ""))


def test_the_report_of_a_closed_month_shows_its_picture(screen: Screen) -> None:
    """Nobody asks for it: the watermark has closed the month, and the automation starts the report."""
    pages, browser = screen.pages, screen.browser
    pages.until_run(pages.materialize(*TABLES), "Success")
    assert number(pages.until_partition_metadata("flights_report", "2013-01-01", "days")) == 31
    pages.show_markdown()
    width, height = browser.until(pages.pictures, "the picture is painted")[0]
    assert width > 2 * height > 0, "it is the plot, not the sign of a picture that cannot be read"


def test_terminate_stops_the_job_with_a_savepoint(screen: Screen) -> None:
    run = screen.pages.materialize_with(ATTACHED, *TABLES)
    screen.pages.until_run(run, "Started")
    screen.browser.until_shown("ASSET_OBSERVATION", COMMIT_S)
    screen.pages.terminate(run)
    tags = screen.pages.tags()
    job = screen.stack.job(tags["unistream/job_id"])
    assert job["state"] == "FINISHED"
    assert Path(tags["unistream/savepoint"].removeprefix("file://"), "_metadata").stat().st_size > 0
