"""`make dev` in a process of its own, and the pages of its UI as a person uses them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.browser.chromium import BrowserError, Chromium
from tests.integration.dagster_ui import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 150.0
RUN_S: Final = 150.0  # of a run until its first checkpoint, on a busy machine
STOP_S: Final = 90.0
COMMAND_S: Final = 60.0
COMMIT_S: Final = 240.0  # until a checkpoint has rows, and the next tick of the sensor reports it
LOOK_EVERY_S: Final = 2.0
TABLES: Final = ("flights_hourly", "flights_cancelled")
# What the config of a run leaves out has the default of the class, not what the code location says.
ATTACHED: Final = "resources: {unistream: {config: {target: remote, mode: attached}}}"
DEFAULTS_ARE_IN: Final = "All defaults expanded"
RUN_PAGE: Final = re.compile(r"/runs/([0-9a-f-]{36})")
TAG: Final = re.compile(r"(unistream/\w+): (\S+)")


class DevStack:
    """Dagster, a session cluster of local processes and a broker; flights arrive all the time."""

    def __init__(self, folder: Path, seconds_a_year: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = folder / "dev.log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        options = ("--target", "local", "--port", str(port), "--seconds-a-year", str(seconds_a_year))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dagster_defs.dev", *options],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "200"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def has_started(self) -> bool:
        """Whether it has said where its UI is."""
        assert self._process.poll() is None, self.output
        return f"Dagster UI {self.url}" in self.output

    def unistream(self, *words: str) -> str:
        """What the command of a user of this stack prints."""
        [work] = self._folder.glob("unistream-dev-*")
        done = subprocess.run(
            [sys.executable, "-m", "unistream.cli", *words],
            env={**os.environ, "UNISTREAM_HOME": str(work / "unistream"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def job(self, job: str) -> dict[str, Any]:
        """As `unistream list -a` knows it."""
        found = json.loads(self.unistream("list", "-a", "--json"))["jobs"]
        [one] = [entry["job"] for entry in found if entry["job"]["job"] == job]
        return dict(one)

    def close(self) -> None:
        """Ctrl-C, and its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
            raise
        assert "everything that was started has been stopped" in self.output, self.output

    def __enter__(self) -> DevStack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Pages:
    """Dagster's UI in a browser. Elements are found by what is written on them."""

    def __init__(self, browser: Chromium, url: str) -> None:
        self.browser = browser
        self._url = url

    def open(self, path: str) -> None:
        self.browser.open(f"{self._url}/{path}")

    def enter(self, stack: DevStack) -> None:
        """Waits for the stack, and closes the greeting that each new instance shows once."""
        self.browser.until(stack.has_started, "make dev has started", START_S)
        self.browser.until(self._answers, "the UI answers", START_S)
        self.browser.click("button", "Skip")
        self.browser.until(lambda: not self.browser.place("button", "Skip"), "the greeting is gone")

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
            return self.browser.text.partition(f" {label} ")[2].partition(" ")[0]

        return str(self.browser.until(look, f"{asset} has {label}", COMMIT_S, LOOK_EVERY_S))
