"""Workers on a host on which others decide, too: what it says of itself, and of machines that are about to
go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.ids import TaskManagerId
from unistream.port.host import LeavingListener


class SharedWorkers(ScriptedWorkers):
    """Where a cluster manager decides."""

    def __init__(self) -> None:
        super().__init__(ends=False)
        self.said: list[str] = []
        self.doubted: list[TaskManagerId] = []
        self.leave: LeavingListener | None = None

    def notes(self) -> list[str]:
        return list(self.said)

    def on_leaving(self, listener: LeavingListener) -> None:
        self.leave = listener

    def given_up(self, task_manager: TaskManagerId) -> None:
        self.doubted.append(task_manager)


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    api = Api(make_cluster(workers=SharedWorkers()))
    yield api
    api.close()


def test_what_it_says_stands_where_jobs_are_shown(api: Api, submission: Callable[..., Any]) -> None:
    dispatcher, host = api.cluster.dispatcher, api.cluster.workers
    job = dispatcher.submit(submission())
    eventually(lambda: dispatcher.job(job).state == "RUNNING", "it runs")
    assert api.get(f"/unistream/jobs/{job}")["notes"] == []
    host.said = ["there are no executors"]
    for path in (f"/unistream/jobs/{job}", "/unistream/jobs", "/unistream/overview"):
        assert api.get(path)["notes"] == ["there are no executors"]


def test_tasks_leave_a_machine_that_is_about_to_go(
    api: Api, submission: Callable[..., Any], checkpointed: dict[str, str]
) -> None:
    dispatcher, host = api.cluster.dispatcher, api.cluster.workers
    job = dispatcher.submit(submission(config=checkpointed))
    eventually(lambda: dispatcher.job(job).state == "RUNNING", "it runs")
    first = host.registered[0]
    host.leave(first, "its machine is taken away")
    eventually(lambda: dispatcher.job(job).restarts == 1, "its tasks start again elsewhere")
    [failure] = dispatcher.job(job).exceptions
    assert (failure.kind, failure.task_manager) == ("TaskManagerLost", first)
    assert "its machine is taken away" in failure.message
