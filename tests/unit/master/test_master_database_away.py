"""How a job has ended is known while the database is away: the HA store has its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.database_file import give_back, take_away
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from tests.unit.master.test_master_operations import STOP
from tests.unit.master.test_master_recovery import Succession, is_cleaned
from tests.unit.master.test_master_stop_twice import DRAIN, running
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.core.contract import SnapshotRequest


class Ended:
    """A job has ended under the first leader; the second one is asked, without the database."""

    def __init__(self, succession: Succession) -> None:
        self.succession = succession
        self._apis: list[Api] = []
        self._file = succession.cluster.root / "metadata.db"

    def stopped(self, how: SnapshotRequest) -> JobId:
        leader = self.succession.cluster.dispatcher
        job = running(leader)
        self.savepoint = leader.snapshot(job, how).result(WAIT_S)
        eventually(is_cleaned(leader, job), "it is cleaned", WAIT_S)
        self.whole = leader.job(job)
        return job

    def cancelled(self) -> JobId:
        leader = self.succession.cluster.dispatcher
        job = running(leader)
        leader.cancel(job)
        eventually(is_cleaned(leader, job), "it is cleaned", WAIT_S)
        return job

    def take_over(self) -> Api:
        leader = self.succession.lead()
        self._moved = take_away(self._file)
        self._apis.append(Api(SimpleNamespace(dispatcher=leader)))
        return self._apis[-1]

    def database_is_back(self) -> None:
        give_back(self._file, self._moved)

    def close(self) -> None:
        for api in self._apis:
            api.close()
        self.succession.close()


@pytest.fixture
def ended(make_cluster: Callable[..., Any]) -> Iterator[Ended]:
    made = Ended(Succession(make_cluster(workers=ScriptedWorkers(ends=False))))
    yield made
    made.close()


@pytest.mark.parametrize("how", [STOP, DRAIN], ids=["stop", "drain"])
def test_its_state_and_its_savepoint_are_answered(ended: Ended, how: SnapshotRequest) -> None:
    job = ended.stopped(how)
    api = ended.take_over()
    assert api.get(f"/v1/jobs/{job}/status") == {"status": "FINISHED"}
    shown = api.get(f"/v1/jobs/{job}")
    assert (shown["state"], shown["end-time"]) == ("FINISHED", ended.whole.ended_ms)
    with RestClient(api.server.url) as client:
        result = client.client(job).result(WAIT_S)
    assert result.savepoint == ended.savepoint
    assert result.resumable_savepoint == ended.whole.resumable_savepoint
    assert "the metadata database does not answer" in api.get(f"/unistream/jobs/{job}")["incomplete"]


def test_it_is_in_every_list(ended: Ended) -> None:
    job = ended.cancelled()
    api = ended.take_over()

    def listed() -> list[tuple[str, str]]:
        return [(one["jid"], one["state"]) for one in api.get("/v1/jobs/overview")["jobs"]]

    assert listed() == [(job, "CANCELED")]
    assert listed() == [(job, "CANCELED")], "also while the list is fresh"
    with RestClient(api.server.url) as client:
        [summary] = client.jobs()
    assert (summary.job, summary.state) == (job, "CANCELED")


@pytest.mark.parametrize("page", ["/exceptions", "/checkpoints", "/plan"])
def test_what_only_the_database_knows_is_unavailable_until_it_answers(ended: Ended, page: str) -> None:
    job = ended.stopped(STOP)
    api = ended.take_over()
    answer = api.http.get(f"/v1/jobs/{job}{page}")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    ended.database_is_back()
    eventually(lambda: api.http.get(f"/v1/jobs/{job}{page}").status_code == 200, "it answers", WAIT_S)
    eventually(
        lambda: api.get(f"/unistream/jobs/{job}")["checkpoints"] != [], "the whole job is known", WAIT_S
    )


def test_a_job_of_which_nobody_knows_an_end_is_unavailable(ended: Ended) -> None:
    assert ended.take_over().http.get(f"/v1/jobs/{'f' * 32}").status_code == 503
