"""A change of parallelism outlives its master: under its trigger id it is done once, whoever leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.store_away import AWAY
from tests.unit.master.test_master_operations import OTHER, TRIGGER, Served, Unsure, accepted
from tests.unit.master.test_master_recovery import Succession, is_in
from tests.unit.master.test_master_stop_twice import holds_snapshots
from unistream.base.crash_points import passing
from unistream.base.errors import Unreachable
from unistream.base.ids import VertexId
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.master.store import operations
from unistream.master.store.operations import RescaleAsked
from unistream.model import messages as msg
from unistream.model.stored_job import StoredRequest

WIDER = {"source": 3}


class Rescaled(Served):
    """With what a change of parallelism is asked for and seen by."""

    def ask(self, trigger: str = TRIGGER, parallelism: dict[str, int] | None = None) -> httpx.Response:
        body = {"parallelism": parallelism or WIDER, "triggerId": trigger}
        return self.http.post(f"/unistream/jobs/{self.job}/rescale", json=body)

    def status(self, trigger: str = TRIGGER) -> httpx.Response:
        return self.http.get(f"/unistream/jobs/{self.job}/rescale/{trigger}")

    def widths(self, leader: Dispatcher | None = None) -> list[int]:
        subtasks = (leader or self.leader).job(self.job).subtasks
        return list(Counter(one.vertex for one in subtasks).values())

    def done(self, trigger: str = TRIGGER) -> list[int]:
        found = self.over(trigger)
        assert (found.status_code, found.json().get("status")) == (200, {"id": "COMPLETED"}), found.text
        return list(found.json()["operation"]["parallelism"].values())

    def rescales(self) -> int:
        """How often this leader has started all tasks again."""
        return restarts(self.workers)


@pytest.fixture
def served(make_cluster: Callable[..., Any]) -> Iterator[Rescaled]:
    made = Rescaled(Succession(make_cluster(workers=ScriptedWorkers(ends=False))))
    yield made
    made.close()


def restarts(workers: ScriptedWorkers) -> int:
    deployed = Counter(message.deployment.attempt.subtask for message in workers.messages(msg.DeployTask))
    return max(deployed.values()) - 1


class Died(Exception):
    """Stands for the death of a master."""


def dies_at(point: str) -> Callable[[str], None]:
    def look(name: str) -> None:
        if name == point:
            raise Died

    return look


def test_killed_when_it_is_stored_and_the_job_does_not_know(served: Rescaled) -> None:
    with passing(dies_at("rescale.stored")), pytest.raises(Died):
        served.leader.rescale(served.job, WIDER, TRIGGER)
    served.take_over()
    assert accepted(served.ask()), "a client that got no answer asks again"
    assert served.done() == [3, 2]
    assert served.widths() == [3, 2]
    assert served.rescales() == 1


def test_killed_while_the_job_prepares_it(served: Rescaled) -> None:
    holds_snapshots(served.workers)
    assert accepted(served.ask())
    served.take_over()
    assert served.done() == [3, 2]
    assert accepted(served.ask())
    assert (served.widths(), served.rescales()) == ([3, 2], 1)
    served.take_over()
    assert served.done() == [3, 2]
    assert served.rescales() == 0, "it begins with that"


def test_shut_down_while_the_job_prepares_it(served: Rescaled) -> None:
    holds_snapshots(served.workers)
    answer = served.leader.rescale(served.job, WIDER, TRIGGER)
    served.leader.close()
    with pytest.raises(Unreachable, match="the next one goes on with it"):
        answer.result(WAIT_S)
    served.take_over()
    assert served.done() == [3, 2]
    assert served.rescales() == 1


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


@pytest.mark.parametrize(
    ("part", "point", "again"),
    [
        pytest.param("/job", "rescale.stored", 1, id="before the next leader would start it so"),
        pytest.param("/request", "rescale.kept", 0, id="before its outcome is stored"),
    ],
)
def test_killed_when_the_job_runs_with_it(
    unsure: Callable[[str], Unsure], part: str, point: str, again: int
) -> None:
    first = unsure(part)

    def lose(name: str) -> None:
        if name == point:
            first.store.away = AWAY

    with passing(lose):
        answer = first.leader.rescale(first.job, WIDER, TRIGGER)
        eventually(lambda: bool(first.store.refused), "the store is away", WAIT_S)
    assert not answer.done(), "it is not answered before it is durable"
    second = first.succession.lead(ends=False)
    eventually(is_in(second, first.job, "RUNNING"), "the job is RUNNING", WAIT_S)
    found = second.operation(first.job, TRIGGER)
    assert found is not None
    assert found.answer.result(WAIT_S) == ""
    assert second.rescale(first.job, WIDER, TRIGGER).result(WAIT_S) == ""
    assert list(second._ports.jobs.load(first.job).parallelism.values()) == [3, 2]
    assert restarts(first.succession.cluster.workers) == again


def test_what_was_refused_stays_refused(served: Rescaled) -> None:
    holds_snapshots(served.workers)
    assert accepted(served.ask())
    assert served.ask(OTHER, {"source": 1}).status_code == 202
    why = "the job is already being rescaled"
    assert (served.over(OTHER).status_code, served.over(OTHER).json()["errors"]) == (500, [why])
    served.take_over()
    assert served.done() == [3, 2]
    assert served.over(OTHER).json()["errors"] == [why]
    assert served.ask(OTHER, {"source": 1}).status_code == 202
    assert served.widths() == [3, 2]


def test_the_same_change_of_two_clients_is_one(served: Rescaled) -> None:
    holds_snapshots(served.workers)
    assert accepted(served.ask())
    assert served.ask(OTHER).status_code == 202
    served.take_over()
    assert (served.done(), served.done(OTHER)) == ([3, 2], [3, 2])
    assert served.rescales() == 1


def test_two_changes_of_an_earlier_leader_are_done_in_their_order(served: Rescaled) -> None:
    """The outcome of the first one was not stored yet when the second one was accepted."""
    known: operations.Operations = ()
    source = served.leader.graph(served.job).vertices[0].id
    for trigger, width in (TRIGGER, 3), (OTHER, 1):
        known = operations.begun(known, trigger, RescaleAsked(str(width), {source: width}))
    jobs = served.succession.jobs()
    jobs.set_request(served.job, StoredRequest(operations=known))
    served.take_over()
    assert served.done(OTHER) == [1, 2]
    assert served.over().status_code == 200
    assert (served.widths(), served.rescales()) == ([1, 2], 2)


def test_a_stop_of_an_earlier_leader_comes_first(served: Rescaled) -> None:
    holds_snapshots(served.workers)
    assert accepted(served.ask())
    assert served.post("stop", OTHER).status_code == 202
    served.take_over()
    eventually(is_in(served.leader, served.job, "FINISHED"), "the job is stopped", WAIT_S)
    assert "not rescaled" in served.over().json()["errors"][0]
    served.take_over()
    assert "not rescaled" in served.over().json()["errors"][0]


def test_requirements_that_were_accepted_are_met_by_the_next_leader(served: Rescaled) -> None:
    holds_snapshots(served.workers)
    body = {
        vertex.id: {"parallelism": {"lowerBound": 1, "upperBound": 1}}
        for vertex in served.leader.graph(served.job).vertices
    }
    with passing(dies_at("rescale.stored")), pytest.raises(Died):
        served.leader.rescale(served.job, dict.fromkeys(body, 1))
    served.take_over()
    eventually(lambda: served.widths() == [1, 1], "it is as narrow", WAIT_S)
    answer = served.http.put(f"/jobs/{served.job}/resource-requirements", json=body)
    assert (answer.status_code, served.rescales()) == (200, 1)


@pytest.mark.parametrize("leaders", [1, 2])
def test_a_trigger_id_is_of_one_request(served: Rescaled, leaders: int) -> None:
    assert accepted(served.ask())
    assert served.done() == [3, 2]
    if leaders == 2:
        served.take_over()
    of_another = [f"trigger id {TRIGGER} is the one of another request; choose a new one"]
    for answer in served.ask(parallelism={"source": 1}), served.post("savepoints"), served.post("stop"):
        assert (answer.status_code, answer.json()["errors"]) == (400, of_another)
    assert served.http.get(f"/jobs/{served.job}/savepoints/{TRIGGER}").status_code == 404
    assert served.widths() == [3, 2]


def test_what_is_kept_of_one_is_small() -> None:
    many = {VertexId(f"{n:032x}"): 7 for n in range(1_000)}
    asked = RescaleAsked(operations.digest_of_widths({str(name): n for name, n in many.items()}), many)
    known = operations.begun((), TRIGGER, asked)
    assert operations.request_of(known[0]) == asked
    assert operations.taken_over(known) == known, "the next leader goes on with it"
    over = operations.settled(known, lambda _one: True, path="")
    assert over[0].is_over
    assert over[0].rescale is not None
    assert over[0].rescale.parallelism == {}
    assert operations.request_of(over[0]) == asked, "and knows it again"
