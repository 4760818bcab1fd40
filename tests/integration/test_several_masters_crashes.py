"""Two masters, three ZooKeepers: the leader dies or stands still at a named place; a majority is away."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.integration.copied_topic import Flow, is_quiet
from tests.integration.crash_runs import Crashes, in_the_gate
from tests.integration.several_masters import (
    OF_HA_MATRIX,
    WAIT_S,
    Masters,
    Takeover,
    await_job,
    files_in,
    is_running,
    is_stopped,
    masters_in,
    submitted,
)
from tests.integration.test_recovered_jobs import ENDING, RUNNING, SUBMITTING
from tests.support.servers.ensemble import ZooKeeperEnsemble
from unistream.base.crash_points import SIGNAL_VARIABLE
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient

pytestmark = pytest.mark.kafka

WITHOUT_QUORUM_S = 20.0
QUIET_S = 5.0  # after a leader of before has woken up


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as running:
        yield running


@pytest.fixture
def flow(tmp_path: Path, kafka: str, topic: str) -> Iterator[Flow]:
    with Flow(tmp_path, kafka, topic) as flow:
        yield flow


def stopped(client: RestClient, job: JobId, flow: Flow) -> None:
    """The job ends with a savepoint, whoever leads, and its user is answered where it is."""
    target = flow.table.parent / "savepoints"
    path = client.client(job).stop(target=str(target))
    assert path.removeprefix("file://").startswith(str(target))


def assert_nothing_of_it_is_left(cluster: Masters, job: JobId) -> None:
    """But for its result."""

    def left() -> list[str]:
        return [path for path in cluster.stored() if path.startswith(f"/jobs/{job}")]

    eventually(lambda: not left(), "its pointers are removed", WAIT_S, 0.2)
    eventually(
        lambda: b'"cleaned":true' in cluster.stored()[f"/results/{job}"][0], "it is cleaned up", WAIT_S
    )
    folder = cluster.folder / "ha" / cluster.id
    assert not list(folder.glob(f"checkpoints/{job}/*"))
    eventually(lambda: not list((folder / "artifacts").iterdir()), "the store is swept", WAIT_S, 0.2)


@pytest.mark.parametrize(
    "points",
    in_the_gate(
        [
            ("job.pointed", "pointer.before_swap", "pointer.swapped:3", "result.recorded"),
            *((point,) for point in (*SUBMITTING, *RUNNING, *ENDING)),
        ],
        0,
    ),
    ids="+".join,
)
def test_a_leader_that_is_killed_is_followed_by_another_with_the_same_job(
    tmp_path: Path,
    crashes: Crashes,
    ensemble: ZooKeeperEnsemble,
    flow: Flow,
    points: tuple[str, ...],
) -> None:
    with masters_in(tmp_path, ensemble.address) as cluster:
        with cluster.kept_alive(2, crashes.environment(*points)) as dead, cluster.client() as client:
            wanted = flow.request()
            job = submitted(client, wanted)
            early = [point for point in points if not point.startswith(("result", "job.unpointed"))]
            at_the_end = [point for point in points if point.partition(":")[0] not in _names(early)]
            eventually(
                lambda: len(crashes.happened) >= len(early), f"kills, not only {crashes.happened}", WAIT_S
            )
            await_job(client, job, is_running, "it runs")
            flow.await_commits()
            flow.assert_exact()
            stopped(client, job, flow)
            ended = await_job(client, job, lambda info: info.is_terminal, "it ends")
            assert ended.state == "FINISHED", ended.failure
            eventually(lambda: len(dead) == len(points), f"{at_the_end} came", WAIT_S)
            assert_nothing_of_it_is_left(cluster, job)
            assert submitted(client, wanted) == job, "it never starts again"
            assert client.info(job).state == "FINISHED"
        crashes.assert_happened()
        assert {master.process.returncode for master in dead} == {-signal.SIGKILL}
        for master in dead:
            master.assert_nothing_is_left()
        assert flow.numbers() == list(range(flow.sent))
        epochs = cluster.assert_each_write_was_the_leaders(ensemble.folder, 2)
        assert set(flow.epochs()) <= set(epochs)


def _names(points: list[str]) -> set[str]:
    return {point.partition(":")[0] for point in points}


@pytest.mark.parametrize(
    "point",
    in_the_gate([*SUBMITTING, *RUNNING, *ENDING], len(SUBMITTING) + RUNNING.index("pointer.before_swap")),
)
def test_a_leader_that_stands_still_changes_nothing_when_it_goes_on(
    tmp_path: Path,
    crashes: Crashes,
    ensemble: ZooKeeperEnsemble,
    flow: Flow,
    point: str,
) -> None:
    env = {**crashes.environment(f"{point}:3" if point in RUNNING else point), SIGNAL_VARIABLE: "STOP"}
    with masters_in(tmp_path, ensemble.address) as cluster, cluster.client() as client:
        first = cluster.start("first", env)
        cluster.await_leader(first)
        second = cluster.start("second")
        job = submitted(client, flow.request())
        if point in ENDING:
            flow.await_commits()
            flow.assert_exact()
            stopped(client, job, flow)
        eventually(lambda: is_stopped(first), f"the leader stands still at {point}", WAIT_S)
        cluster.await_leader(second)
        if point not in ENDING:
            await_job(client, job, is_running, "it runs")
            flow.await_commits()
            flow.assert_exact()
            stopped(client, job, flow)
        assert await_job(client, job, lambda info: info.is_terminal, "it ends").state == "FINISHED"
        assert_nothing_of_it_is_left(cluster, job)
        before, files = (cluster.stored(), flow.log()), files_in(tmp_path / "ha")
        first.send(signal.SIGCONT)
        cluster.await_contenders(2)
        first.assert_nothing_is_left()
        time.sleep(QUIET_S)  # for what must not happen there is nothing to wait for
        assert (cluster.stored(), flow.log()) == before
        added = files_in(tmp_path / "ha").items() - files.items()
        assert len(added) == (point == "job.code_stored"), "a file of its own, which no pointer names"
        assert files.items() <= files_in(tmp_path / "ha").items()
        assert second.end() == 0
        cluster.await_leader(first)
        eventually(lambda: files_in(tmp_path / "ha") == files, "the next leader removes it", WAIT_S, 0.2)
        assert client.info(job).state == "FINISHED"
        assert flow.numbers() == list(range(flow.sent))
        cluster.assert_each_write_was_the_leaders(ensemble.folder, 3)


@pytest.mark.parametrize(
    "session_s",
    [
        pytest.param(40.0, id="shorter than the session", marks=OF_HA_MATRIX),
        pytest.param(3.0, id="longer than the session", marks=OF_HA_MATRIX),
    ],
)
def test_a_cluster_without_a_majority_of_zookeepers_decides_nothing_until_it_is_back(
    tmp_path: Path, ensemble: ZooKeeperEnsemble, flow: Flow, session_s: float
) -> None:
    with masters_in(tmp_path, ensemble.address, session_s=session_s) as cluster:
        first, second = cluster.pair()
        with cluster.client() as client:
            tolerant = {"execution_checkpointing_tolerable-failed-checkpoints": "100"}
            job = client.submit(flow.request(**tolerant)).job_id
            flow.await_commits()
            epochs = set(flow.epochs())
            lost_s = time.monotonic()
            lost = ensemble.lose_quorum()
            try:
                eventually(lambda: "leadership_suspended" in first.err, "it is suspended", WAIT_S)
                eventually(lambda: is_quiet(flow), "what was decided before is done", WAIT_S)
                version, passed = flow.version, flow.passed
                if session_s > WITHOUT_QUORUM_S:
                    eventually(lambda: flow.passed > passed + 1_000, "rows are read on", WAIT_S)
                time.sleep(max(0.0, lost_s + WITHOUT_QUORUM_S - time.monotonic()))
                assert flow.version == version, "somebody has decided something"
            finally:
                ensemble.start(*lost)
            back = Takeover(cluster, flow, "ZooKeeper is back")
            if session_s > WITHOUT_QUORUM_S:
                back.of(first, job)
                assert client.info(job).restarts == 0
                assert set(flow.epochs()) == epochs
            else:
                # not by what clients find: that is the former leader, until its session has ended
                eventually(lambda: len(first.urls) > 1 or bool(second.urls), "one leads", WAIT_S, 0.1)
                back.of(second if second.urls else first, job)
            flow.assert_exact()
        cluster.assert_each_write_was_the_leaders(ensemble.folder)
