"""A bounded side input has ended, the facts go on, checkpoints go on, and processes are killed at every named
place: the side input is not read again, no window fires before its time, every row is there once.

`side_input` has the pipeline. Its checkpoints hold finished tasks when the first kill comes. Places lie close
to each other, so several kills hit one job, one after the other, each in whatever the last one left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import side_input
from crash_runs import (
    RECOVERING,
    WAIT_S,
    Command,
    Crashes,
    Lives,
    await_info,
    commands_in,
    manifest_of,
    points_in_code,
    submit,
)
from side_input import (
    BOOTSTRAP,
    CONFIG,
    TOPIC,
    assert_exact,
    latest_ms,
    names_read,
    pipeline,
    prepare,
    published,
    read_before,
    rows_visible,
    side_input_ended,
    spoil,
    values,
    watermark_passed,
    watermarks,
)

import unistream as us
from unistream.base.config import Configuration
from unistream.client.embedded import EmbeddedCluster, EmbeddedJobClient
from unistream.client.rest_client import Poll
from unistream.master.job_info import JobInfo
from unistream.port.source import Source
from unistream.savepoint.inspection import resumable_path
from unistream.testing.devtools.kafka_tools import produce_values

OF_WORKERS = {
    "a snapshot": (
        *("task.batch", "snapshot.sync_done", "snapshot.half_written", "snapshot.unnamed"),
        *("snapshot.uploaded", "ack.sent"),
    ),
    "notices and commits": (
        *("sink.before_commit", "sink.committed", "committer.before_commit", "committer.committed"),
        *("restore.before_commit", "restore.committed"),
    ),
    "a table": ("delta.staged", "delta.before_append", "delta.appended"),
    "a folder": ("file.staged", "file.before_record", "file.recorded", "file.first_renamed"),
}
OF_MASTERS = (
    *("trigger.sent", "ack.received", "manifest.before_create", "manifest.created", "notify.sent"),
    *("commit.recorded", "retention.before_delete", "retention.deleted"),
)
NOT_REACHED = {
    "result.before_record": "the job has no end before it is stopped: see test_final_phase_crashes",
    "result.recorded": "the job has no end before it is stopped: see test_final_phase_crashes",
}
FACTS = 12_000  # in Kafka: a half before the kills


def test_every_named_place_has_a_row_here() -> None:
    workers = {point for group in OF_WORKERS.values() for point in group}
    rows = [*workers, *OF_MASTERS, *NOT_REACHED]
    assert sorted(rows) == sorted(points_in_code())
    places = points_in_code()
    assert {point for point in rows if "master" in places[point]} == {*OF_MASTERS, *NOT_REACHED}


def checkpoint_without_side_input(info: JobInfo) -> bool:
    """The newest checkpoint has the side input's tasks as finished."""
    if not side_input_ended(info) or info.latest_checkpoint is None:
        return False
    vertices = manifest_of(info.latest_checkpoint).vertices
    return any(vertex.fully_finished for vertex in vertices if "names" in vertex.operators)


# --- workers ------------------------------------------------------------------------------------------


def start(cluster: EmbeddedCluster, folder: Path, facts: Source) -> EmbeddedJobClient:
    """A job whose checkpoints hold finished tasks by now, and whose side input nobody may read any more."""
    prepare(folder)
    env = us.Environment({"parallelism.default": "2"})
    pipeline(env, folder, facts)
    job = submit(cluster, env, CONFIG | RECOVERING)
    job.wait_for(checkpoint_without_side_input, WAIT_S)
    spoil(folder)
    return job


def await_recovery(job: EmbeddedJobClient, crashes: Crashes) -> JobInfo:
    """All kills have come, and since then two checkpoints were completed."""
    killed = job.wait_for(lambda info: info.restarts >= 1 and crashes.all_happened, WAIT_S)
    return job.wait_for(
        lambda info: (
            side_input_ended(info) and info.checkpoints_completed >= killed.checkpoints_completed + 2
        ),
        WAIT_S,
    )


@pytest.mark.parametrize("points", OF_WORKERS.values(), ids=OF_WORKERS)
def test_a_side_input_that_has_ended_stays_so_when_workers_are_killed(
    tmp_path: Path, crashes: Crashes, points: tuple[str, ...]
) -> None:
    crashes.arm(*points, later=True)
    with EmbeddedCluster("local", Configuration(CONFIG), workdir=tmp_path / "work", rest=False) as cluster:
        job = start(cluster, tmp_path, side_input.generated())
        read = names_read(tmp_path)
        crashes.go()
        await_recovery(job, crashes)
        latest = max(watermarks(job.wait_for(lambda info: bool(watermarks(info)), WAIT_S)))
        info = job.wait_for(lambda info: watermark_passed(info, latest), WAIT_S)
        job.stop(drain=True, target=str(tmp_path / "savepoints"))
        resumable = job.result(WAIT_S).resumable_savepoint
    crashes.assert_happened()
    left = [path for path in (tmp_path / "work" / "checkpoints").rglob("*") if path.is_file()]
    assert left == [], "what a writer that was killed has left goes with its checkpoint"
    assert resumable is not None
    rows = assert_exact(tmp_path, read_before(resumable))
    assert max(watermarks(info)) <= latest_ms(rows)
    assert names_read(tmp_path) == read


@pytest.mark.kafka
def test_so_with_facts_from_kafka(kafka: str, topic: str, tmp_path: Path, crashes: Crashes) -> None:
    crashes.arm("snapshot.uploaded", "delta.appended", later=True)
    publish(kafka, topic, range(FACTS // 2))
    with EmbeddedCluster("local", Configuration(CONFIG), workdir=tmp_path / "work", rest=False) as cluster:
        job = start(cluster, tmp_path, published(kafka, topic))
        read = names_read(tmp_path)
        crashes.go()
        publish(kafka, topic, range(FACTS // 2, FACTS * 3 // 4))
        await_recovery(job, crashes)
        publish(kafka, topic, range(FACTS * 3 // 4, FACTS))
        await_rows(tmp_path)
        info = job.wait_for(lambda info: bool(watermarks(info)), WAIT_S)
        job.stop(drain=True, target=str(tmp_path / "savepoints"))
    crashes.assert_happened()
    rows = assert_exact(tmp_path, range(FACTS))
    assert max(watermarks(info)) <= latest_ms(rows)
    assert names_read(tmp_path) == read


def publish(kafka: str, topic: str, numbers: range) -> None:
    produce_values(kafka, topic, values(numbers), partitions=[i % 2 for i in numbers])


def await_rows(folder: Path) -> None:
    """All facts of the topic are visible."""
    poll = Poll(WAIT_S)
    while rows_visible(folder) < FACTS:
        assert poll.next(), "not all facts came"


# --- the master ---------------------------------------------------------------------------------------


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    prepare(tmp_path)
    with commands_in(tmp_path) as command:
        yield Lives(tmp_path, command, "side_input:build", CONFIG)


def await_side_input(lives: Lives, life: Command) -> int:
    """Its checkpoints hold finished tasks, and nobody may read the side input any more, of which so many
    batches were read."""
    with lives.watch(life) as (client, job):
        await_info(client, job, checkpoint_without_side_input)
    spoil(lives.folder)
    return names_read(lives.folder)


def finish(lives: Lives, life: Command, ready: Callable[[JobInfo], bool]) -> str:
    """Drains the job once it is `ready`. Its resumable savepoint."""
    with lives.watch(life) as (client, job):
        await_info(client, job, lambda info: side_input_ended(info) and ready(info))
        terminal = client.stop(job, drain=True, target=str(lives.folder / "savepoints"))
    assert life.wait() == 0, life.err  # it serves nobody when its job has ended
    resumable = resumable_path(us.read_savepoint(terminal))
    assert resumable is not None
    return resumable


@pytest.mark.timeout(300)
def test_a_side_input_that_has_ended_stays_so_when_masters_are_killed(crashes: Crashes, lives: Lives) -> None:
    life = lives.start(**crashes.environment(OF_MASTERS[0], later=True))
    read = await_side_input(lives, life)
    crashes.go()
    lives.assert_killed(life)
    for point in OF_MASTERS[1:]:
        lives.assert_killed(lives.start(**crashes.environment(point)))
    crashes.assert_happened()
    resumable = finish(lives, lives.start(), lambda info: info.checkpoints_completed >= 2)
    assert_exact(lives.folder, read_before(resumable))
    assert names_read(lives.folder) == read


@pytest.mark.kafka
def test_so_when_a_master_is_killed_with_facts_from_kafka(
    kafka: str, topic: str, crashes: Crashes, lives: Lives
) -> None:
    facts = {BOOTSTRAP: kafka, TOPIC: topic}
    publish(kafka, topic, range(FACTS // 2))
    life = lives.start(**facts, **crashes.environment("manifest.created", later=True))
    read = await_side_input(lives, life)
    crashes.go()
    publish(kafka, topic, range(FACTS // 2, FACTS))
    lives.assert_killed(life)
    crashes.assert_happened()
    finish(lives, lives.start(**facts), lambda _: rows_visible(lives.folder) >= FACTS)
    assert_exact(lives.folder, range(FACTS))
    assert names_read(lives.folder) == read
