"""How quick is the web UI in a real browser, and how large is it?

    python -m benchmarks.web_ui                          all parts
    python -m benchmarks.web_ui bundle first
    python -m benchmarks.web_ui charts --running 50
    python -m benchmarks.web_ui memory visits --minutes 60
    python -m benchmarks.web_ui wide --vertices 500 --parallelism 20

bundle: bytes of the built files, gzip. first: the overview of a cluster, with an empty cache. charts: the
overview of running jobs whose lines all change each second: what the frames take. memory: the heap of that
page while it stays open; visits: while somebody goes through the pages of jobs. wide: the page of a job with
many vertices and subtasks, whose workers are scripted: it is laid out, opened and scrolled.

The cluster is a process of its own; browser and cluster share the machine, so each line says its load. What
is wanted stands next to each figure. Answers of the REST API: `python -m benchmarks.service overview`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.service import await_job, cluster, endless, runs
from unistream.client.machine.tokens import token_for
from unistream.client.remote.rest_client import RestClient
from unistream.rest.pages import built

UI: Final = Path(__file__).parents[1] / "ui"
STATIC_IMPORT: Final = re.compile(r"""\b(?:from|import)\s*["']\./([^"']+)["']""")
LINKED: Final = re.compile(r"""(?:src|href)="/assets/([^"]+)\"""")
KB: Final = 1_000
EACH_SECOND: Final = {"heartbeat.interval": "1 s"}  # workers send their counters with it

FIRST_KB: Final = 250
ALL_KB: Final = 700
SHOWN_MS: Final = 1_000
FRAMES_PER_S: Final = 60
LAID_OUT_MS: Final = 1_000


def bundle(_options: argparse.Namespace) -> dict[str, Any]:
    """kB of what the first page loads, and of all files."""
    root = built()
    if root is None:
        raise SystemExit("the web UI is not built: make ui-build")
    page = (root / "index.html").read_text("utf-8")
    files = {path.name: path.read_bytes() for path in (root / "assets").iterdir()}
    sizes = {name: len(gzip.compress(content, 9)) for name, content in files.items()}
    first = _imported(files, set(LINKED.findall(page)))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
    return {
        "first_kb": _kb(sum(sizes[name] for name in first) + len(gzip.compress(page.encode(), 9))),
        "first_wanted_kb": FIRST_KB,
        "all_kb": _kb(sum(sizes.values())),
        "all_wanted_kb": ALL_KB,
        "largest_kb": {name: _kb(sizes[name]) for name in largest},
    }


def _imported(files: Mapping[str, bytes], names: set[str]) -> set[str]:
    """With all that they import at once."""
    found: set[str] = set()
    while names - found:
        name = (names - found).pop()
        found.add(name)
        if name.endswith(".js"):
            names |= set(STATIC_IMPORT.findall(files[name].decode()))
    return found


def _kb(size: int) -> float:
    return round(size / KB, 1)


def first(options: argparse.Namespace) -> dict[str, Any]:
    """ms until the rows of the overview are painted, in browsers that have just been started."""
    with running(20) as url:
        return {"wanted_ms": SHOWN_MS, **browsed("first", url, runs=options.runs)}


def charts(options: argparse.Namespace) -> dict[str, Any]:
    """Frames of the overview while all of its lines change."""
    with running(options.running) as url:
        return {
            "running": options.running,
            "wanted_frames_per_s": FRAMES_PER_S,
            **browsed("charts", url, jobs=options.running, seconds=options.seconds),
        }


def memory(options: argparse.Namespace) -> dict[str, Any]:
    """The heap of a page that stays open, in MB, and how it grows in an hour."""
    with running(options.running) as url:
        return {
            "running": options.running,
            **browsed("memory", url, jobs=options.running, minutes=options.minutes),
        }


def visits(options: argparse.Namespace) -> dict[str, Any]:
    """The heap while somebody goes from page to page."""
    with running(4) as url:
        return browsed("visits", url, minutes=options.minutes)


def wide(options: argparse.Namespace) -> dict[str, Any]:
    """The page of one large job."""
    from benchmarks.web_ui_wide import served

    with served(options.vertices, options.parallelism) as (url, job):
        return {
            "vertices": options.vertices,
            "subtasks": options.vertices * options.parallelism,
            "laid_out_wanted_ms": LAID_OUT_MS,
            **browsed("wide", url, job=job, vertices=options.vertices, seconds=options.seconds),
        }


@contextmanager
def running(jobs: int) -> Iterator[str]:
    """A cluster with as many jobs."""
    config = EACH_SECOND | {"taskmanager.numberOfTaskSlots": str(jobs + 4)}
    with (
        tempfile.TemporaryDirectory(prefix="unistream-web-ui-") as folder,
        cluster(Path(folder), "local", **config) as service,
        RestClient(service.url) as client,
    ):
        for number in range(jobs):
            await_job(client.submit(endless(f"running {number}")), runs)
        yield service.url


def browsed(part: str, url: str, **given: Any) -> dict[str, Any]:
    """What a part of `ui/e2e/figures.mjs` has measured. It may print lines while it does."""
    browser = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None or shutil.which("node") is None:
        raise SystemExit("Chromium or Node are missing: make browser, make setup")
    run = subprocess.run(
        ["node", "e2e/figures.mjs", part, url, json.dumps(given)],
        cwd=UI,
        env={**os.environ, "UNISTREAM_CHROMIUM": browser, "UNISTREAM_TOKEN": token_for(url) or ""},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise SystemExit(f"{part} ended with exit code {run.returncode}")
    return dict(json.loads(run.stdout.splitlines()[-1]))


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "bundle": bundle,
    "first": first,
    "charts": charts,
    "wide": wide,
    "visits": visits,
    "memory": memory,
}


def main() -> None:
    """Prints one line for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=5, help="first: browsers, one after the other")
    parser.add_argument("--running", type=int, default=50, help="charts, memory: jobs")
    parser.add_argument("--seconds", type=float, default=20.0, help="charts, wide: that frames are counted")
    parser.add_argument("--minutes", type=float, default=10.0, help="memory, visits")
    parser.add_argument("--vertices", type=int, default=500)
    parser.add_argument("--parallelism", type=int, default=20)
    options = parser.parse_args()
    for name in options.parts or PARTS:
        line = {"benchmark": "web_ui", "part": name, **PARTS[name](options)}
        print(json.dumps({**line, "load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
