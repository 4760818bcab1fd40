"""A cleaner empties the folder for temporary files while a job runs: it survives the loss of a worker."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.crash_runs import Command, await_info, commands_in, entry_of, job_of
from unistream.client.remote.rest_client import RestClient
from unistream.connector.collect import read_collected

PIPELINE = """
import unistream as us
from unistream.connector.collect import CollectSink
from unistream.connector.datagen import DatagenSource, Sequential

def counted(env):
    source = DatagenSource({"n": Sequential()}, splits=2, rows=20000, rows_per_second=2000)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows.key_by("n").process(Same(), returns=source.schema).uid("same").sink_to(CollectSink("out")).uid("out")

class Same(us.KeyedProcessFunction):
    def process_element(self, row, context, out):
        out.emit(row)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="us-"))  # short: the path of a socket has at most 107 bytes
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    (tmp_path / "emptied_pipeline.py").write_text(PIPELINE)
    with commands_in(tmp_path) as start:
        yield start


@pytest.mark.parametrize("whole", [False, True], ids=["emptied", "removed"])
def test_a_lost_worker_is_replaced_after_the_folder_was_emptied(
    start: Callable[..., Command], tmp_path: Path, temporary: Path, whole: bool
) -> None:
    run = start(
        *("run", "emptied_pipeline:counted", "-t", "local", "-p", "2"),
        *("-D", "execution.runtime-mode=STREAMING", "-D", "execution.checkpointing.interval=200ms"),
        *("-D", "state.backend.type=rocksdb"),
        env={"TMPDIR": str(temporary)},
    )
    job = job_of(run.line())
    with RestClient(entry_of(tmp_path)["url"]) as client:
        info = await_info(client, job, lambda i: i.state == "RUNNING" and i.checkpoints_completed >= 2)
        victim = info.task_managers[0]
        for path in (temporary,) if whole else tuple(temporary.iterdir()):
            shutil.rmtree(path)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        await_info(client, job, lambda i: i.state == "RUNNING" and i.restarts >= 1)
    assert run.wait() == 0, run.err
    assert sorted(read_collected(str(tmp_path / "out"))["n"].to_pylist()) == list(range(20000))
    run.assert_nothing_is_left()
    assert not list(temporary.glob("*unistream-*"))
