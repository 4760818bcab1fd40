"""`unistream run --detached`: a process behind the terminal that lives exactly as long as its job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.cli_terminal import Terminal

TARGETS = ["local", pytest.param("spark", marks=pytest.mark.spark)]

PIPELINE = """
import unistream as us

def rows(env, **options):
    source = us.DatagenSource({"id": us.datagen.Sequential()}, **options)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")

def endless(env):
    rows(env, rows=None, bounded=False, rows_per_second=1000).sink_to(us.DeltaSink("table")).uid("table")

def bounded(env):
    rows(env, rows=1000, rows_per_second=500).sink_to(us.DeltaSink("table")).uid("table")

def failing(env):
    rows(env, rows=10).map(lambda row: 1 / 0).sink_to(us.BlackholeSink()).uid("out")
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path, PIPELINE)
    yield made
    for process in made.processes():  # only after a failure
        process.kill()


@pytest.mark.parametrize("target", TARGETS)
def test_a_detached_job_survives_its_terminal_is_found_and_stopped(
    terminal: Terminal, tmp_path: Path, target: str
) -> None:
    started = terminal.run("endless", target)
    process = psutil.Process(started["pid"])
    assert os.getsid(process.pid) == process.pid != os.getsid(0), (
        "a session of its own: no hang-up reaches it"
    )
    process.send_signal(signal.SIGHUP)  # and if one does
    [listed] = terminal.json("list")["jobs"]
    assert (listed["job"]["job"], listed["cluster"]) == (started["job"], started["url"])
    terminal.until(
        lambda: terminal.json("info", started["job"])["checkpoints_completed"] >= 2, "a checkpoint"
    )
    others = (("upgrade", started["job"], "pipeline:bounded"), ("run", "pipeline:failing", "-t", "remote"))
    for words in others:
        assert "for one job, and ends with it" in terminal(*words, code=2).stderr
    savepoint = terminal.json("stop", started["job"], "-p", str(tmp_path / "savepoints"))["savepoint"]
    assert (Path(savepoint.removeprefix("file://")) / "_metadata").exists()
    terminal.until_nothing_is_left()
    assert f"savepoint: {savepoint}" in Path(started["log"]).read_text()
    assert terminal.json("list")["jobs"] == []


def test_it_ends_with_its_job(terminal: Terminal) -> None:
    started = terminal.run("bounded", "local")
    terminal.until_nothing_is_left()
    assert "table: 1,000 rows committed" in Path(started["log"]).read_text()


@pytest.mark.parametrize("how", ["cancel", "SIGTERM", "SIGKILL"])
def test_nothing_of_it_is_left_however_it_ends(terminal: Terminal, how: str) -> None:
    started = terminal.run("endless", "local")
    if how == "cancel":
        terminal("cancel", started["job"])
    else:
        os.kill(started["pid"], getattr(signal, how))
    terminal.until(lambda: not terminal.processes(), "the end of all processes")
    assert terminal.json("list")["jobs"] == []


def test_why_a_job_failed_is_in_the_printed_log(terminal: Terminal) -> None:
    done = terminal("run", "pipeline:failing", "-t", "local", "-d", "-D", "restart-strategy.type=none")
    accepted, log = done.stdout.splitlines()
    assert "it runs in process" in accepted
    terminal.until(lambda: not terminal.processes(), "the end of all processes")
    assert "ZeroDivisionError" in Path(log.removeprefix("log: ")).read_text()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        pytest.param(["-s", "nowhere"], 2, "nowhere", id="no such savepoint"),
        pytest.param(
            ["-D", "metadata.url=nonsense"], 2, "metadata.url is not", id="a cluster that cannot start"
        ),
    ],
)
def test_what_is_refused_is_said_at_once_and_nothing_stays(
    terminal: Terminal, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    done = terminal("run", "pipeline:endless", "-t", "local", "--detached", *words, code=code)
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    terminal.until_nothing_is_left()
    assert list((tmp_path / "home" / "logs").iterdir()) == []
