"""The stop of a backfill follows the leader of a cluster with several masters, and a cluster of this machine
to its new port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from tests.eventually import WAIT_S, eventually
from tests.unit.backfill.test_journal import ORDER
from tests.unit.master.conftest import make_cluster  # noqa: F401 - a fixture
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from tests.unit.master.test_master_recovery import Succession
from tests.unit.master.test_master_stop_twice import holds_snapshots, running
from unistream.backfill.jobs import running_job, still_runs, stopped_savepoint
from unistream.backfill.journal import BackfillOrder
from unistream.base.config import Configuration
from unistream.base.errors import NothingListens, Unreachable
from unistream.base.ids import ClusterId
from unistream.client.machine import home
from unistream.client.remote.rest_client import RestClient
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.model import messages as msg


class Led:
    """A cluster whose leader changes; a `LeaderAddress` finds the one that leads."""

    def __init__(self, succession: Succession) -> None:
        self.succession = succession
        self._apis: list[Api] = []
        self._url: str | None = None
        self.job = running(self.serve(succession.cluster.dispatcher))

    def serve(self, leader: Dispatcher) -> Dispatcher:
        self._apis.append(Api(SimpleNamespace(dispatcher=leader)))
        self._url = self._apis[-1].server.url
        return leader

    def dies(self) -> None:
        """Nobody leads."""
        self._url = None
        self._apis.pop().close()

    def reach(self, _order: BackfillOrder) -> RestClient:
        return RestClient(self, timeout_s=WAIT_S)

    def order(self) -> BackfillOrder:
        """Its URL is the one of the first leader, which has died by the end."""
        assert self._url is not None
        target = self.succession.cluster.root / "stops"
        return structs.replace(ORDER, job=self.job, url=self._url, session=True, savepoint_root=str(target))

    @property
    def owner_token(self) -> str:
        """That of the process that leads."""
        return self._apis[-1].access.owner_token

    name = "the cluster"
    is_elected = True

    def url(self, timeout_s: float) -> str:
        if self._url is None:
            raise Unreachable("nobody leads")
        return self._url

    def close(self) -> None:
        """A client is closed, and the cluster is not."""

    def end(self) -> None:
        for api in self._apis:
            api.close()
        self.succession.close()


@pytest.fixture
def led(make_cluster: Callable[..., Any]) -> Iterator[Led]:  # noqa: F811
    made = Led(Succession(make_cluster(workers=ScriptedWorkers(ends=False))))
    yield made
    made.end()


def test_a_leader_that_dies_before_the_stop_is_followed(led: Led) -> None:
    order = led.order()
    led.dies()
    led.serve(led.succession.lead(ends=False))
    assert still_runs(order, led.reach)
    assert Path(stopped_savepoint(order, led.reach).removeprefix("file://")).is_relative_to(
        order.savepoint_root
    )
    assert not still_runs(order, led.reach)


def test_a_leader_that_dies_within_the_stop_is_followed(led: Led) -> None:
    order, workers = led.order(), led.succession.cluster.workers
    holds_snapshots(workers)
    found: list[str] = []
    command = threading.Thread(target=lambda: found.append(stopped_savepoint(order, led.reach)))
    command.start()
    workers.await_message(msg.TriggerCheckpoint)
    led.dies()
    second = led.serve(led.succession.lead(ends=False))
    command.join(WAIT_S)
    assert not command.is_alive()
    eventually(lambda: second.job(led.job).state == "FINISHED", "the job is stopped", WAIT_S)
    assert found == [second.job(led.job).savepoint]
    assert len(list(Path(order.savepoint_root).glob("savepoint-*/_metadata"))) == 1, "it is stopped once"


@pytest.mark.parametrize(
    "session", [True, False], ids=["a session cluster", "one that was started for the job"]
)
def test_a_cluster_of_this_machine_is_followed_to_its_new_port(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: bool
) -> None:
    monkeypatch.setenv(home.HOME_VARIABLE, str(tmp_path / "home"))
    mine = ClusterId("c0ffee" * 5 + "00")

    def enter(process: str) -> Path:
        url = led.url(WAIT_S)
        return home.register(
            process,
            url=url,
            target="local",
            now_ms=1,
            session=session,
            cluster=mine,
            token=led.owner_token,
        )

    first = enter("first")
    found = running_job(Configuration(), led.job)
    assert (found.cluster, found.session) == (mine, session)
    order = structs.replace(led.order(), url=found.url, cluster=found.cluster, session=session, config={})
    led.dies()
    first.unlink()
    if session:
        with pytest.raises(NothingListens, match="does not run"):
            still_runs(order)
    else:
        assert not still_runs(order)
    led.serve(led.succession.lead(ends=False))
    enter("second")
    assert still_runs(order)
    stopped = Path(stopped_savepoint(order).removeprefix("file://"))
    assert stopped.is_relative_to(order.savepoint_root)
    assert not still_runs(order)


def test_a_session_cluster_that_is_down_is_not_taken_for_the_end_of_its_job(led: Led) -> None:
    """Started again, it would go on with the job."""
    order = led.order()
    led.dies()

    def gone(_order: BackfillOrder) -> RestClient:
        return RestClient(order.url or "", timeout_s=WAIT_S)

    for ask in (stopped_savepoint, still_runs):
        with pytest.raises(NothingListens, match=r"the session cluster .* does not run .*start it again"):
            ask(order, gone)
    own = structs.replace(order, session=False)
    assert not still_runs(own, gone), "a cluster that was started for the job has ended with it"
