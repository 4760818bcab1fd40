"""The web UI in a real Chromium, against a cluster that runs: what the cases of `ui/e2e` need.

The cases are JavaScript, over playwright-core: it waits for what is shown, and axe runs in the page; both
come with the packages of the UI, which needs Node anyway. A case signs in by a link, for which it asks with
the owner's token. `tests.browser.chromium` is for pages of others, which are tested where Node is not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import unistream as us
from tests.browser import chromium
from tests.modes import STREAMING
from unistream.client.machine import home
from unistream.client.machine.tokens import token_for
from unistream.client.remote.certificates import authorities
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.rest.pages import built

UI: Final = Path(__file__).parents[2] / "ui"
CASE_S: Final = 600  # nobody waits longer for a case; otherwise it takes seconds
CHECKPOINTED: Final = {"execution.checkpointing.interval": "1 s", "pipeline.max-parallelism": "8"}


def missing() -> str | None:
    """What is not here, and how it comes; None: all is."""
    if shutil.which("node") is None or not (UI / "node_modules" / "playwright-core").is_dir():
        return "Node or the packages of the web UI are missing: `make setup` installs them"
    if built() is None:
        return "the web UI is not built: `make ui-build`"
    if chromium.found() is None:
        return "there is no Chromium on the PATH: `make browser` installs it, as root on Debian"
    return None


def login_link(url: str) -> str:
    """What `unistream ui` prints: it lets one browser in, once."""
    with RestClient(url) as cluster:
        return TokensClient(cluster).login_link()


def check_case(module: str, name: str, url: str, **given: Any) -> None:
    """Runs `name` of `ui/e2e/<module>.mjs` against the cluster at `url`; fails with its words."""
    with running_case(module, name, url, **given):
        pass


@contextmanager
def running_case(module: str, name: str, url: str, **given: Any) -> Iterator[Callable[[str], list[str]]]:
    """The same, while something else is done. What it gives waits until the case prints that word, and has
    the lines before it. Node believes the authority of the cluster."""
    found = chromium.found()
    assert found is not None
    own = {"UNISTREAM_CHROMIUM": found, "UNISTREAM_TOKEN": token_for(url) or "", **_believed(url)}
    with subprocess.Popen(
        ["node", "e2e/run.mjs", module, name, url, json.dumps(given)],
        cwd=UI,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def await_word(word: str) -> list[str]:
            assert process.stdout is not None
            before: list[str] = []
            for line in process.stdout:
                if line.strip() == word:
                    return before
                before.append(line.strip())
            _, err = process.communicate(timeout=CASE_S)
            pytest.fail(f"{module}.{name} has ended before {word!r}\n{err}")

        try:
            yield await_word
            out, err = process.communicate(timeout=CASE_S)
            assert process.returncode == 0, f"{module}.{name}\n{err}\n{out}"
        finally:
            process.kill()


def _believed(url: str) -> dict[str, str]:
    """What Node reads the authority of a cluster from, in the home folder of the test."""
    if not url.startswith("https:"):
        return {}
    path = home.home() / "authority.pem"
    with RestClient(url) as cluster:
        path.write_text(authorities(cluster))
    return {"NODE_EXTRA_CA_CERTS": str(path)}


def windows(folder: Path, parallelism: int) -> us.Environment:
    """An endless stream with windows, into files below `folder`."""
    env = us.Environment({**STREAMING, **CHECKPOINTED, "parallelism.default": str(parallelism)})
    columns = {
        "key": us.datagen.RandomInt(0, 50),
        "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=100, disorder_ms=500),
    }
    source = us.DatagenSource(columns, rows=None, bounded=False, seed=7, rows_per_second=200, splits=4)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    rows = env.from_source(source, watermarks, "flights").uid("flights")
    counted = rows.key_by("key").window(us.TumblingEventTimeWindows.of("10 s")).aggregate(n=us.count())
    counted.uid("windows").sink_to(us.FileSink(str(folder / "out"))).uid("out")
    return env


def writes(lake: Path) -> us.Environment:
    """An endless stream into a Delta table."""
    env = us.Environment({**STREAMING, **CHECKPOINTED, "parallelism.default": "1"})
    numbers = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=100)
    rows = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows.sink_to(us.DeltaSink(str(lake))).uid("lake")
    return env


def reads(lake: Path, out: Path) -> us.Environment:
    """An endless stream of what another job writes there."""
    env = us.Environment({**STREAMING, **CHECKPOINTED, "parallelism.default": "1"})
    rows = env.from_source(
        us.DeltaSource(str(lake), bounded=False), us.WatermarkStrategy.no_watermarks(), "lake"
    ).uid("lake")
    rows.sink_to(us.FileSink(str(out))).uid("files")
    return env


def fails(folder: Path, message: str = "fare 7 is none") -> us.Environment:
    """A stream whose function fails at its eighth row, for good."""

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 7 in batch.column("n").to_pylist():
            raise ValueError(message)
        return batch

    env = us.Environment({**STREAMING, **CHECKPOINTED, "restart-strategy.type": "none"})
    numbers = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=100)
    rows = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    schema = pa.schema([("n", pa.int64())])
    rows.map_batches(refuse, returns=schema).uid("refuse").sink_to(us.FileSink(str(folder / "out"))).uid(
        "out"
    )
    return env


HOSTILE: Final = (
    '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
    " {{7*7}} \N{RIGHT-TO-LEFT OVERRIDE}\N{ARABIC LETTER AIN}\N{ARABIC LETTER REH}\N{ARABIC LETTER BEH} "
    "\N{CJK UNIFIED IDEOGRAPH-540D}\N{ALCHEMICAL SYMBOL FOR QUINTESSENCE} " + "long" * 50
)
"""Some 300 characters: HTML, a script, a template, right-to-left, and no space to break at."""


def printable(length: int) -> str:
    """Of it, for names that are lines."""
    return "".join(one for one in HOSTILE if one.isprintable())[:length]


def hostile(folder: Path) -> us.Environment:
    """An endless stream whose operator, log, rows and state have such names and values."""
    name = printable(300)

    def logged(batch: pa.RecordBatch) -> pa.RecordBatch:
        print(HOSTILE)
        return batch.set_column(0, "key", pa.array([HOSTILE] * batch.num_rows))

    env = us.Environment({**STREAMING, **CHECKPOINTED, "parallelism.default": "1"})
    columns = {
        "key": us.datagen.RandomInt(0, 50),
        "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=100),
    }
    source = us.DatagenSource(columns, rows=None, bounded=False, seed=7, rows_per_second=20)
    watermarks = us.WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_column("at")
    rows = env.from_source(source, watermarks, name).uid("source")
    schema = pa.schema([("key", pa.string()), ("at", source.schema.field("at").type)])
    named = rows.map_batches(logged, returns=schema).name(name).uid("logged")
    counted = named.key_by("key").window(us.TumblingEventTimeWindows.of("1 h")).aggregate(n=us.count())
    counted.name(name).uid("windows").sink_to(us.FileSink(str(folder / "<b>out</b>"))).uid("out")
    return env


FARES: Final = """
import pyarrow as pa
import unistream as us

TEXTS = pa.table({"id": [1, 2, 3], "fare": ["95", "<b>free</b>", "no fare"]})


def build(env):
    rows = env.from_source(us.StaticSource(TEXTS), us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    fares = rows.with_columns(fare=us.col("fare").cast("int64"), on_error="dead-letter").uid("fares")
    fares.sink_to(us.DeltaSink("lake/fares")).uid("lake")
    fares.dead_letters_to(us.DeltaSink("lake/dead"))
"""
"""A module with a pipeline, two of whose rows become letters; its tables are below the working directory."""


def run_command(folder: Path, *words: str) -> str:
    """What a command says that ends well, in `folder`, which has modules."""
    run = subprocess.run(
        [sys.executable, "-m", "unistream.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{UI.parent}"},
        capture_output=True,
        text=True,
        timeout=CASE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
