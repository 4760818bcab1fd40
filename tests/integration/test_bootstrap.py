"""History by `unistream bootstrap` on Spark, then live rows of a real topic: each row once, whoever dies."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.eventually import WAIT_S, eventually
from tests.integration import bootstrap_pipeline, hybrid_rows
from tests.integration.crash_runs import Command, Crashes, commands_in, in_the_gate
from tests.integration.hybrid_rows import BOTH, FENCE, FENCE_MS, assert_exact

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROWS = 4_000
PIPELINE = "tests.integration.bootstrap_pipeline:build"
SPARK = ("-t", "spark", "-D", "spark.master=local[2]", "-p", "3")


class _Place:
    """A folder with the history, and a topic with the rest."""

    def __init__(self, folder: Path, kafka: str, topic: str, start: Callable[..., Command]) -> None:
        self.folder, self._kafka, self._topic, self._start = folder, kafka, topic, start
        self.savepoint = folder / "START"
        (folder / "pids").mkdir()
        hybrid_rows.write_history(folder / "history")

    def send(self, first: int, end: int) -> None:
        hybrid_rows.send(self._kafka, self._topic, range(first, end))

    def command(self, *words: str, **env: str) -> Command:
        places = {
            bootstrap_pipeline.FOLDER: str(self.folder),
            bootstrap_pipeline.KAFKA: self._kafka,
            bootstrap_pipeline.TOPIC: self._topic,
            "PYTHONPATH": os.getcwd(),
        }
        return self._start(*words, env={**places, **env})

    def bootstrap(self, **env: str) -> Command:
        words = ("bootstrap", PIPELINE, "--savepoint", "START", "--until", str(FENCE_MS), "--json")
        return self.command(*words, *SPARK, **env)

    def stream(self) -> Command:
        words = ("run", PIPELINE, "-t", "local", "-p", "2", "-s", "START", "--name", "rest")
        return self.command(*words, "-D", "execution.checkpointing.interval=500 ms")

    def stream_all(self) -> None:
        """The rest, until all rows are there; then the stream is drained."""
        running = self.stream()
        eventually(lambda: self.rows_visible() >= ROWS, "all rows are visible", WAIT_S)
        stop = self.command("stop", "rest", "--drain", "-p", "END")
        ended(running, 0)
        stop.wait()  # its last look at the cluster may come after the end of that

    def rows_visible(self) -> int:
        try:
            return DeltaTable(str(self.folder / "lake" / "rows")).to_pyarrow_table().num_rows
        except TableNotFoundError:
            return 0


@pytest.fixture
def place(tmp_path: Path, kafka: str, topic: str) -> Iterator[_Place]:
    with commands_in(tmp_path) as start:
        yield _Place(tmp_path, kafka, topic, start)


def ended(command: Command, code: int) -> Command:
    assert command.wait() == code, command.err
    return command


def test_history_then_live_rows_with_a_killed_worker_and_commands_in_the_wrong_order(place: _Place) -> None:
    place.send(FENCE - BOTH, FENCE + 100)
    assert "there is no checkpoint or savepoint" in ended(place.stream(), 2).err
    running = place.bootstrap(**{bootstrap_pipeline.SLOW_S: "0.1"})
    pids = place.folder / "pids"
    eventually(lambda: list(pids.iterdir()), "rows are read", WAIT_S)
    os.kill(int(next(pids.iterdir()).name), signal.SIGKILL)
    place.send(FENCE + 100, FENCE + 200)  # behind the positions that the bootstrap has found
    result = json.loads(ended(running, 0).out)
    assert (result["state"], result["savepoint"]) == ("FINISHED", str(place.savepoint))
    assert place.rows_visible() == FENCE, "no live row, and all of the history"
    assert (place.savepoint / "_metadata").exists()
    assert len(list(place.savepoint.glob("bootstrap-*"))) == 1
    again = ended(place.bootstrap(), 2)
    assert "has a savepoint already" in again.err
    assert place.rows_visible() == FENCE
    place.send(FENCE + 200, ROWS)
    place.stream_all()
    assert_exact(place.folder / "lake", ROWS)


@pytest.mark.parametrize(
    ("point", "visible", "again"),
    in_the_gate(
        [
            ("manifest.before_create", 0, 0),
            ("manifest.created", 0, 2),
            ("commit.recorded", FENCE, 2),
        ],
        1,
    ),
)
def test_a_driver_that_dies(place: _Place, crashes: Crashes, point: str, visible: int, again: int) -> None:
    """Before the manifest the same command begins again; after it the stream goes on, and commits."""
    place.send(FENCE - BOTH, ROWS)
    ended(place.bootstrap(**crashes.environment(point)), -signal.SIGKILL)
    crashes.assert_happened()
    assert place.rows_visible() == visible
    ended(place.bootstrap(), again)
    place.stream_all()
    assert_exact(place.folder / "lake", ROWS)
