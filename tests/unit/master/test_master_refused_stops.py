"""What a user is answered about a stop holds under the next leader, wherever the first one dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.store_away import AWAY, UNSURE, StoreAway
from tests.unit.master.test_master_recovery import Succession, is_in
from tests.unit.master.test_master_stop_twice import DRAIN, STOP, running
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.base.ids import JobId
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import StoredRequest

SELDOM = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}


class First:
    """A leader whose HA store may be away, and its job, which refuses to be stopped."""

    def __init__(self, succession: Succession) -> None:
        self.succession = succession
        succession.cluster.reach = self._reach
        self.leader = succession.lead(ends=False)
        succession.cluster.reach = lambda store: store
        self.workers = succession.cluster.workers
        self.job = running(self.leader, **SELDOM)
        self.workers.decline_checkpoints("not now")

    def _reach(self, store: Any) -> StoreAway:
        self.store = StoreAway(store)
        return self.store

    @property
    def request_name(self) -> str:
        return f"jobs/{self.job}/request"

    def stored(self) -> StoredRequest:
        return self.leader._ports.jobs.request(self.job)

    def loses_the_store_at_its_refusal(self) -> None:
        decline = self.workers.intercept

        def lose(worker: Any, message: msg.ToTaskManager) -> msg.Answer | None:
            if isinstance(message, msg.TriggerCheckpoint):
                self.store.away = AWAY
            return decline(worker, message)

        self.workers.intercept = lose

    def await_refused_write(self) -> None:
        eventually(lambda: self.request_name in self.store.refused, "the store refuses the write", WAIT_S)


@pytest.fixture
def first(make_cluster: Callable[..., Any]) -> Iterator[First]:
    succession = Succession(make_cluster(workers=ScriptedWorkers(ends=False)))
    made = First(succession)
    yield made
    made.store.away = None
    succession.close()


def not_stored(first: First) -> Future[str]:
    first.store.away = AWAY
    with pytest.raises(Unreachable):
        first.leader.snapshot(first.job, STOP)
    return _refused(AWAY)


def stored_and_not_given(first: First) -> Future[str]:
    """It is stored, and its user was not answered."""
    first.store.away = UNSURE
    with pytest.raises(UnistreamError):
        first.leader.snapshot(first.job, STOP)
    first.store.away = AWAY
    return Future()


def refused_and_not_withdrawn(first: First) -> Future[str]:
    first.loses_the_store_at_its_refusal()
    answer = first.leader.snapshot(first.job, STOP)
    first.await_refused_write()
    return answer


def refused_and_withdrawn(first: First) -> Future[str]:
    answer = first.leader.snapshot(first.job, STOP)
    assert isinstance(answer.exception(WAIT_S), ConfigError)
    return answer


def _refused(error: Exception) -> Future[str]:
    answer: Future[str] = Future()
    answer.set_exception(error)
    return answer


@pytest.mark.parametrize(
    ("until", "answered", "state"),
    [
        pytest.param(not_stored, True, "RUNNING", id="before it is stored: it is not done"),
        pytest.param(stored_and_not_given, False, "FINISHED", id="stored: the next leader stops the job"),
        pytest.param(refused_and_not_withdrawn, False, "FINISHED", id="refused, and stored: again"),
        pytest.param(refused_and_withdrawn, True, "RUNNING", id="withdrawn: the job goes on"),
    ],
)
def test_the_next_leader_does_what_the_user_was_not_refused(
    first: First, until: Callable[[First], Future[str]], answered: bool, state: str
) -> None:
    answer = until(first)
    assert answer.done() is answered
    second = first.succession.lead(ends=False)
    eventually(is_in(second, first.job, state), f"the job is {state}", WAIT_S)
    assert (second.job(first.job).savepoint is not None) is (state == "FINISHED")


def test_a_refusal_is_answered_once_the_store_is_back(first: First) -> None:
    first.loses_the_store_at_its_refusal()
    answer = first.leader.snapshot(first.job, STOP)
    first.await_refused_write()
    assert not answer.done()
    assert first.leader.snapshot(first.job, STOP) is answer, "it is under way until it is withdrawn"
    with pytest.raises(ConfigError, match="is being stopped already"):
        first.leader.snapshot(first.job, DRAIN)
    first.store.away = None
    with pytest.raises(ConfigError, match="not now"):
        answer.result(WAIT_S)
    assert first.stored() == StoredRequest()


def test_a_stop_that_may_be_stored_and_was_not_accepted_is_withdrawn(first: First) -> None:
    first.store.away = UNSURE
    with pytest.raises(UnistreamError):
        first.leader.snapshot(first.job, STOP)
    assert first.stored().stop is SnapshotKind.SUSPEND
    first.store.away = None
    eventually(lambda: first.stored() == StoredRequest(), "it is withdrawn", WAIT_S)
    assert first.leader.job(first.job).state == "RUNNING"


def test_a_leader_that_leaves_the_job_does_not_say_how_its_stop_ends(first: First) -> None:
    hold(first.workers)
    answer = first.leader.snapshot(first.job, STOP)
    first.leader.step_down("another one leads")
    with pytest.raises(Unreachable, match="the next one goes on with it"):
        answer.result(WAIT_S)
    assert first.succession.jobs().request(first.job).stop is SnapshotKind.SUSPEND


def test_the_user_of_a_fenced_leader_is_not_refused(first: First) -> None:
    first.loses_the_store_at_its_refusal()
    answer = first.leader.snapshot(first.job, STOP)
    first.await_refused_write()
    jobs = first.succession.jobs()
    first.store.away = None
    assert isinstance(answer.exception(WAIT_S), Unreachable)
    assert jobs.request(JobId(first.job)).stop is SnapshotKind.SUSPEND


def hold(workers: ScriptedWorkers) -> None:
    workers.intercept = lambda _worker, message: (
        msg.Ack() if isinstance(message, msg.TriggerCheckpoint) else None
    )
