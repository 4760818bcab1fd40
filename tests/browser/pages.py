"""Pages of Dagster's UI as a person uses them. Elements are found by what is written on them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from tests.browser.chromium import STEP_S, BrowserError, Chromium

START_S: Final = 150.0
RUN_S: Final = 150.0  # of a run until its first checkpoint, on a busy machine
COMMIT_S: Final = 240.0  # until a checkpoint has rows, and the next tick of the sensor reports it
LOOK_EVERY_S: Final = 2.0
DRAWN_S: Final = 10.0  # until all lines of an event are drawn; that of JSON waits for an editor to be loaded
DEFAULTS_ARE_IN: Final = "All defaults expanded"
SHOW_MARKDOWN: Final = "[Show Markdown]"
PICTURES: Final = """
[...document.querySelectorAll("img[src^='data:image/png']")].map(img => [img.naturalWidth, img.naturalHeight])
"""
RUN_PAGE: Final = re.compile(r"/runs/([0-9a-f-]{36})")
TAG: Final = re.compile(r"(unistream/\w+): (\S+)")


class Pages:
    """Of the UI at `url`."""

    def __init__(self, browser: Chromium, url: str) -> None:
        self.browser = browser
        self._url = url

    def open(self, path: str) -> None:
        self.browser.open(f"{self._url}/{path}")

    def enter(self, has_started: Callable[[], bool] = lambda: True) -> None:
        """Waits for the UI, which shows no greeting: `nux` is off in the dagster.yaml that we ship."""
        self.browser.until(has_started, "everything has started", START_S)
        self.browser.until(self._answers, "the UI answers", START_S)
        assert not self.browser.place("button", "Skip"), "a greeting covers the page"

    def _answers(self) -> bool:
        try:
            self.open("asset-groups")
        except BrowserError:
            return False
        return True

    def select(self, *assets: str) -> None:
        """In the asset graph: a click on the first, with shift on the others."""
        self.open("asset-groups")
        for number, asset in enumerate(assets):
            self.browser.click("foreignObject *", asset, shift=number > 0)

    def materialize(self, *assets: str) -> str:
        """The run: by the button, and by the link to it that then appears."""
        self.select(*assets)
        self.browser.click("button", f"Materialize selected ({len(assets)})")
        self.browser.click("a, button", "View")
        return self._the_run()

    def materialize_with(self, config: str, *assets: str) -> str:
        """The run: by the button with shift, which opens the launchpad, where `config` is written."""
        self.select(*assets)
        self.browser.click("button", f"Materialize selected ({len(assets)})", shift=True)
        # All defaults come in a while after it has opened; a text is taken in once it has been checked.
        self.browser.until_shown(DEFAULTS_ARE_IN)
        self.browser.click(".CodeMirror-lines")
        self.browser.select_all()
        self.browser.write(config)
        self.browser.until_shown(config)
        self.browser.until(lambda: DEFAULTS_ARE_IN not in self.browser.text, "the launchpad has the config")
        self.browser.click("button", "Materialize")
        return self._the_run()

    def _the_run(self) -> str:
        """Whose page is open."""
        page = self.browser.until(lambda: RUN_PAGE.search(self.browser.url), "the page of the run")
        return str(page[1])

    def until_run(self, run: str, status: str) -> None:
        """Until the page of the run, which is open, shows this status in its head."""
        self.browser.until_shown(f"Runs / {run[:8]} {status}", RUN_S)

    def terminate(self, run: str) -> None:
        """The run whose page is open, until it is over."""
        self.browser.click("button", "Terminate")
        self.browser.click("button", "Terminate 1 run")
        self.until_run(run, "Canceled")
        self.open(f"runs/{run}")  # without the dialog, which closes by itself only if the run ends soon

    def tags(self) -> dict[str, str]:
        """Of the run whose page is open, as its dialog shows them."""
        self.browser.click("button", "View tags and config")
        self.browser.until_shown("Run configuration")
        shown = self.browser.text.rpartition("Run configuration")[2]
        self.browser.click("button", "OK")
        return {name: value.rstrip(",") for name, value in TAG.findall(shown)}

    def until_metadata(self, asset: str, label: str) -> str:
        """The value in the newest materialisation, once it has one; its page is open."""

        def look() -> str:
            self.open(f"assets/{asset}?view=events")  # a page that is open stays at the event that it shows
            self.browser.until_shown("Metadata")
            shown_until = time.monotonic() + DRAWN_S
            while not (value := self.browser.text.partition(f" {label} ")[2].partition(" ")[0]):
                if time.monotonic() > shown_until:
                    break
                time.sleep(STEP_S)
            return value

        return str(self.browser.until(look, f"{asset} has {label}", COMMIT_S, LOOK_EVERY_S))

    def backfill(self, asset: str, partitions: str, *, count: int) -> None:
        """In the dialog of the asset. `partitions`: as one writes them there; `count`: how many it names."""
        self.open(f"assets/{asset}?view=partitions")
        self.browser.click("button", "Materialize…")
        wanted = f"Partition selection {count} partitions"

        def write() -> bool:
            self.browser.click("[placeholder^='ex:']")
            self.browser.select_all()
            self.browser.write(partitions)
            self.browser.press_enter()
            shown_until = time.monotonic() + DRAWN_S
            while wanted not in self.browser.text:
                if time.monotonic() > shown_until:
                    return False  # what it has filled its field in with meanwhile is written over
                time.sleep(STEP_S)
            return True

        self.browser.until(write, f"the dialog has {wanted!r}")
        self.browser.click("button", "Launch backfill")
        self.browser.until(lambda: not self.browser.place("button", "Cancel"), "the dialog is closed")

    def show_markdown(self) -> None:
        """Of the metadata that the page shows."""
        self.browser.click("button, a", SHOW_MARKDOWN)

    def pictures(self) -> list[list[int]]:
        """(width, height) of each picture in the text that is open, as it was sent; without those that
        could not be read."""
        found = self.browser.evaluate(PICTURES)
        return [size for size in found if size[0]]

    def until_partition_metadata(self, asset: str, partition: str, label: str) -> str:
        """The value in the newest materialisation of a partition, once it has one; its page is open."""

        def look() -> str:
            self.open(f"assets/{asset}?view=partitions&partition={quote(partition)}")
            self.browser.until_shown("Latest materialization")
            return self.browser.text.partition(f" {label} ")[2].partition(" ")[0]

        return str(self.browser.until(look, f"{partition} of {asset} has {label}", COMMIT_S, LOOK_EVERY_S))
