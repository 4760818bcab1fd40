"""Pipelines as a stranger writes them: a file that ends where the pipeline is started."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.client.remote.rest_client import Poll

PIPELINE = """
import pyarrow as pa
import unistream as us

def explode(batch):
    raise ValueError("no such flight")

def numbers(env, rows=6, splits=2):
    source = us.DatagenSource(
        {"n": us.datagen.Sequential()}, rows=rows, rows_per_second=None if rows else 50, splits=splits,
        bounded=rows is not None,
    )
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def printed(env):
    numbers(env).print().uid("shown")

def without_uids(env):
    source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, rows_per_second=50, bounded=False)
    stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
    stream.filter(us.col("n") > 3).print("shown")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    (tmp_path / "pipelines.py").write_text(PIPELINE)
    return tmp_path


class Script:
    """A Python process whose output is kept in files."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._files = [folder / name for name in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen([sys.executable, *words], cwd=folder, stdout=out, stderr=err)

    @property
    def out(self) -> list[str]:
        return self._files[0].read_text().splitlines()

    @property
    def err(self) -> str:
        return self._files[1].read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        poll = Poll(WAIT_S)
        while not condition():
            assert self.process.poll() is None, self.err
            assert poll.next(), self.err

    def code(self) -> int:
        return self.process.wait(WAIT_S)


Run = Callable[..., Script]


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    """Runs a script's text, or words of a command."""
    started: list[Script] = []

    def start(text: str | None = None, *words: str) -> Script:
        if text is not None:
            (folder / "script.py").write_text(text)
            words = ("script.py",)
        started.append(Script(folder, *words))
        return started[-1]

    yield start
    for script in started:
        script.process.kill()
        script.process.wait(WAIT_S)


def script(body: str, end: str = 'env.execute_async("first")', parallelism: int = 1) -> str:
    return f"""
import unistream as us
from pipelines import *

env = us.Environment({{"parallelism.default": "{parallelism}"}}, target="local")
{body}
{end}
"""


def test_a_bounded_job_that_nobody_waits_for_finishes_and_its_rows_are_printed(run: Run) -> None:
    job = run(script("printed(env)"))
    assert job.code() == 0, job.err
    assert sorted(job.out) == [f"n={n}" for n in range(6)]


def test_what_a_script_registers_for_its_end_runs_also_if_the_job_fails_behind_it(run: Run) -> None:
    body = (
        "numbers(env).map_batches(explode).print().uid('shown')\nimport atexit; atexit.register(print, 'end')"
    )
    job = run(script(body))
    assert (job.code(), job.out) == (1, ["end"]), job.err


def test_rows_of_several_subtasks_say_whose_they_are_and_stay_in_order(run: Run) -> None:
    job = run(script("numbers(env, rows=2_000, splits=2).print().uid('shown')", "env.execute()", 2))
    assert job.code() == 0, job.err
    numbers = {
        which: [int(line.rpartition("=")[2]) for line in job.out if line.startswith(which)] for which in "12"
    }
    assert len(job.out) == 2_000 == sum(map(len, numbers.values()))
    for found in numbers.values():
        assert found == sorted(found)


def test_what_is_printed_comes_before_what_the_script_prints_after_the_end(run: Run) -> None:
    job = run(script("numbers(env, rows=3_000).print().uid('shown')", "env.execute()\nprint('over')"))
    assert job.code() == 0, job.err
    assert len(job.out) == 3_001
    assert job.out[-1] == "over"


def test_an_unbounded_job_that_nobody_waits_for_goes_on_until_ctrl_c(run: Run) -> None:
    job = run(script("numbers(env, rows=None).print().uid('shown')"))
    job.until(lambda: "Ctrl-C suspends it" in job.err and len(job.out) > 20)
    assert re.search(r"job 'first' \(\w{32}\) runs in this process", job.err)
    job.process.send_signal(signal.SIGINT)
    assert job.code() == 130
    assert "interrupted; suspending job 'first'" in job.err
    assert "Traceback" not in job.err


@pytest.mark.parametrize(
    ("body", "end", "code", "said"),
    [
        pytest.param(
            "numbers(env).map_batches(explode).print().uid('shown')",
            'env.execute_async("first")',
            1,
            "error: job 'first' .* ended as FAILED: .*no such flight",
            id="a job that fails behind the end of the script",
        ),
        pytest.param(
            "numbers(env, rows=None).sink_to(us.BlackholeSink()).uid('out')",
            'env.execute_async("first")\nraise KeyError("typo")',
            1,
            "error: the script failed while job 'first' .* was running, so it is suspended",
            id="a script that fails",
        ),
        pytest.param(
            "numbers(env, rows=None).sink_to(us.BlackholeSink()).uid('out')",
            'with env.execute_async("first"):\n    pass',
            0,
            "event=job_suspended: job 'first' .* was suspended because its cluster was shut down; there is "
            "no checkpoint to resume from",
            id="a client that was closed",
        ),
        pytest.param(
            "printed(env)",
            'env.execute_async("first")\nraise SystemExit(4)',
            4,
            "",
            id="an exit status of its own",
        ),
        pytest.param(
            "numbers(env, rows=None).sink_to(us.BlackholeSink()).uid('out')",
            'import sys\nsys.ps1 = ">>> "\nenv.execute_async("first")',
            1,
            "error: the interpreter ended while job 'first' .* was running, so it is suspended",
            id="an interpreter that is left",
        ),
        pytest.param(
            "printed(env)",
            'import atexit\njob = env.execute_async("first")\n'
            'atexit.register(lambda: print("state", job.status().state))',
            0,
            "",
            id="what the script does at its exit",
        ),
    ],
)
def test_how_a_script_ends(run: Run, body: str, end: str, code: int, said: str) -> None:
    job = run(script(body, end))
    assert job.code() == code, job.err
    assert re.search(said, job.err), job.err
    if "atexit" in end:
        assert job.out[-1] == "state FINISHED"


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "for programs"])
def test_a_run_of_the_command_line_prints_rows(run: Run, as_json: bool) -> None:
    words = ["-m", "unistream.cli", "run", "pipelines:printed", "-t", "local"]
    job = run(None, *words, *(["--json"] if as_json else []))
    assert job.code() == 0, job.err
    rows = [f"n={n}" for n in range(6)]
    if as_json:
        assert json.loads("\n".join(job.out))["state"] == "FINISHED"
        assert sorted(line for line in job.err.splitlines() if line.startswith("n=")) == rows
    else:
        assert sorted(job.out[1:-1]) == rows
        assert "FINISHED" in job.out[-1]
    assert "no uid" not in job.err


def test_operators_whose_state_would_be_lost_are_named_once(run: Run) -> None:
    job = run(None, "-m", "unistream.cli", "run", "pipelines:without_uids", "-t", "local")
    job.until(lambda: len(job.out) > 3)
    job.process.send_signal(signal.SIGINT)
    assert job.code() == 130
    assert job.err.count("no uid on 'numbers', 'print': set one with .uid(...)") == 1
    job = run(script("without_uids(env)"))
    job.until(lambda: len(job.out) > 3)
    assert job.err.count("no uid on 'numbers', 'print': set one with .uid(...)") == 1


FORKED = """
import multiprocessing
import queue

import unistream as us


def rows(found):
    env = us.Environment({"parallelism.default": "1"}, target="local")
    try:
        found.put(env.from_collection([{"n": 1}]).execute_and_collect().num_rows)
    except us.ConfigError as error:
        found.put(str(error))


if __name__ == "__main__":
    for how in ("fork", "fork", "spawn"):
        context = multiprocessing.get_context(how)
        found = context.Queue()
        child = context.Process(target=rows, args=(found,))
        child.start()
        print(found.get(), flush=True)
        child.join()
        rows(queue.Queue())
"""


def test_a_child_that_was_forked_behind_a_job_runs_none_and_a_spawned_one_does(run: Run) -> None:
    """gRPC would wait for ever."""
    job = run(FORKED)
    assert job.code() == 0, job.err
    before, behind, spawned = job.out
    assert (before, spawned) == ("1", "1")
    assert "no cluster can run in this process: it was forked from process" in behind
    assert "get_context('spawn')" in behind
