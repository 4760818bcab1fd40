"""Numbers of attempts and the count of restarts go on under each new leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.eventually import WAIT_S, eventually
from tests.metadata_rows import rows
from tests.unit.master.conftest import request
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.test_master_recovery import Succession, is_in
from unistream.base.errors import Unreachable
from unistream.base.ids import JobId
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.metadata import tables
from unistream.model import messages as msg
from unistream.model.job_info import JobInfo
from unistream.model.stored_job import NOTHING_USED, AttemptCounter

Make = Callable[..., Any]


@pytest.fixture
def succession(make_cluster: Make) -> Iterator[Succession]:
    made = Succession(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


def numbers(workers: ScriptedWorkers) -> set[int]:
    """Of the attempts that were deployed there."""
    return {message.deployment.attempt.attempt for message in workers.messages(msg.DeployTask)}


def fails_a_task(leader: Dispatcher, workers: ScriptedWorkers, job: JobId) -> JobInfo:
    """The job restarts by itself, once."""
    before = leader.job(job)
    reports_a_failure(workers)
    after = leader.wait_for(
        job, lambda info: info.restarts > before.restarts and info.state == "RUNNING", WAIT_S
    )
    assert after is not None
    return after


def test_two_leaders_later_no_number_was_used_twice(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    cluster = succession.cluster
    leader = cluster.dispatcher
    job = leader.submit(request(config=checkpointed))
    used: set[int] = set()
    for restarts in (1, 3, 5):  # by itself, and by each new leader
        workers = cluster.workers
        eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
        info = fails_a_task(leader, workers, job)
        assert info.restarts == restarts
        assert {task.attempt for task in info.subtasks} == {restarts}
        assert not used & numbers(workers), "a worker that was forgotten cannot be taken for a new one"
        used |= numbers(workers)
        if restarts < 5:
            leader = succession.lead(ends=False)
    assert used == {0, 1, 2, 3, 4, 5}
    assert leader._ports.jobs.attempts(job) == AttemptCounter(highest=5, restarts=5)
    leader.cancel(job)
    assert leader.wait(job, WAIT_S)
    recorded = rows(cluster.url, tables.attempts, "subtask", "attempt")
    assert {attempt for _, attempt in recorded} == used, "no line of the history was written over"
    assert rows(cluster.url, tables.jobs, "restarts") == [(5,)]
    result = leader._ports.jobs.result(job)
    assert result is not None
    assert result.restarts == 5


def test_a_new_leader_has_the_whole_restart_budget(succession: Succession) -> None:
    """As in Flink: that a master has died is no failure of the job."""
    one = {
        "execution.checkpointing.interval": "20 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    leader = succession.cluster.dispatcher
    job = leader.submit(request(config=one))
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    assert fails_a_task(leader, succession.cluster.workers, job).restarts == 1
    leader = succession.lead(ends=False)
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    assert fails_a_task(leader, succession.cluster.workers, job).restarts == 3
    reports_a_failure(succession.cluster.workers)
    assert leader.wait(job, WAIT_S)
    assert leader.job(job).state == "FAILED"


def test_a_job_that_no_leader_has_started_was_never_restarted(succession: Succession) -> None:
    """Its submission was durable, and its leader died at once."""
    first, old = succession.cluster.dispatcher, succession.cluster.workers
    old.intercept = lambda _worker, _message: msg.Ack()
    job = first.submit(request())
    old.await_message(msg.DeployTask)
    jobs = succession.jobs()
    jobs._ha.remove(f"jobs/{job}/attempts")
    assert jobs.attempts(job) == NOTHING_USED
    leader = succession.lead(ends=False)
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    assert leader.job(job).restarts == 0
    assert numbers(succession.cluster.workers) == {0}


def runs_with(leader: Dispatcher) -> JobId:
    """A job that takes no checkpoint and restarts at most twice."""
    config = {"execution.checkpointing.interval": "1 h", "restart-strategy.type": "fixed-delay"}
    config |= {"restart-strategy.fixed-delay.delay": "1 ms", "restart-strategy.fixed-delay.attempts": "2"}
    job = leader.submit(request(config=config))
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    return job


def reports_a_failure(workers: ScriptedWorkers) -> None:
    """One task of the newest attempts fails, which is one failure."""
    attempt = workers.messages(msg.DeployTask)[-1].deployment.attempt
    failure = msg.TaskFailure(kind="Late", message="from another life")
    workers.call_master(msg.TaskStateChanged(attempt=attempt, state="FAILED", failure=failure))


def test_an_old_leader_that_does_not_know_begins_no_attempt_of_a_new_number(succession: Succession) -> None:
    first, old = succession.cluster.dispatcher, succession.cluster.workers
    job = runs_with(first)
    jobs = succession.jobs()
    reports_a_failure(old)
    assert first.wait(job, WAIT_S)
    info = first.job(job)
    assert info.state == "SUSPENDED"
    assert info.failure is not None
    assert "another master has the job" in info.failure.message
    assert numbers(old) == {0}
    assert jobs.attempts(job) == AttemptCounter(highest=0, restarts=0)


def test_nothing_is_deployed_that_is_not_durable(
    succession: Succession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its store a job restarts as often as its strategy allows."""
    leader, workers = succession.cluster.dispatcher, succession.cluster.workers
    job = runs_with(leader)
    store = leader._ports.jobs._ha
    replace = store.replace

    def fails(name: str, value: bytes, version: int) -> int:
        if name.endswith("/attempts"):
            raise Unreachable("the store does not answer")
        return replace(name, value, version)

    monkeypatch.setattr(store, "replace", fails)
    reports_a_failure(workers)
    assert leader.wait(job, WAIT_S)
    info = leader.job(job)
    assert (info.state, info.restarts) == ("FAILED", 2)
    assert info.failure is not None
    assert "nothing is started, since the store of the job failed" in info.failure.message
    assert numbers(workers) == {0}


def test_a_late_word_of_a_forgotten_worker_means_nothing_to_the_new_leader(
    succession: Succession, checkpointed: dict[str, str]
) -> None:
    first, old = succession.cluster.dispatcher, succession.cluster.workers
    job = first.submit(request(config=checkpointed))
    eventually(is_in(first, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    former = old.messages(msg.DeployTask)[0].deployment.attempt
    leader = succession.lead(ends=False)
    eventually(is_in(leader, job, "RUNNING"), "the job is RUNNING", WAIT_S)
    new = succession.cluster.workers
    failed = msg.TaskStateChanged(
        attempt=former, state="FAILED", failure=msg.TaskFailure(kind="Late", message="from another life")
    )
    new.call_master(failed)
    new.await_message(msg.CheckpointCompleted, len(new.messages(msg.CheckpointCompleted)) + 3)
    info = leader.job(job)
    assert (info.state, info.restarts, info.exceptions) == ("RUNNING", 1, ())
    current = replace_attempt(failed, former.attempt + 1)
    new.call_master(current)
    assert leader.wait_for(job, lambda info: info.restarts == 2, WAIT_S) is not None, "its own words count"


def replace_attempt(message: msg.TaskStateChanged, number: int) -> msg.TaskStateChanged:
    attempt = message.attempt
    newer = type(attempt)(attempt.job, attempt.vertex, attempt.index, number)
    return msg.TaskStateChanged(attempt=newer, state=message.state, failure=message.failure)
