"""A session cluster whose master is killed: started again on its folder, it goes on with the same jobs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import (
    Command,
    Crashes,
    await_info,
    commands_in,
    in_the_gate,
    points_in_code,
)
from tests.metadata_rows import rows as metadata_rows
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import JobId
from unistream.client.remote.kept_jobs import KeptJobsClient
from unistream.client.remote.policy import CallKind
from unistream.client.remote.rest_client import RestClient
from unistream.connector.collect import CollectSink, read_collected
from unistream.connector.datagen import DatagenSource, Sequential
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store import operations
from unistream.master.store.job_store import JobStore
from unistream.metadata import tables
from unistream.model.job_info import JobInfo
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import StoredRequest
from unistream.model.submission import SubmitRequest
from unistream.storage.artifacts import FsArtifactStore
from unistream.worker.code import pack

ROWS = 4_500
CONFIG = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "100 ms",
    "parallelism.default": "2",
}

SUBMITTING = ("job.code_stored", "job.stored", "job.pointed", "attempts.stored")
"""Where the answer to a submission is lost: sent again under the same id, it is one job."""

RUNNING = (
    *("trigger.sent", "ack.received", "manifest.before_create", "manifest.created"),
    *("pointer.before_swap", "pointer.swapped", "notify.sent", "commit.recorded"),
    *("retention.before_delete", "pointer.removed", "retention.deleted"),
)
ENDING = ("result.before_record", "result.recorded", "job.unpointed")
SAVING = ("savepoint.stored", "savepoint.answered")
KEEPING = ("job.kept",)
STOPPING = ("stop.stored", "stop.refused", "stop.withdrawn")
RESCALING = ("rescale.stored", "rescale.kept", "rescale.answered")
COMMITTING = ("committables.stored", "committables.pointed")
"""Of BATCH jobs: see test_recovered_batch."""


class Restarted:
    """A cluster that is started again each time it has been killed; the same folder, another port."""

    def __init__(
        self,
        folder: Path,
        start: Callable[..., Command],
        environment: dict[str, str],
        target: str = "local",
    ) -> None:
        self._folder = folder
        self._target = target
        self._start = start
        self._environment = environment
        self.deaths = 0
        self.life = self._begin()

    def _begin(self) -> Command:
        words = ("cluster", "start", "-t", self._target, "--json", "--workdir", str(self._folder / "work"))
        life = self._start(*words, env=self._environment)
        self.url = json.loads(life.line())["url"]
        return life

    def again(self) -> None:
        """It has been killed, and is started again."""
        self.life.family()
        assert self.life.wait() == -signal.SIGKILL, self.life.err
        self.life.assert_nothing_is_left()
        self.deaths += 1
        self.life = self._begin()

    def asked(self, ask: Callable[[RestClient], Any]) -> Any:
        """The answer, of whichever life gives it."""
        while True:
            try:
                with RestClient(self.url, timeout_s=10.0) as client:
                    return ask(client)
            except UnistreamError:
                if self.life.process.poll() is None:
                    raise
                self.again()

    def end(self, job: JobId) -> JobInfo:
        """How the job has ended, through all deaths."""
        found: JobInfo = self.asked(lambda client: await_info(client, job, lambda info: info.is_terminal))
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    with commands_in(tmp_path) as start:
        yield start


def request(folder: Path, rows: int | None = ROWS) -> SubmitRequest:
    env = us.Environment(CONFIG)
    source = DatagenSource(
        {"n": Sequential()}, splits=2, rows=rows, rows_per_second=1_500, bounded=rows is not None
    )
    numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.sink_to(CollectSink(str(folder / "out"))).uid("out")
    graph, code = env.job_graph("numbers")
    return SubmitRequest(graph=graph, artifact=pack(code), config=CONFIG, request_id="once")


def numbers(folder: Path) -> list[int]:
    found: list[int] = sorted(read_collected(str(folder / "out"))["n"].to_pylist())
    return found


def jobs_of(folder: Path) -> JobStore:
    """As a further leader; the cluster is not running."""
    store = FolderHaStore(folder / "work" / "ha", claim_folder(folder / "work" / "ha"))
    return JobStore(store, FsArtifactStore(str(folder / "work" / "artifacts")))


def test_every_named_place_of_a_master_has_a_row_here() -> None:
    of_masters = [point for point, folders in points_in_code().items() if folders == {"master"}]
    of_users = (*SUBMITTING, *SAVING, *KEEPING, *STOPPING, *RESCALING)
    assert sorted((*of_users, *RUNNING, *ENDING, *COMMITTING)) == sorted(of_masters)


@pytest.mark.parametrize(
    "points",
    in_the_gate(
        [
            ("pointer.swapped:3",),
            ("job.pointed", "pointer.swapped:3", "result.recorded"),
            *((point,) for point in (*SUBMITTING, *RUNNING, *ENDING)),
        ],
        0,
    ),
    ids="+".join,
)
def test_a_killed_cluster_goes_on_with_its_job(
    tmp_path: Path,
    start: Callable[..., Command],
    monkeypatch: pytest.MonkeyPatch,
    points: tuple[str, ...],
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, crashes.environment(*points))
    wanted = request(tmp_path)
    job = cluster.asked(lambda client: client.submit(wanted).job_id)
    ended = cluster.end(job)
    eventually(lambda: crashes.all_happened, "all kills have come", WAIT_S)
    if cluster.deaths < len(points):
        cluster.again()  # it died, or is about to, behind the result
    assert ended.state == "FINISHED", ended.failure
    assert cluster.deaths == len(points)
    assert numbers(tmp_path) == list(range(ROWS))
    assert cluster.asked(lambda client: client.submit(wanted).job_id) == job, "it never starts again"
    assert cluster.end(job).state == "FINISHED"
    assert cluster.life.end(signal.SIGTERM) == 0
    cluster.life.assert_nothing_is_left()
    left = jobs_of(tmp_path)
    assert left.unfinished() == []
    assert numbers(tmp_path) == list(range(ROWS))
    assert not (tmp_path / "work" / "checkpoints" / job).exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "shut down"])
def test_a_stop_that_was_accepted_is_carried_out_by_the_next_master(
    tmp_path: Path, start: Callable[..., Command], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, {})
    job = cluster.asked(lambda client: client.submit(request(tmp_path, rows=None)).job_id)
    cluster.asked(lambda client: await_info(client, job, lambda info: info.checkpoints_completed >= 2))
    cluster.life.end(number)
    target = str(tmp_path / "savepoints")
    jobs_of(tmp_path).set_request(job, StoredRequest(stop=SnapshotKind.SUSPEND, target=target))
    second = Restarted(tmp_path, start, {})
    ended = second.end(job)
    assert ended.state == "FINISHED", ended.failure
    assert ended.savepoint is not None
    assert ended.savepoint.removeprefix("file://").startswith(target)
    found = numbers(tmp_path)
    assert len(found) > 100
    for split in (0, 1):  # each was read up to somewhere
        rows = [n for n in found if n % 2 == split]
        assert rows == list(range(split, 2 * len(rows), 2)), "no row is lost or doubled"
    assert second.life.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("point", in_the_gate(SAVING, 1))
def test_the_next_master_answers_for_a_savepoint_wherever_the_first_one_dies(
    tmp_path: Path, start: Callable[..., Command], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, crashes.environment(point))
    job = cluster.asked(lambda client: client.submit(request(tmp_path, rows=None)).job_id)
    cluster.asked(lambda client: await_info(client, job, lambda info: info.checkpoints_completed >= 2))
    trigger = "ab" * 16
    body = json.dumps({"target-directory": str(tmp_path / "savepoints"), "triggerId": trigger}).encode()

    def take(client: RestClient) -> object:
        sent = client.request("POST", f"/jobs/{job}/savepoints", call=CallKind.TRIGGER, content=body)
        assert json.loads(sent.content) == {"request-id": trigger}
        eventually(lambda: outcome(client) is not None, "it is over", WAIT_S)
        return outcome(client)

    def outcome(client: RestClient) -> object:
        try:
            answer = json.loads(client.request("GET", f"/jobs/{job}/savepoints/{trigger}").content)
        except ConfigError as error:
            return str(error)
        return answer["operation"]

    found = cluster.asked(take)
    assert crashes.all_happened
    assert cluster.deaths == 1
    taken = list((tmp_path / "savepoints").glob("savepoint-*"))
    if point == "savepoint.answered":
        assert found == {"location": f"file://{taken[0]}"}
        assert len(taken) == 1
    else:
        assert found == operations.CUT_OFF
        assert taken == []
    assert cluster.life.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("point", KEEPING)
def test_what_is_kept_of_a_job_outlives_the_master_and_the_job(
    tmp_path: Path, start: Callable[..., Command], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, crashes.environment(point))
    job = cluster.asked(lambda client: client.submit(request(tmp_path, rows=None)).job_id)
    cluster.asked(lambda client: await_info(client, job, lambda info: info.checkpoints_completed >= 2))
    cluster.asked(lambda client: KeptJobsClient(client).keep("up", job))
    assert crashes.all_happened
    assert cluster.deaths == 1
    cluster.asked(lambda client: await_info(client, job, lambda info: info.state == "RUNNING"))
    savepoint = cluster.asked(lambda client: client.client(job).stop())
    again = cluster.asked(lambda client: KeptJobsClient(client).start("up", savepoint, "again"))
    cluster.asked(lambda client: await_info(client, again, lambda info: info.checkpoints_completed >= 1))
    cluster.asked(lambda client: client.client(again).stop())
    assert cluster.life.end(signal.SIGTERM) == 0
    found = numbers(tmp_path)
    for split in (0, 1):  # each was read up to somewhere
        rows = [n for n in found if n % 2 == split]
        assert rows == list(range(split, 2 * len(rows), 2)), "no row is lost or doubled"


@pytest.mark.parametrize("point", in_the_gate(STOPPING, 1))
def test_a_job_whose_stop_is_refused_goes_on_wherever_its_master_dies(
    tmp_path: Path, start: Callable[..., Command], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, crashes.environment(point))
    job = cluster.asked(lambda client: client.submit(request(tmp_path, rows=None)).job_id)
    cluster.asked(lambda client: await_info(client, job, lambda info: info.checkpoints_completed >= 2))
    no_folder = tmp_path / "a file"
    no_folder.touch()
    with pytest.raises(ConfigError, match=r"a file|not all tasks are running"):
        cluster.asked(lambda client: client.client(job).stop(target=str(no_folder)))
    assert crashes.all_happened
    assert cluster.deaths == 1
    cluster.life.end(signal.SIGTERM)
    assert jobs_of(tmp_path).request(job).stop is None
    further = Restarted(tmp_path, start, {})
    further.asked(lambda client: await_info(client, job, lambda info: info.state == "RUNNING"))
    assert further.life.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("point", in_the_gate(RESCALING, 0))
def test_a_change_of_parallelism_is_done_once_wherever_its_master_dies(
    tmp_path: Path, start: Callable[..., Command], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    crashes = Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, crashes.environment(point))
    job = cluster.asked(lambda client: client.submit(request(tmp_path, rows=None)).job_id)
    cluster.asked(lambda client: await_info(client, job, lambda info: info.checkpoints_completed >= 2))
    trigger = "ab" * 16
    path = f"/unistream/jobs/{job}/rescale"
    body = json.dumps({"parallelism": {"numbers": 1}, "triggerId": trigger}).encode()

    def ask(client: RestClient) -> object:
        return json.loads(client.request("POST", path, call=CallKind.TRIGGER, content=body).content)

    def outcome(client: RestClient) -> Any:
        return json.loads(client.request("GET", f"{path}/{trigger}").content)["operation"]

    def done(client: RestClient) -> object:
        eventually(lambda: outcome(client) is not None, "it is over", WAIT_S)
        return outcome(client)

    assert cluster.asked(ask) == {"request-id": trigger}
    assert set(cluster.asked(done)["parallelism"].values()) == {1}
    assert crashes.all_happened
    assert cluster.deaths == 1
    assert cluster.asked(ask) == {"request-id": trigger}
    info: JobInfo = cluster.asked(lambda client: await_info(client, job, lambda info: info.all_tasks_run))
    assert {task.index for task in info.subtasks} == {0}
    cluster.asked(lambda client: client.client(job).stop())
    assert cluster.life.end(signal.SIGTERM) == 0
    found = numbers(tmp_path)
    for split in (0, 1):  # each was read up to somewhere
        rows = [n for n in found if n % 2 == split]
        assert rows == list(range(split, 2 * len(rows), 2)), "no row is lost or doubled"


def has_checkpoint_and_runs(info: JobInfo) -> bool:
    """The count of checkpoints goes on from that of the former master."""
    runs = info.state == "RUNNING" and {task.state for task in info.subtasks} == {"RUNNING"}
    return runs and info.checkpoints_completed >= 1 and any(worker.pid for worker in info.task_managers)


def restarts_by_itself(cluster: Restarted, job: JobId, restarts: int) -> None:
    """A worker of the job is killed, once there is a checkpoint; `restarts`: with that one."""
    up: JobInfo = cluster.asked(lambda client: await_info(client, job, has_checkpoint_and_runs))
    os.kill(next(worker.pid for worker in up.task_managers if worker.pid), signal.SIGKILL)
    cluster.asked(
        lambda client: await_info(
            client, job, lambda info: info.restarts >= restarts and info.state == "RUNNING"
        )
    )


def test_attempts_and_restarts_of_all_masters_are_in_the_history(
    tmp_path: Path, start: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two masters are killed, and under each of three the job restarts by itself."""
    Crashes(tmp_path, monkeypatch)
    cluster = Restarted(tmp_path, start, {})
    job = cluster.asked(lambda client: client.submit(request(tmp_path, rows=None)).job_id)
    for restarts in (1, 3, 5):
        restarts_by_itself(cluster, job, restarts)
        info: JobInfo = cluster.asked(lambda client: client.info(job))
        assert info.restarts == restarts
        assert max(task.attempt for task in info.subtasks) == restarts
        if restarts < 5:
            cluster.life.end(signal.SIGKILL)
            cluster.again()
    assert cluster.deaths == 2
    cluster.asked(lambda client: client.client(job).cancel())
    assert cluster.end(job).state == "CANCELED"
    assert cluster.life.end(signal.SIGTERM) == 0
    url = f"sqlite:///{tmp_path / 'home' / 'metadata.db'}"
    recorded = metadata_rows(url, tables.attempts, "vertex", "subtask", "attempt")
    assert {attempt for _, _, attempt in recorded} == set(range(6)), "no line was written over"
    assert metadata_rows(url, tables.jobs, "restarts") == [(5,)]
