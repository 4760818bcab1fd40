"""What somebody can do with what runs: look, click, and type in a second terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

LINK_LASTS_MS: Final = 3_600_000  # of a page of the cluster, for one browser


def of_dev(dagster: str, page: str, work: Path) -> str:
    """In 80 columns, but for addresses and paths.

    Args:
        dagster: Address of its UI.
        page: The link to the pages of the session cluster, for one browser.
        work: Folder of the stack.
    """
    return f"""
Look   {dagster}/assets: the tables, and what each is made of
       {page}
       the jobs that run, and how they do

Click  flights_hourly and flights_cancelled, "Materialize": one job writes both,
       and goes on when the run has ended; each commit is a materialisation.
       Then flights_archive, and flights_history behind it. flights_report comes
       by itself, month by month. "Automation": what happens by the clock

Type   in a second terminal
       {command(work, "list")}
       {command(work, "info flights")}
       {command(work, "stop flights")}
       {command(work, "ui")}

Ctrl-C ends everything.
"""


def of_the_demo(dagster: str, work: Path) -> str:
    """Behind its comparison, when the stack is kept."""
    return f"""
Look   {dagster}/assets: the tables; figures of the run are in
       flights_hourly, "Events"

Click  flights_hourly and flights_cancelled, "Materialize": the job goes on
       behind what is there, and waits for flights

Type   in a second terminal
       {command(work, "list -a")}

Ctrl-C ends everything.
"""


def command(work: Path, words: str) -> str:
    """Of the command line, with the home of this stack, as it can be typed in any terminal and folder."""
    return f"UNISTREAM_HOME={work / 'unistream'} {Path(sys.executable).parent / 'unistream'} {words}"
