"""What a master shows of its workers: which job and tasks are in each slot, and which hosts are avoided."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from unistream.base.errors import NotFound
from unistream.base.ids import AllocationId, JobId, TaskManagerId, VertexId
from unistream.base.limits import KIB
from unistream.core.contract import JobView
from unistream.core.resource import BlockedHost, SlotView
from unistream.model.job_info import TaskManagerInfo, TaskStateName
from unistream.port.host import worker_log_name

LOG_BYTES_MAX: Final = 256 * KIB  # of the tail of a worker's log


class TaskInSlot(msgspec.Struct, frozen=True, kw_only=True):
    """The current attempt of a subtask."""

    vertex: VertexId
    vertex_name: str
    index: int
    attempt: int
    state: TaskStateName


class SlotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that a job has. Its tasks share the slot, one of each vertex at most."""

    allocation: AllocationId
    job: JobId
    job_name: str
    tasks: tuple[TaskInSlot, ...]


class WorkerShown(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, and its slots that are taken. `has_log`: the end of its log can be read here."""

    worker: TaskManagerInfo
    slots: tuple[SlotInfo, ...]
    has_log: bool


class BlockedHostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is avoided since it has lost workers.

    Attributes:
        until_ms: Until then.
        shut: Its slots are not given out; false: they are, since no other host has workers.
        losses: Why its workers were lost, oldest first.
    """

    host: str
    until_ms: int
    shut: bool
    losses: tuple[str, ...]


class WorkersInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All workers at `now_ms`, in the order of their start, and hosts that are avoided."""

    now_ms: int
    workers: tuple[WorkerShown, ...]
    blocked: tuple[BlockedHostInfo, ...]


class WorkerLog(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a worker's log.

    Attributes:
        text: Whole lines, unless one alone is longer.
        size_bytes: Of the whole file.
    """

    text: str
    size_bytes: int


class JobInSlots(NamedTuple):
    """A job of this cluster that is in memory."""

    name: str
    view: JobView


def workers_info(
    workers: Iterable[TaskManagerInfo],
    *,
    leased: Mapping[TaskManagerId, tuple[SlotView, ...]],
    jobs: Mapping[JobId, JobInSlots],
    blocked: Iterable[BlockedHost],
    logs: str,
    now_ms: int,
) -> WorkersInfo:
    """`logs`: the folder of their logs; "": they are elsewhere."""
    tasks = _tasks_by_slot(jobs)
    names = _names(logs)
    return WorkersInfo(
        now_ms=now_ms,
        workers=tuple(
            WorkerShown(
                worker=worker,
                slots=tuple(_slot(one, jobs, tasks) for one in leased.get(worker.id, ())),
                has_log=worker_log_name(worker.id) in names,
            )
            for worker in workers
        ),
        blocked=tuple(
            BlockedHostInfo(
                host=host.host, until_ms=now_ms + host.left_ms, shut=host.shut, losses=host.losses
            )
            for host in blocked
        ),
    )


def _slot(
    slot: SlotView, jobs: Mapping[JobId, JobInSlots], tasks: Mapping[AllocationId, list[TaskInSlot]]
) -> SlotInfo:
    job = jobs.get(slot.job)
    return SlotInfo(
        allocation=slot.allocation,
        job=slot.job,
        job_name="" if job is None else job.name,
        tasks=tuple(tasks.get(slot.allocation, ())),
    )


def _tasks_by_slot(jobs: Mapping[JobId, JobInSlots]) -> dict[AllocationId, list[TaskInSlot]]:
    found: dict[AllocationId, list[TaskInSlot]] = {}
    for job in jobs.values():
        names = {vertex.id: vertex.name for vertex in job.view.graph.vertices}
        for one in job.view.attempts:
            if one.allocation is not None:
                task = TaskInSlot(
                    vertex=one.attempt.vertex,
                    vertex_name=names.get(one.attempt.vertex, one.attempt.vertex),
                    index=one.attempt.index,
                    attempt=one.attempt.attempt,
                    state=one.state,
                )
                found.setdefault(one.allocation, []).append(task)
    return found


def _names(logs: str) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in os.scandir(logs)) if logs else frozenset()
    except OSError:
        return frozenset()  # no worker has started yet, or the folder was removed


def worker_log(logs: str, task_manager: TaskManagerId) -> WorkerLog:
    """The end of a worker's log, also of one that was lost. Raises NotFound: it is not on this machine."""
    nowhere = NotFound(
        f"the log of {task_manager} is not on this master's machine: look at the one where it runs"
    )
    if not logs:
        raise nowhere
    path = Path(logs) / worker_log_name(task_manager)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(opened, "rb") as file:
            size = os.fstat(opened).st_size
            file.seek(max(0, size - LOG_BYTES_MAX))
            content = file.read(LOG_BYTES_MAX)
    except OSError:
        raise nowhere from None
    if size > LOG_BYTES_MAX:
        _, newline, rest = content.partition(b"\n")
        content = rest if newline and rest else content
    return WorkerLog(text=content.decode("utf-8", "replace"), size_bytes=size)
