"""A backfill follows the leader: it dies within the stop of the job, and the same command goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.backfilled import ALL, FIRST, KEYS, NAME, OPTIONS, Place
from tests.integration.crash_runs import Crashes
from tests.integration.several_masters import OF_HA_MATRIX, Masters, masters_in

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: str) -> Iterator[Masters]:
    with masters_in(tmp_path, zookeeper) as cluster:
        yield cluster


@pytest.fixture
def place(tmp_path: Path, kafka: str, topic: str) -> Iterator[Place]:
    folder = tmp_path / "user"
    folder.mkdir()
    made = Place(folder, kafka, topic)
    yield made
    for process in made.terminal.processes():
        process.kill()


@OF_HA_MATRIX
def test_a_leader_that_dies_within_the_stop_is_followed(
    cluster: Masters, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    first = cluster.start("first", crashes.environment("stop.stored"))
    cluster.await_leader(first)
    second = cluster.start("second")
    named = [key for key in cluster.options if "root" in key or "cluster-id" in key]
    where = ("-m", f"zookeeper://{cluster.quorum}", *(f"-D{key}={cluster.options[key]}" for key in named))
    place.send(0, FIRST)
    started = place.terminal.json("run", "pipeline:build", "--name", NAME, "--detached", *OPTIONS, *where)
    place.assert_exact(FIRST, backfilled=False)
    done = place.backfill(*where)
    assert done["verdict"] == "replaced"
    assert (done["rows_removed"], done["rows_added"]) == (2 * KEYS, 2 * KEYS)
    assert done["job"] != started["job"]
    assert first.wait() == -signal.SIGKILL
    crashes.assert_happened()
    assert cluster.leads(second)
    with cluster.client() as client:
        assert client.info(done["job"]).state == "RUNNING"
        assert client.info(started["job"]).state == "FINISHED"
    place.send(FIRST, ALL)
    place.assert_exact(ALL)
