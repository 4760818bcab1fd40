"""A stop that is requested again is the same one; a cluster that is being stopped takes no jobs then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.conftest import request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from tests.unit.master.test_master_recovery import Succession, is_in
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import SnapshotRequest
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import StoredRequest

STOP = SnapshotRequest(kind=SnapshotKind.SUSPEND)
DRAIN = SnapshotRequest(kind=SnapshotKind.TERMINATE)
SAVEPOINT = SnapshotRequest(kind=SnapshotKind.SAVEPOINT)


@pytest.fixture
def succession(make_cluster: Callable[..., Any]) -> Iterator[Succession]:
    made = Succession(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


def holds_snapshots(workers: ScriptedWorkers) -> None:
    """From now on no snapshot begins at any task."""

    def hold(_worker: TaskManagerId, message: msg.ToTaskManager) -> msg.Answer | None:
        return msg.Ack() if isinstance(message, msg.TriggerCheckpoint) else None

    workers.intercept = hold


def running(leader: Dispatcher, **config: str) -> JobId:
    job = leader.submit(request(config=config))
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    return job


def test_two_requests_are_one_stop(succession: Succession) -> None:
    leader = succession.cluster.dispatcher
    job = running(leader)
    first, second = leader.snapshot(job, STOP), leader.snapshot(job, STOP)
    assert first.result(WAIT_S) == second.result(WAIT_S)
    assert leader.wait(job, WAIT_S)
    assert leader.job(job).state == "FINISHED"


def test_another_stop_is_refused_and_the_first_one_stays_durable(succession: Succession) -> None:
    leader = succession.cluster.dispatcher
    job = running(leader)
    holds_snapshots(succession.cluster.workers)
    first = leader.snapshot(job, STOP)
    with pytest.raises(ConfigError, match="is being stopped already, without a drain"):
        leader.snapshot(job, DRAIN)
    plain = leader.snapshot(job, SAVEPOINT)
    with pytest.raises(ConfigError):
        plain.result(WAIT_S)
    assert not first.done()
    stored = leader._ports.jobs.request(job)
    assert stored.stop is SnapshotKind.SUSPEND
    second = leader.snapshot(job, STOP)
    leader.cancel(job)
    for answer in (first, second):
        with pytest.raises(ConfigError):
            answer.result(WAIT_S)


def test_a_stop_that_failed_may_be_requested_again(succession: Succession) -> None:
    leader, workers = succession.cluster.dispatcher, succession.cluster.workers
    job = running(
        leader, **{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
    )
    workers.decline_checkpoints("not now")
    with pytest.raises(ConfigError):
        leader.snapshot(job, STOP).result(WAIT_S)
    workers.intercept = lambda _worker, _message: None
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    leader.snapshot(job, DRAIN).result(WAIT_S)
    assert leader.wait(job, WAIT_S)
    assert leader.job(job).state == "FINISHED"


def test_the_next_leader_knows_the_stop_of_the_first(succession: Succession) -> None:
    leader = succession.cluster.dispatcher
    job = running(leader)
    target = str(succession.cluster.root / "savepoints")
    succession.jobs().set_request(job, StoredRequest(stop=SnapshotKind.SUSPEND, target=target))
    second = succession.lead(ends=False)
    eventually(lambda: job in second.masters(), "it has taken the job over", WAIT_S)
    directory = second.snapshot(job, STOP).result(WAIT_S)
    assert directory.removeprefix("file://").startswith(target)
    assert second.wait(job, WAIT_S)
    assert second.job(job).savepoint == directory


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"forMs": 60_000}, 200),
        ({"forMs": 0}, 200),
        ({"forMs": -1}, 400),
        ({"forMs": 300_001}, 400),
        ({"forMs": "soon"}, 400),
        ({}, 400),
        ({"forMs": 1, "more": 1}, 400),
    ],
)
def test_refusals_over_rest(api: Api, body: dict[str, object], status: int) -> None:
    answer = api.http.put("/v1/unistream/cluster/refusal", json=body)
    assert answer.status_code == status, answer.text
    if status == 200:
        again = api.http.put("/unistream/cluster/refusal", json={"forMs": 0})
        assert again.json() == {"refused": body["forMs"] != 0}


def test_new_jobs_are_refused_and_known_ones_are_not(succession: Succession) -> None:
    leader = succession.cluster.dispatcher
    known = leader.submit(request(request_id="known"))
    assert leader.refuse_jobs(60_000) is False
    with pytest.raises(ConfigError, match="is being stopped and takes no jobs now"):
        leader.submit(request(request_id="new"))
    assert leader.submit(request(request_id="known")) == known
    assert leader.refuse_jobs(0) is True
    assert leader.submit(request(request_id="new")) != known
