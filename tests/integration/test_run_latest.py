"""`run -s latest`: a stream goes on from what its last job has left, however that ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import Command, commands_in, in_the_gate, job_of

ROWS = 6_000
LONG_ROWS = 20_000  # still under way when a second process has started, on a busy machine as well

PIPELINES = f"""
import unistream as us

def numbers(env, rows={ROWS}):
    source = us.DatagenSource({{"n": us.datagen.Sequential()}}, rows=rows, rows_per_second=1_000, splits=2)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def delta(env):
    numbers(env).sink_to(us.DeltaSink("out")).uid("lake")

def long(env):
    numbers(env, {LONG_ROWS}).sink_to(us.DeltaSink("out")).uid("lake")

def files(env):
    numbers(env).sink_to(us.FileSink("out", format="parquet")).uid("lake")

def both(env):
    rows = numbers(env)
    rows.sink_to(us.DeltaSink("out")).uid("lake")
    rows.sink_to(us.FileSink("copy", format="parquet")).uid("copy")
"""

OPTIONS = (
    *("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=200ms"),
    *("-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"),
    *("-D", "execution.checkpointing.dir=checkpoints", "-p", "2", "-t", "local"),
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    (tmp_path / "latest_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def delta_rows(folder: Path) -> list[int]:
    if not (folder / "_delta_log").exists():
        return []
    return list(DeltaTable(str(folder)).to_pyarrow_table().column("n").to_pylist())


def file_rows(folder: Path) -> list[int]:
    found = [str(path) for path in folder.glob("[!_.]*.parquet")]
    return list(ds.dataset(found).to_table().column("n").to_pylist()) if found else []


ROWS_OF: dict[str, Callable[[Path], list[int]]] = {
    "delta": delta_rows,
    "files": file_rows,
    "both": delta_rows,
}


def by_stop(run: Command, start: Callable[..., Command], job: str) -> None:
    assert start("stop", job, "-p", "savepoints").wait() == 0
    assert run.wait() == 0


def by_drain(run: Command, start: Callable[..., Command], job: str) -> None:
    assert start("stop", job, "--drain", "-p", "savepoints").wait() == 0
    assert run.wait() == 0


def by_cancel(run: Command, start: Callable[..., Command], job: str) -> None:
    assert start("cancel", job).wait() == 0
    run.wait()


def by_signal(run: Command, _start: Callable[..., Command], _job: str) -> None:
    assert run.end(signal.SIGTERM) == 130


def by_kill(run: Command, _start: Callable[..., Command], _job: str) -> None:
    run.end(signal.SIGKILL)


ENDS = [
    pytest.param("delta", by_stop, id="delta, stopped with a savepoint"),
    pytest.param("delta", by_drain, id="delta, drained"),
    pytest.param("files", by_kill, id="files, killed"),
    pytest.param("files", by_cancel, id="files, cancelled"),
    pytest.param("files", by_signal, id="files, suspended"),
    pytest.param("both", by_kill, id="two sinks, killed"),
]


@pytest.mark.parametrize(("pipeline", "ends"), in_the_gate(ENDS, 1, 5))
def test_a_stream_goes_on_from_what_its_last_job_has_left(
    start: Callable[..., Command], tmp_path: Path, pipeline: str, ends: Callable[..., None]
) -> None:
    rows, out = ROWS_OF[pipeline], tmp_path / "out"
    command = ("run", f"latest_pipelines:{pipeline}", *OPTIONS, "-s", "latest")
    first = start(*command)
    job = job_of(first.line())
    eventually(lambda: len(rows(out)) > 500, "it has committed", WAIT_S)
    ends(first, start, job)
    assert "starts from the beginning" in first.err
    before = rows(out)
    assert 0 < len(before) < ROWS
    second = start(*command)
    assert second.wait() == 0, second.err
    assert "goes on from" in second.err
    assert sorted(rows(out)) == list(range(ROWS))
    if pipeline == "both":
        assert sorted(file_rows(tmp_path / "copy")) == list(range(ROWS))
    third = start(*command)
    assert third.wait() == 2, "it has read everything: nothing is left to go on from"
    assert "on_foreign='append'" in third.err
    assert sorted(rows(out)) == list(range(ROWS))


def test_a_stream_that_runs_is_not_continued(start: Callable[..., Command], tmp_path: Path) -> None:
    command = ("run", "latest_pipelines:long", *OPTIONS, "-s", "latest")
    first = start(*command)
    job = job_of(first.line())
    eventually(lambda: len(delta_rows(tmp_path / "out")) > 500, "it has committed", WAIT_S)
    second = start(*command)
    assert second.wait() == 2, second.err
    assert f"job {job} (unistream job) is RUNNING and writes the same output" in second.err
    assert first.wait() == 0
    assert sorted(delta_rows(tmp_path / "out")) == list(range(LONG_ROWS))
