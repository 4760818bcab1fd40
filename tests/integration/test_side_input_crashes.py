"""A bounded side input has ended, the facts go on, checkpoints go on, and processes are killed at every named
place: the side input is not read again, no window fires before its time, every row is there once.

`side_input` has the pipeline. Its checkpoints hold finished tasks when the first kill comes. Places lie close
to each other, so several kills hit one job, one after the other, each in whatever the last one left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import unistream as us
from tests.integration import side_input
from tests.integration.crash_runs import (
    OF_MATRIX,
    RECOVERING,
    WAIT_S,
    Command,
    Crashes,
    Lives,
    await_info,
    commands_in,
    points_in_code,
    submit,
)
from tests.integration.side_input import (
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
    spoil,
    values,
    watermark_passed,
    watermarks,
)
from tests.integration.side_input_crashes import (
    OF_MASTERS,
    OF_WORKERS,
    await_recovery,
    checkpoint_without_side_input,
    finish,
)
from tests.modes import STREAMING
from tests.support.servers.kafka_tools import produce_values
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.remote.rest_client import Poll
from unistream.port.source import Source

NOT_REACHED = {
    "result.before_record": "the job has no end before it is stopped: see test_final_phase_crashes",
    "result.recorded": "the job has no end before it is stopped: see test_final_phase_crashes",
    **dict.fromkeys(
        (
            *("job.code_stored", "job.stored", "job.pointed", "job.unpointed", "pointer.before_swap"),
            "attempts.stored",
        ),
        "the cluster is started again on its folder there: see test_recovered_jobs",
    ),
    **dict.fromkeys(
        (
            *("stop.stored", "stop.refused", "stop.withdrawn"),
            *("savepoint.stored", "savepoint.answered", "job.kept"),
            *("rescale.stored", "rescale.kept", "rescale.answered"),
        ),
        "only what a client requests comes there: see test_recovered_jobs",
    ),
    **dict.fromkeys(
        ("committables.stored", "committables.pointed"),
        "only BATCH jobs come there: see test_recovered_batch",
    ),
    "pointer.swapped": "between manifest.created and notify.sent: see test_recovered_jobs",
    "pointer.removed": "between retention.before_delete and .deleted: see test_recovered_jobs",
}
FACTS = 12_000  # in Kafka: a half before the kills


def test_every_named_place_has_a_row_here() -> None:
    workers = {point for group in OF_WORKERS.values() for point in group}
    rows = [*workers, *OF_MASTERS, *NOT_REACHED]
    assert sorted(rows) == sorted(points_in_code())
    places = points_in_code()
    assert {point for point in rows if "master" in places[point]} == {*OF_MASTERS, *NOT_REACHED}


# --- workers ------------------------------------------------------------------------------------------


def start(cluster: EmbeddedCluster, folder: Path, facts: Source) -> EmbeddedJobClient:
    """A job whose checkpoints hold finished tasks by now, and whose side input nobody may read any more."""
    prepare(folder)
    env = us.Environment({**STREAMING, "parallelism.default": "2"})
    pipeline(env, folder, facts)
    job = submit(cluster, env, CONFIG | RECOVERING)
    job.wait_for(checkpoint_without_side_input, WAIT_S)
    spoil(folder)
    return job


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
    left = [path for path in walked(tmp_path / "work" / "checkpoints") if path.is_file()]
    assert left == [], "what a writer that was killed has left goes with its checkpoint"
    assert resumable is not None
    rows = assert_exact(tmp_path, read_before(resumable))
    assert max(watermarks(info)) <= latest_ms(rows)
    assert names_read(tmp_path) == read


@pytest.mark.kafka
@OF_MATRIX
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
        yield Lives(tmp_path, command, "tests.integration.side_input:build", CONFIG)


def await_side_input(lives: Lives, life: Command) -> int:
    """Its checkpoints hold finished tasks, and nobody may read the side input any more, of which so many
    batches were read."""
    with lives.watch(life) as (client, job):
        await_info(client, job, checkpoint_without_side_input)
    spoil(lives.folder)
    return names_read(lives.folder)


@OF_MATRIX
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
