"""Trigger ids of savepoints and stops are known to later leaders, which answer for them over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from tests.unit.master.store_away import AWAY, UNSURE, StoreAway
from tests.unit.master.test_master_recovery import Succession, is_in
from tests.unit.master.test_master_stop_twice import holds_snapshots, running
from unistream.base.ids import JobId
from unistream.core.contract import SnapshotRequest
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.master.store import operations
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind

TRIGGER = "ab" * 16
OTHER = "cd" * 16
SAVEPOINT = SnapshotRequest(kind=SnapshotKind.SAVEPOINT)
STOP = SnapshotRequest(kind=SnapshotKind.SUSPEND)


class Served:
    """Leaders that follow each other, each behind REST."""

    def __init__(self, succession: Succession) -> None:
        self.succession = succession
        self._apis: list[Api] = []
        self.leader = succession.cluster.dispatcher
        self.http = self._serve(self.leader)
        self.job = running(self.leader)

    @property
    def workers(self) -> ScriptedWorkers:
        return self.succession.cluster.workers

    def take_over(self) -> None:
        self.leader = self.succession.lead(ends=False)
        self.http = self._serve(self.leader)

    def _serve(self, leader: Dispatcher) -> httpx.Client:
        self._apis.append(Api(SimpleNamespace(dispatcher=leader)))
        return self._apis[-1].http

    def post(self, path: str, trigger: str = TRIGGER, **body: object) -> httpx.Response:
        return self.http.post(f"/v1/jobs/{self.job}/{path}", json={**body, "triggerId": trigger})

    def status(self, trigger: str = TRIGGER) -> httpx.Response:
        return self.http.get(f"/v1/jobs/{self.job}/savepoints/{trigger}")

    def over(self, trigger: str = TRIGGER) -> httpx.Response:
        eventually(lambda: not is_in_progress(self.status(trigger)), "it is over", WAIT_S)
        return self.status(trigger)

    def location(self, trigger: str = TRIGGER) -> str:
        found = self.over(trigger)
        assert found.status_code == 200, found.text
        assert found.json()["status"] == {"id": "COMPLETED"}
        return str(found.json()["operation"]["location"])

    def savepoints(self) -> list[msg.TriggerCheckpoint]:
        """That the workers of this leader were triggered to take."""
        return [one for one in self.workers.messages(msg.TriggerCheckpoint) if one.kind.is_savepoint]

    def close(self) -> None:
        for api in self._apis:
            api.close()
        self.succession.close()


def is_in_progress(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and answer.json() == {
        "status": {"id": "IN_PROGRESS"},
        "operation": None,
    }


@pytest.fixture
def served(make_cluster: Callable[..., Any]) -> Iterator[Served]:
    made = Served(Succession(make_cluster(workers=ScriptedWorkers(ends=False))))
    yield made
    made.close()


def accepted(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()) == (202, {"request-id": TRIGGER})


def test_a_savepoint_that_is_complete_is_known_to_the_next_leader(served: Served) -> None:
    assert accepted(served.post("savepoints"))
    path = served.location()
    served.take_over()
    assert served.location() == path
    assert accepted(served.post("savepoints"))
    assert served.savepoints() == [], "it is not taken again"


def test_a_savepoint_that_the_takeover_cut_off_has_failed_and_says_why(served: Served) -> None:
    holds_snapshots(served.workers)
    assert accepted(served.post("savepoints"))
    served.take_over()
    failed = served.over()
    assert (failed.status_code, failed.json()["errors"]) == (500, [operations.CUT_OFF])
    assert accepted(served.post("savepoints"))
    assert served.over().json()["errors"] == [operations.CUT_OFF]
    eventually(is_in(served.leader, served.job, "RUNNING"), "the job is RUNNING", WAIT_S)
    assert served.savepoints() == [], "it is not taken again"
    assert served.post("savepoints", OTHER).status_code == 202
    assert Path(served.location(OTHER).removeprefix("file://")).exists()


@pytest.mark.parametrize("body", [{}, {"drain": True}], ids=["stop", "drain"])
def test_a_stop_that_is_carried_on_is_answered_by_every_later_leader(
    served: Served, body: dict[str, object]
) -> None:
    holds_snapshots(served.workers)
    assert accepted(served.post("stop", **body))
    served.take_over()
    assert accepted(served.post("stop", **body))
    path = served.location()
    operation = served.status().json()["operation"]
    assert ("resumable-location" in operation) is bool(body)
    info = served.leader.job(served.job)
    assert (info.state, info.savepoint) == ("FINISHED", path)
    taken = {one.checkpoint_id for one in served.savepoints()}
    assert len(taken) == 1, "one stop"
    served.take_over()
    assert served.status().json() == {"status": {"id": "COMPLETED"}, "operation": operation}
    assert accepted(served.post("stop", **body)), "also when the job has ended"


def test_the_trigger_id_of_an_earlier_leader_is_of_one_request(served: Served) -> None:
    assert accepted(served.post("savepoints"))
    served.location()
    served.take_over()
    answer = served.post("stop")
    assert (answer.status_code, answer.json()["errors"]) == (
        400,
        [f"trigger id {TRIGGER} is the one of another request; choose a new one"],
    )


def test_an_id_that_the_master_has_chosen_is_known_to_the_next_one(served: Served) -> None:
    started = served.http.post(f"/v1/jobs/{served.job}/savepoints", json={}).json()["request-id"]
    path = served.location(started)
    served.take_over()
    assert served.location(started) == path


def test_an_unknown_trigger_id_is_not_found(served: Served) -> None:
    assert served.status().status_code == 404
    served.take_over()
    assert served.status().status_code == 404


class Unsure:
    """A leader that may lose a part of its HA store, and its job."""

    def __init__(self, succession: Succession, part: str) -> None:
        self.succession = succession
        self._part = part
        succession.cluster.reach = self._reach
        self.leader = succession.lead(ends=False)
        succession.cluster.reach = lambda store: store
        self.job = running(self.leader)

    def _reach(self, store: Any) -> StoreAway:
        self.store = StoreAway(store, self._part)
        return self.store

    def loses_it_at_the_next_snapshot(self) -> None:
        def lose(_worker: Any, message: msg.ToTaskManager) -> None:
            if isinstance(message, msg.TriggerCheckpoint):
                self.store.away = AWAY

        self.succession.cluster.workers.intercept = lose


@pytest.fixture
def unsure(make_cluster: Callable[..., Any]) -> Iterator[Callable[[str], Unsure]]:
    made: list[Unsure] = []

    def make(part: str) -> Unsure:
        made.append(Unsure(Succession(make_cluster(workers=ScriptedWorkers(ends=False))), part))
        return made[-1]

    yield make
    for one in made:
        one.store.away = None
        one.succession.close()


def test_a_savepoint_is_answered_once_its_outcome_is_stored(unsure: Callable[[str], Unsure]) -> None:
    first = unsure("/request")
    first.loses_it_at_the_next_snapshot()
    answer = first.leader.snapshot(first.job, SAVEPOINT, TRIGGER)
    eventually(lambda: bool(first.store.refused), "the store refuses the outcome", WAIT_S)
    assert not answer.done()
    first.store.away = None
    path = answer.result(WAIT_S)
    found = operations.find_operation(first.leader._ports.jobs.request(first.job).operations, TRIGGER)
    assert found is not None
    assert found.path == path


def test_a_stop_that_may_be_stored_is_asked_for_again_and_is_the_same_one(
    unsure: Callable[[str], Unsure],
) -> None:
    first = unsure("/request")
    api = Api(SimpleNamespace(dispatcher=first.leader))
    first.store.away = UNSURE
    stop = {"drain": False, "triggerId": TRIGGER}
    answer = api.http.post(f"/v1/jobs/{first.job}/stop", json=stop)
    assert answer.status_code == 503, "clients repeat it with the same trigger id"
    assert "Retry-After" in answer.headers
    first.store.away = None
    assert api.http.post(f"/v1/jobs/{first.job}/stop", json=stop).status_code == 202
    eventually(is_in(first.leader, first.job, "FINISHED"), "the job is stopped", WAIT_S)
    api.close()


@pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE], ids=["stop", "drain"])
def test_a_job_that_only_has_to_end_is_stopped_with_the_savepoint_of_its_first_leader(
    unsure: Callable[[str], Unsure], kind: SnapshotKind
) -> None:
    """The first leader dies between the pointer to the savepoint and the result."""
    first = unsure("results/")
    first.loses_it_at_the_next_snapshot()
    first.leader.snapshot(first.job, SnapshotRequest(kind=kind), TRIGGER)
    eventually(lambda: bool(first.store.refused), "the store refuses the result", WAIT_S)
    second = first.succession.lead(ends=False)
    eventually(is_in(second, first.job, "FINISHED"), "the job is FINISHED", WAIT_S)
    found = second.operation(first.job, TRIGGER)
    assert found is not None
    path = found.answer.result(WAIT_S)
    assert (first.succession.cluster.root / "savepoints") in Path(path.removeprefix("file://")).parents
    info, found = second.job(first.job), second.operation(first.job, TRIGGER)
    assert info.savepoint == path
    assert (info.resumable_savepoint == path) is (kind is SnapshotKind.SUSPEND)
    assert found is not None
    assert found.resumes_from == (None if kind is SnapshotKind.SUSPEND else info.resumable_savepoint)


@pytest.mark.parametrize(
    ("over", "dropped"),
    [
        pytest.param([3, 5], 3, id="the oldest that is over"),
        pytest.param([], 1, id="else the oldest savepoint, and no stop"),
    ],
)
def test_a_new_operation_takes_the_place_of(over: list[int], dropped: int) -> None:
    known: operations.Operations = ()
    for number in range(operations.KEPT_MAX):
        known = operations.begun(known, str(number), STOP if number == 0 else SAVEPOINT)
    known = operations.settled(known, lambda one: int(one.trigger) in over, path="p")
    after = operations.begun(known, "new", SAVEPOINT)
    assert len(after) == operations.KEPT_MAX
    assert {one.trigger for one in known} - {one.trigger for one in after} == {str(dropped)}
    assert after[-1].trigger == "new"


def test_a_takeover_cuts_savepoints_off_and_not_stops() -> None:
    known = operations.begun(operations.begun((), "stop", STOP), "savepoint", SAVEPOINT)
    known = operations.begun(known, "complete", SAVEPOINT)
    known = operations.settled(known, lambda one: one.trigger == "complete", path="p")
    after = {one.trigger: (one.path, one.error) for one in operations.taken_over(known)}
    assert after == {
        "stop": (None, None),
        "savepoint": (None, operations.CUT_OFF),
        "complete": ("p", None),
    }


def test_an_operation_of_a_job_that_was_never_here_is_none(served: Served) -> None:
    assert served.leader.operation(JobId("f" * 32), TRIGGER) is None
