"""`make screenshots`: the pictures of docs/, from real clusters. ONLY=dagster|ui|incidents takes those alone.

docs/guide/dagster.md, of Dagster's UI, from the stack of `make dev`:

    asset-graph.png   the tables with their states
    run.png           an attached run with its observations, and the button that terminates it
    commits.png       what a commit of the stream says on the page of its table
    plots.png         its numbers over time

docs/guide/ui.md, of a stream that runs well:

    ui-overview.png, ui-job.png, ui-checkpoints.png, ui-timeline.png

docs/guide/incidents.md, of one that does not: see `tests.browser.incidents`
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.browser.chromium import Chromium
from tests.browser.dev_stack import ATTACHED, ROOT, TABLES, DevStack
from tests.browser.incidents import INCIDENTS, running_well
from tests.browser.pages import COMMIT_S, Pages
from unistream.client.machine.home import HOME_VARIABLE

PICTURES: Final = ROOT / "docs" / "pictures"
TO_THE_TOP: Final = """
[...document.querySelectorAll('*')].findLast(node => node.innerText === 'Description').scrollIntoView()
"""
PICTURE_BYTES_MAX: Final = 300_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, or an error is raised."""
    parser = argparse.ArgumentParser(description="Takes the pictures of the documentation.")
    parser.add_argument("--folder", type=Path, default=PICTURES)
    parser.add_argument("--only", choices=TAKERS, help="default: all")
    given = parser.parse_args(arguments)
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, take_some in TAKERS.items():
        if given.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="unistream-screenshots-") as work:
            os.environ[HOME_VARIABLE] = f"{work}/home"
            taken = take_some(folder, Path(work))
        for picture in taken:
            size = picture.stat().st_size
            assert size < PICTURE_BYTES_MAX, f"{picture.name} has {size} bytes"
            print(f"{picture} {size // 1_000} kB", flush=True)
    return 0


def take_dagster(folder: Path, work: Path) -> list[Path]:
    """Of Dagster's UI."""
    with (
        DevStack(work / "stack", "--seconds-a-year", "3600") as stack,
        Chromium(work / "chromium") as browser,
    ):
        pages = Pages(browser, stack.url)
        pages.enter(stack.has_started)
        return take(pages, folder)


def take_ui(folder: Path, work: Path) -> list[Path]:
    """Of the web UI, while all is well."""
    with running_well(work) as scene:
        scene.check(folder)
    return scene.pictures(folder)


def take_incidents(folder: Path, work: Path) -> list[Path]:
    """Of the web UI, while something is not."""
    taken: list[Path] = []
    for name, incident in INCIDENTS.items():
        with incident(work / name) as scene:
            scene.check(folder)
        taken += scene.pictures(folder)
    return taken


def take(pages: Pages, folder: Path) -> list[Path]:
    """The pictures."""
    browser = pages.browser
    first = pages.materialize(*TABLES)
    pages.until_run(first, "Success")
    pages.until_metadata("flights_hourly", "unistream/new_rows")
    taken = [browser.picture(folder / "commits.png")]
    for _ in range(2):
        await_next(pages, "unistream/outbox_seq")
    taken.append(plots(pages, folder / "plots.png"))
    taken.append(asset_graph(pages, folder / "asset-graph.png"))
    second = pages.materialize_with(ATTACHED, *TABLES)
    browser.until_shown("ASSET_OBSERVATION", COMMIT_S)
    pages.open(f"runs/{second}")  # its head follows more slowly than its log
    pages.until_run(second, "Started")
    browser.until(lambda: browser.text.count("ASSET_OBSERVATION") > len(TABLES), "the next observations")
    taken.append(browser.picture(folder / "run.png"))
    pages.terminate(second)
    return taken


def await_next(pages: Pages, label: str) -> None:
    """Until flights_hourly has another value of it."""
    seen = pages.until_metadata("flights_hourly", label)
    pages.browser.until(
        lambda: pages.until_metadata("flights_hourly", label) != seen, f"a new {label}", COMMIT_S
    )


def asset_graph(pages: Pages, path: Path) -> Path:
    """All of it, with what is known of each asset."""
    browser = pages.browser
    pages.open("asset-groups")
    browser.click("button", "Hide navigation")
    pages.open("asset-groups")  # the graph is made to fit once, when the page opens
    browser.click("button:has([aria-label=panel_show_right])")  # the list of the assets
    browser.click("button:has([aria-label=zoom_in])")
    browser.until_shown("Latest event")  # in the boxes, once they are large enough
    browser.until(lambda: browser.text.count("3 / 3 Passed") == len(TABLES), "the checks of both", COMMIT_S)
    browser.until(lambda: "Loading" not in browser.text, "the states of the assets")
    return browser.picture(path)


def plots(pages: Pages, path: Path) -> Path:
    """Of the numbers in the metadata."""
    browser = pages.browser
    pages.open("assets/flights_hourly?view=overview")
    browser.click("button", "Plots")
    browser.until_shown("unistream/new_commits")
    browser.until(lambda: "Passing" in browser.text, "the freshness of the table")
    browser.evaluate(TO_THE_TOP)
    return browser.picture(path)


TAKERS: Final[Mapping[str, Callable[[Path, Path], list[Path]]]] = {
    "dagster": take_dagster,
    "ui": take_ui,
    "incidents": take_incidents,
}


if __name__ == "__main__":
    sys.exit(main())
