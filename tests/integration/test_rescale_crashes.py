"""A savepoint is restored with double and with half the parallelism; then a checkpoint, a kill at every named
place, and a restore. No row is lost or doubled, every window is right, and the side input that had ended is
not read again. `side_input` has the pipeline.

    2 subtasks ── savepoint ──► 4 or 1 subtasks ── checkpoint ── kill ──► restored ── drained

The savepoint is one of a job that goes on, and is cancelled: nobody has committed what it lists, so those who
come after it have to. The committables of two subtasks become those of four or of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest

import unistream as us
from tests.integration import side_input
from tests.integration.crash_runs import (
    MATRIX,
    RECOVERING,
    WAIT_S,
    Crashes,
    Lives,
    alone,
    await_info,
    commands_in,
    submit,
)
from tests.integration.side_input import (
    CONFIG,
    ONLY_THE_DRAIN,
    assert_exact,
    names_read,
    pipeline,
    prepare,
    read_before,
    rows_visible,
    side_input_ended,
    spoil,
)
from tests.integration.side_input_crashes import (
    OF_MASTERS,
    OF_WORKERS,
    await_recovery,
    checkpoint_without_side_input,
    finish,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.model.job_info import JobInfo

BEFORE = 2  # subtasks
AFTER = {"double": 4, "half": 1}
ROUND = (4, 2, 1, 2)  # each is double or half of the one before
CLUSTER = {**CONFIG, "taskmanager.numberOfTaskSlots": "2"}
ONE_WORKER = {**CONFIG, "taskmanager.numberOfTaskSlots": "4"}
READ_BEFORE = 4_000  # at the inputs of all tasks: rows, and windows that have fired


@dataclass(frozen=True)
class Saved:
    """The folder of a job that has ended behind its savepoint, and whose tables lack what that lists.

    Attributes:
        copy: What is in it, so that `restore` can make it what it was. Sinks refuse to move.
    """

    folder: Path
    copy: Path
    savepoint: str

    def restore(self) -> None:
        """For a job that goes on from here."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    home = tmp_path_factory.mktemp("saved")
    folder, copy = home / "job", home / "copy"
    folder.mkdir()
    prepare(folder)
    with EmbeddedCluster("local", Configuration(CLUSTER), workdir=home / "work", rest=False) as cluster:
        first = start(cluster, folder, BEFORE, CONFIG)
        first.wait_for(checkpoint_without_side_input, WAIT_S)
        stopped = first.stop(target=str(home / "savepoints"))
        first.wait(WAIT_S)
        visible = rows_visible(folder)
        assert visible == len(read_before(stopped))
        job = start(cluster, folder, BEFORE, ONLY_THE_DRAIN, stopped)
        job.wait_for(lambda i: i.state == "RUNNING" and i.metrics.get("records_in", 0) > READ_BEFORE, WAIT_S)
        savepoint = job.savepoint(str(folder / "savepoints"))
        job.cancel()
        job.wait(WAIT_S)
    assert rows_visible(folder) == visible < len(read_before(savepoint)), "committables are left"
    spoil(folder)
    shutil.copytree(folder, copy)
    return Saved(folder, copy, savepoint)


@pytest.fixture
def saved(saved_once: Saved) -> Saved:
    saved_once.restore()
    return saved_once


def start(
    cluster: EmbeddedCluster, folder: Path, width: int, config: dict[str, str], savepoint: str | None = None
) -> EmbeddedJobClient:
    env = us.Environment({**STREAMING, "parallelism.default": str(width)})
    pipeline(env, folder, side_input.generated())
    return submit(cluster, env, config, savepoint)


def checkpointed(info: JobInfo, width: int) -> bool:
    """It runs with so many subtasks, and has a checkpoint of them."""
    subtasks = [task for task in info.subtasks if task.vertex_name.startswith("facts")]
    return side_input_ended(info) and info.checkpoints_completed >= 1 and len(subtasks) == width


def of_workers() -> list[Any]:
    """Both widths, and each place at one of them; with `make crash-matrix` each place alone at both."""
    places = tuple(chain(*OF_WORKERS.values()))
    if MATRIX:
        return [pytest.param(w, alone(p), id=f"{name}-{p}") for name, w in AFTER.items() for p in places]
    return [pytest.param(w, places[n::2], id=name) for n, (name, w) in enumerate(AFTER.items())]


@pytest.mark.parametrize(("width", "points"), of_workers())
def test_workers_are_killed_after_a_savepoint_was_restored_with_another_parallelism(
    tmp_path: Path, saved: Saved, crashes: Crashes, width: int, points: tuple[str, ...]
) -> None:
    folder = saved.folder
    read = names_read(folder)
    crashes.arm(*points, later=True)
    with EmbeddedCluster("local", Configuration(CLUSTER), workdir=tmp_path / "work", rest=False) as cluster:
        job = start(cluster, folder, width, CONFIG | RECOVERING, saved.savepoint)
        job.wait_for(lambda info: checkpointed(info, width), WAIT_S)
        crashes.go()
        await_recovery(job, crashes)
        job.stop(drain=True, target=str(folder / "savepoints"))
        resumable = job.result(WAIT_S).resumable_savepoint
    crashes.assert_happened()
    assert resumable is not None
    assert_exact(folder, read_before(resumable))
    assert names_read(folder) == read


@pytest.fixture
def lives(saved: Saved) -> Iterator[Lives]:
    with commands_in(saved.folder) as command:
        yield Lives(saved.folder, command, "tests.integration.side_input:build", ONE_WORKER)


def chains() -> list[tuple[tuple[str, int], ...]]:
    """Lives: each begins with so many subtasks, and dies at a place when it has a checkpoint. Other places
    come with `make crash-matrix`, and in `test_side_input_crashes` where nothing is rescaled."""
    if MATRIX:
        return [((place, width),) for place in OF_MASTERS for width in AFTER.values()]
    return [tuple(zip(list(OF_MASTERS)[::4], cycle(ROUND), strict=False))]


@pytest.mark.parametrize("places", chains(), ids=lambda p: "-".join(map(str, p[0])) if MATRIX else "all")
def test_masters_are_killed_of_which_each_has_double_or_half_the_parallelism_of_the_one_before(
    crashes: Crashes, lives: Lives, places: tuple[tuple[str, int], ...]
) -> None:
    read = names_read(lives.folder)
    for place, width in places:
        life = lives.start(None, parallelism=width, **crashes.environment(place, later=True))
        with lives.watch(life) as (client, job):
            await_info(client, job, partial(checkpointed, width=width))
        crashes.go()
        lives.assert_killed(life)
    crashes.assert_happened()
    last = lives.start(parallelism=places[-1][1])
    resumable = finish(lives, last, lambda info: info.checkpoints_completed >= 2)
    assert_exact(lives.folder, read_before(resumable))
    assert names_read(lives.folder) == read
