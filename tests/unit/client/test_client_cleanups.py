"""What a cluster and its leader close, in which order, also when closing one of them fails."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from unistream.base.config import Configuration
from unistream.base.ids import TaskManagerId
from unistream.client.embedded.cluster_trust import ClusterTrust
from unistream.client.embedded.contending import Term
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.embedded.hosts import host_traits
from unistream.client.embedded.leader_process import LeaderPlan, LeaderProcess
from unistream.client.machine import home
from unistream.ha.folder_store import FolderHaStore
from unistream.ha.single_node import HA_FOLDER, FolderElection
from unistream.master.store import JobStore, Leadership
from unistream.port.ha import HaStore
from unistream.port.host import LostListener, TaskManagerSpec


@dataclass
class Host:
    """Runs no workers. `fails`: closing it raises."""

    fails: bool = False
    closed: int = 0

    def create(self, on_lost: LostListener) -> Host:
        return self

    def start(self, spec: TaskManagerSpec) -> None:
        raise AssertionError("nobody submits a job")

    def stop(self, task_manager: TaskManagerId) -> None:
        raise AssertionError("there is no worker")

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise OSError("the host does not close")


def clock_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "clock"}


class OneOfSeveral(FolderHaStore):
    """Where another master may lead."""

    leading = True

    def leads(self) -> bool:
        return self.leading


@dataclass
class Leading:
    """A leader with a REST API, and what it still has when its jobs have ended."""

    root: Path
    host: Host = field(default_factory=Host)
    at_end: dict[str, bool] | None = None

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex
        self._clocks = clock_threads()
        self.election = FolderElection(self.root)
        self.election.start(self)
        config = Configuration({"rest.port": "0"})
        plan = LeaderPlan(
            id=self.id,
            target="local",
            config=config,
            workdir=self.root,
            jobs=None,
            goes_on="",
            session=True,
            rest=True,
            trust=ClusterTrust(config, str(self.root)),
            server=None,
            create_host=self.host.create,
            create_engine=None,
            traits=host_traits("local", config),
            max_workers=1,
            on_shutdown_request=lambda: None,
            on_end=self.on_end,
        )
        self.leader = LeaderProcess(plan, self.term, self.election)
        self.leader.ready()

    def granted(self, store: HaStore) -> None:
        self.store = OneOfSeveral(self.root / HA_FOLDER, store.epoch)
        self.term = Term(self.store, Leadership(self.store))

    def suspended(self) -> None:
        raise AssertionError("a folder is not suspended")

    def resumed(self) -> None:
        raise AssertionError("a folder is not suspended")

    def revoked(self, reason: str) -> None:
        raise AssertionError("nobody else leads, until the test claims the folder")

    def on_end(self, jobs: JobStore) -> None:
        self.at_end = self.has()
        raise ValueError("the jobs do not end")

    def has(self) -> dict[str, bool]:
        return {
            "entry": any(entry.id == self.id for entry in home.clusters()),
            "REST": self.answers(),
            "host": not self.host.closed,
            "clock": not clock_threads() <= self._clocks,
        }

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.leader.rest_url}/icon.svg", trust_env=False).status_code < 500
        except httpx.TransportError:
            return False


@pytest.fixture
def leading(tmp_path: Path) -> Iterator[Leading]:
    made = Leading(tmp_path)
    yield made
    with contextlib.suppress(ValueError, OSError):
        made.leader.close()
    made.election.close()


ALL = {"entry": True, "REST": True, "host": True, "clock": True}
NOTHING = dict.fromkeys(ALL, False)
CLOCK_ONLY = NOTHING | {"clock": True}


def test_a_leader_closes_its_clock_last_and_all_before_its_jobs_end(leading: Leading) -> None:
    assert leading.has() == ALL
    with pytest.raises(ValueError, match="the jobs do not end"):
        leading.leader.close()
    assert leading.at_end == CLOCK_ONLY
    assert leading.has() == NOTHING, "also what comes after the failure"
    leading.leader.close()
    assert leading.host.closed == 1, "once"


def test_a_leader_whose_workers_do_not_end_closes_the_rest(
    leading: Leading, caplog: pytest.LogCaptureFixture
) -> None:
    leading.host.fails = True
    with pytest.raises(ValueError, match="the jobs do not end"):
        leading.leader.close()
    failures = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert failures == ["the host does not close", "the jobs do not end"], "each is logged"
    assert (leading.at_end, leading.has()) == (CLOCK_ONLY, NOTHING)


@pytest.mark.parametrize("fails", [False, True], ids=["all ends", "its workers do not end"])
def test_a_leader_that_steps_down_leaves_the_jobs_and_closes_the_rest(leading: Leading, fails: bool) -> None:
    leading.store.leading = False
    leading.host.fails = fails
    with pytest.raises(OSError, match="the host does not close") if fails else contextlib.nullcontext():
        leading.leader.step_down("another one leads")
    assert leading.leader.has_stepped_down
    assert leading.at_end is None, "they are the next leader's"
    assert leading.has() == NOTHING
    assert leading.term.leadership.over == "another one leads"


@pytest.mark.parametrize("fails", [False, True], ids=["all ends", "its workers do not end"])
def test_a_cluster_frees_and_removes_its_folder(fails: bool) -> None:
    clocks, host = clock_threads(), Host(fails=fails)
    cluster = EmbeddedCluster("local", Configuration({}), create_host=host.create, rest=False)
    assert cluster.workdir.exists()
    with pytest.raises(OSError, match="the host does not close") if fails else contextlib.nullcontext():
        cluster.close()
    cluster.close()
    assert host.closed == 1
    assert not cluster.workdir.exists()
    assert clock_threads() <= clocks


def test_a_folder_of_a_cluster_that_did_not_close_well_can_be_used_again(tmp_path: Path) -> None:
    config, host = Configuration({}), Host(fails=True)
    with pytest.raises(OSError, match="the host does not close"):
        EmbeddedCluster("local", config, workdir=tmp_path, create_host=host.create, rest=False).close()
    EmbeddedCluster("local", config, workdir=tmp_path, create_host=Host().create, rest=False).close()
