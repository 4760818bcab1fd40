"""Jobs and workers in the shapes of Flink's REST API (key spelling is Flink's, mixed on purpose).

Times are epoch milliseconds, -1 or 0 where Flink says "not yet".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

from unistream.core.graph import job_plan
from unistream.master.job import scheduler_of
from unistream.model.graph import JobGraph, JobVertex
from unistream.model.job_info import ExceptionInfo, JobInfo, JobSummary, SubtaskInfo, TaskManagerInfo
from unistream.rest.shapes import ExecutionState, JobState

Json = dict[str, object]

JOB_STATES: Final[tuple[str, ...]] = get_args(JobState)
EXECUTION_STATES: Final[tuple[str, ...]] = get_args(ExecutionState)
_TASKS: Final = tuple((state, state.lower()) for state in EXECUTION_STATES)
_NO_TASKS: Final[Mapping[str, int]] = {name: 0 for _, name in _TASKS}
"""The task counts of a job that has ended, as most of a list have."""
VERTEX_STATE_ORDER: Final = (
    "FAILED",
    "CANCELING",
    "CANCELED",
    "INITIALIZING",
    "DEPLOYING",
    "SCHEDULED",
    "CREATED",
    "RUNNING",
    "FINISHED",
)
"""A vertex is in the first of these that one of its subtasks is in."""


def overview_item(job: JobSummary, now_ms: int) -> Json:
    """One element of /jobs/overview."""
    known = job.tasks
    tasks = {name: known.get(state, 0) for state, name in _TASKS} if known else _NO_TASKS
    end_ms = job.ended_ms if job.ended_ms is not None else -1
    return {
        "jid": job.job,
        "name": job.name,
        "jobType": job.job_type,
        "schedulerType": job.scheduler,
        "start-time": job.submitted_ms,
        "end-time": end_ms,
        "duration": (job.ended_ms or now_ms) - job.submitted_ms,
        "state": job.state,
        "last-modification": job.ended_ms or now_ms,
        "tasks": {"total": sum(known.values()), **tasks},
        "pending-operators": 0,
    }


def job_details(info: JobInfo, graph: JobGraph, now_ms: int) -> Json:
    """The answer to GET /jobs/{id}."""
    counts = _state_counts(info.subtasks)
    return {
        "jid": info.job,
        "name": info.name,
        "isStoppable": False,
        "state": info.state,
        "job-type": graph.job_type.value,
        "schedulerType": scheduler_of(graph),
        "start-time": info.submitted_ms,
        "end-time": info.ended_ms if info.ended_ms is not None else -1,
        "duration": (info.ended_ms or now_ms) - info.submitted_ms,
        "maxParallelism": -1,
        "now": now_ms,
        "timestamps": {state: info.state_times.get(state, 0) for state in JOB_STATES},
        "vertices": [_vertex(vertex, info, now_ms) for vertex in graph.vertices],
        "status-counts": counts,
        "plan": plan(info, graph),
        "pending-operators": 0,
        **({"incomplete": info.incomplete} if info.incomplete else {}),
    }


def _vertex(vertex: JobVertex, info: JobInfo, now_ms: int) -> Json:
    subtasks = [s for s in info.subtasks if s.vertex == vertex.id]
    counts = _state_counts(subtasks)
    status = next((state for state in VERTEX_STATE_ORDER if counts[state]), "CREATED")
    start_ms = info.state_times.get("RUNNING", info.submitted_ms)
    end_ms = info.ended_ms if info.ended_ms is not None else -1
    return {
        "id": vertex.id,
        "slotSharingGroupId": vertex.slot_sharing_group,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": status,
        "start-time": start_ms,
        "end-time": end_ms,
        "duration": max(0, (info.ended_ms or now_ms) - start_ms),
        "tasks": counts,
        "metrics": _metrics(subtasks),
    }


def _metrics(subtasks: Sequence[SubtaskInfo]) -> Json:
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": sum(s.metrics.records_in for s in subtasks),
        "read-records-complete": True,
        "write-records": sum(s.metrics.records_out for s in subtasks),
        "write-records-complete": True,
        "accumulated-backpressured-time": sum(s.metrics.backpressured_ms for s in subtasks),
        "accumulated-idle-time": sum(s.metrics.idle_ms for s in subtasks),
        "accumulated-busy-time": sum(s.metrics.busy_ms for s in subtasks),
    }


def _state_counts(subtasks: Iterable[SubtaskInfo]) -> dict[str, int]:
    counts = dict.fromkeys(EXECUTION_STATES, 0)
    for subtask in subtasks:
        counts[subtask.state] = counts.get(subtask.state, 0) + 1
    return counts


def plan(info: JobInfo, graph: JobGraph) -> Json:
    """/jobs/{id}/plan, without its outer key."""
    return job_plan(graph, jid=info.job, name=info.name)


def exceptions(info: JobInfo, limit: int) -> Json:
    """/jobs/{id}/exceptions, newest first."""
    entries = [_exception(entry) for entry in info.exceptions]
    return {"exceptionHistory": {"entries": entries[:limit], "truncated": len(entries) > limit}}


def _exception(root: ExceptionInfo) -> Json:
    return {**_failure(root), "concurrentExceptions": [_failure(entry) for entry in root.concurrent]}


def _failure(entry: ExceptionInfo) -> Json:
    """One failure, without a place if the job as a whole failed."""
    place = {
        "taskName": entry.task_name or entry.attempt,
        "endpoint": entry.endpoint or entry.task_manager,
        "taskManagerId": entry.task_manager,
    }
    return {
        "exceptionName": entry.kind,
        "stacktrace": f"{entry.kind}: {entry.message}\n{entry.traceback}",
        "timestamp": entry.at_ms,
        "failureLabels": {},  # there are no failure enrichers
        **{key: value for key, value in place.items() if value is not None},
    }


def task_manager(worker: TaskManagerInfo) -> Json:
    """One element of /taskmanagers."""
    slot = {"cpuCores": worker.profile.cpu_cores, "taskHeapMemory": worker.profile.memory_mb}
    return {
        "id": worker.id,
        "path": worker.address or "",
        "dataPort": _port(worker.address),
        "jmxPort": -1,
        "timeSinceLastHeartbeat": worker.heartbeat_ms or 0,
        "slotsNumber": worker.slots,
        "freeSlots": worker.free_slots,
        "blocked": worker.blocked_ms > 0,
        "blockedFor": worker.blocked_ms,
        "slotResource": slot,
        "totalResource": {name: value * worker.slots for name, value in slot.items()},
        "freeResource": {name: value * worker.free_slots for name, value in slot.items()},
        "jobs": list(worker.jobs),
        "pid": worker.pid,
        "host": worker.host,
        "hardware": _hardware(worker),
        "memoryConfiguration": _memory_configuration(worker.memory),
    }


def _hardware(worker: TaskManagerInfo) -> Json:
    """Flink's HardwareDescription. `freeMemory` is its largest heap there, whose parts are framework and task
    memory; -1 is its physical memory where the system does not say it."""
    known, memory = worker.hardware, worker.memory
    cores = None if known is None else known.cpu_cores
    physical = None if known is None else known.memory_bytes
    return {
        "cpuCores": cores,
        "physicalMemory": -1 if known is not None and physical is None else physical,
        "freeMemory": memory["framework"] + memory["task"]
        if memory.keys() >= {"framework", "task"}
        else None,
        "managedMemory": memory.get("managed"),
    }


def _memory_configuration(memory: Mapping[str, int]) -> Json:
    """A worker's memory by Flink's names; parts that are one here (docs/decision/memory-model.md) count as
    heap."""
    return {
        "frameworkHeap": memory.get("framework"),
        "taskHeap": memory.get("task"),
        "frameworkOffHeap": 0,
        "taskOffHeap": 0,
        "networkMemory": memory.get("network"),
        "managedMemory": memory.get("managed"),
        "jvmMetaspace": 0,
        "jvmOverhead": memory.get("overhead"),
        "totalFlinkMemory": memory.get("flink"),
        "totalProcessMemory": memory.get("process"),
    }


def _port(address: str | None) -> int:
    port = (address or "").rpartition(":")[2]
    return int(port) if port.isdigit() else -1
