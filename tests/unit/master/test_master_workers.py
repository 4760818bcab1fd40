"""Workers over HTTP: what is in their slots, what they may use of their machines, blocked hosts, logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.eventually import eventually
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.ids import AllocationId, AttemptId, JobId, TaskManagerId, VertexId
from unistream.core.contract import AttemptView, JobView
from unistream.core.resource import BlockedHost, SlotView
from unistream.master.shown.workers_shown import (
    LOG_BYTES_MAX,
    BlockedHostInfo,
    JobInSlots,
    TaskInSlot,
    worker_log,
    workers_info,
)
from unistream.model import messages as msg
from unistream.model.graph import JobGraph
from unistream.model.job_info import TaskManagerInfo
from unistream.model.resources import MachineResources
from unistream.rest.flink_json import task_manager

TM = TaskManagerId("tm-1")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def logged(make_cluster: Callable[..., Any], logs: Path) -> Iterator[Api]:
    """Its workers have logs on this machine."""
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False), log_dir=str(logs)))
    yield api
    api.close()


def test_each_slot_has_its_job_and_tasks(logged: Api, submission: Callable[..., Any], logs: Path) -> None:
    dispatcher, http = logged.cluster.dispatcher, logged
    job = dispatcher.submit(submission())
    eventually(lambda: dispatcher.job(job).state == "RUNNING", "it runs")
    first = logged.cluster.workers.registered[0]
    (logs / f"taskmanager-{first}.log").write_text("hello\n")
    beat = msg.Heartbeat(task_manager=first, used={"network": 3})
    assert isinstance(logged.cluster.workers.call_master(beat), msg.Ack)
    shown = http.get("/unistream/workers")
    slots = [slot for worker in shown["workers"] for slot in worker["slots"]]
    assert {slot["job"] for slot in slots} == {job}
    tasks = sorted((task["vertex_name"], task["index"], task["state"]) for s in slots for task in s["tasks"])
    assert tasks == [(name, index, "RUNNING") for name in ("sink", "source") for index in (0, 1)]
    for slot in slots:
        assert sorted(task["vertex_name"] for task in slot["tasks"]) == ["sink", "source"], "they share it"
    (known,) = [one for one in shown["workers"] if one["worker"]["id"] == first]
    worker = known["worker"]
    assert worker["hardware"] == {"cpu_cores": 2, "memory_bytes": 2**34}
    assert (worker["memory_used"], known["has_log"]) == ({"network": 3}, True)
    assert worker["started_ms"] <= worker["registered_ms"] <= shown["now_ms"]
    assert shown["blocked"] == []
    flink = {one["id"]: one["hardware"]["cpuCores"] for one in http.get("/taskmanagers")["taskmanagers"]}
    assert flink[first] == 2
    assert http.get(f"/unistream/workers/{first}/log") == {"text": "hello\n", "size_bytes": 6}


def test_only_logs_of_workers_are_read(logged: Api, logs: Path) -> None:
    (logs.parent / "secret.log").write_text("x")
    (logs / "taskmanager-link.log").symlink_to(logs.parent / "secret.log")
    ids = ("tm-none", "..", "..%2F..%2Fsecret", "a%00b", "x" * 101, "link")
    found = {id_: logged.http.get(f"/unistream/workers/{id_}/log").status_code for id_ in ids}
    assert set(found.values()) <= {400, 404}, found


WORKER = TaskManagerInfo(id=TM, slots=2)
PLAN = {"framework": 1, "task": 2, "managed": 8}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param(
            {"hardware": MachineResources(cpu_cores=2, memory_bytes=2**34), "memory": PLAN},
            {"cpuCores": 2, "physicalMemory": 2**34, "freeMemory": 3, "managedMemory": 8},
            id="as the worker says; what Flink calls its heap is framework and task memory",
        ),
        pytest.param(
            {"hardware": MachineResources(cpu_cores=2), "memory": PLAN},
            {"cpuCores": 2, "physicalMemory": -1, "freeMemory": 3, "managedMemory": 8},
            id="a system that does not say how much memory it has",
        ),
        pytest.param(
            {},
            {"cpuCores": None, "physicalMemory": None, "freeMemory": None, "managedMemory": None},
            id="it has not registered",
        ),
    ],
)
def test_hardware_in_the_shape_of_flink(changes: dict[str, Any], wanted: dict[str, int | None]) -> None:
    assert task_manager(replace(WORKER, **changes))["hardware"] == wanted


JOB = JobId("a" * 32)
ATTEMPT = AttemptId(JOB, VertexId("v" * 32), 3, 1)


def view(*attempts: AttemptView) -> JobView:
    graph = JobGraph(name="n", vertices=(), edges=())
    return JobView(graph=graph, state="RUNNING", restarts=0, attempts=attempts)


def in_slot(allocation: str | None) -> AttemptView:
    of = None if allocation is None else AllocationId(allocation)
    return AttemptView(attempt=ATTEMPT, state="DEPLOYING", task_manager=TM, allocation=of)


TASK = TaskInSlot(vertex=ATTEMPT.vertex, vertex_name=ATTEMPT.vertex, index=3, attempt=1, state="DEPLOYING")


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        pytest.param({JOB: JobInSlots("n", view(in_slot("s")))}, ("n", (TASK,)), id="a task"),
        pytest.param({JOB: JobInSlots("n", view(in_slot("of before")))}, ("n", ()), id="of an earlier slot"),
        pytest.param({JOB: JobInSlots("n", view(in_slot(None)))}, ("n", ()), id="not in a slot"),
        pytest.param({}, ("", ()), id="its job has just ended"),
    ],
)
def test_what_is_in_a_slot(jobs: dict[JobId, JobInSlots], wanted: tuple[str, tuple[TaskInSlot, ...]]) -> None:
    leased = {TM: (SlotView(AllocationId("s"), JOB),)}
    shown = workers_info([WORKER], leased=leased, jobs=jobs, blocked=(), logs="", now_ms=1)
    ((slot,),) = [worker.slots for worker in shown.workers]
    assert (slot.job_name, slot.tasks) == wanted


def test_a_blocked_host_is_shown_without_a_worker() -> None:
    host = BlockedHost(host="h", left_ms=5, shut=True, losses=("killed", "no heartbeat"))
    shown = workers_info([], leased={}, jobs={}, blocked=[host], logs="/none", now_ms=10)
    assert shown.blocked == (BlockedHostInfo(host="h", until_ms=15, shut=True, losses=host.losses),)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        pytest.param(b"", "", id="empty"),
        pytest.param(b"\xff\n", "\ufffd\n", id="no UTF-8"),
        pytest.param(b"a" * LOG_BYTES_MAX + b"\nb\n", "b\n", id="the line that is cut is left out"),
        pytest.param(b"a" * (LOG_BYTES_MAX + 5), "a" * LOG_BYTES_MAX, id="one line that is too long"),
    ],
)
def test_the_end_of_a_log(logs: Path, content: bytes, wanted: str) -> None:
    (logs / f"taskmanager-{TM}.log").write_bytes(content)
    shown = worker_log(str(logs), TM)
    assert (shown.text, shown.size_bytes) == (wanted, len(content))
