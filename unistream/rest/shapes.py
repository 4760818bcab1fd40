"""What the answers of the REST API hold, as types: Flink's shapes with Flink's spelling, mixed on purpose.

The OpenAPI document is made of them (`unistream.rest.openapi`), and the tests compare each answer that they
see with its type. What is our own below /unistream is a plain struct of the master
(`unistream.model.job_info`).
Times are epoch milliseconds, -1 or 0 where Flink says "not yet".
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from unistream.model.job_info import JobSummary, MetadataHealth, TaskManagerInfo
from unistream.model.procedures import Procedure
from unistream.port.run_links import RunLink

JobState = Literal[
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
]
ExecutionState = Literal[
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
]
JobType = Literal["STREAMING", "BATCH"]
PressureLevel = Literal["ok", "low", "high"]


class Errors(TypedDict):
    """Every answer that is no success: one sentence for each thing that is wrong."""

    errors: list[str]


class Nothing(TypedDict):
    """An empty object: it was done, or will be."""


# --- the cluster ----------------------------------------------------------------------------------

ClusterOverview = TypedDict(
    "ClusterOverview",
    {
        "taskmanagers": int,
        "slots-total": int,
        "slots-available": int,
        "taskmanagers-blocked": int,
        "slots-free-and-blocked": int,
        "jobs-running": int,
        "jobs-finished": int,
        "jobs-cancelled": int,
        "jobs-failed": int,
        "flink-version": str,
        "flink-commit": str,
    },
)

Features = TypedDict(
    "Features", {"web-submit": bool, "web-cancel": bool, "web-rescale": bool, "web-history": bool}
)

DashboardConfig = TypedDict(
    "DashboardConfig",
    {
        "refresh-interval": int,
        "timezone-name": str,
        "timezone-offset": int,
        "flink-version": str,
        "flink-revision": str,
        "features": Features,
    },
)


class SlotResource(TypedDict):
    """Cores, and memory in MB."""

    cpuCores: float
    taskHeapMemory: int


class Hardware(TypedDict):
    """Bytes; null until the worker has registered. `physicalMemory`: -1: its system does not say it.
    `freeMemory`: in Flink the largest heap, here framework and task memory."""

    cpuCores: int | None
    physicalMemory: int | None
    freeMemory: int | None
    managedMemory: int | None


class MemoryConfiguration(TypedDict):
    """Bytes; null until the worker has registered."""

    frameworkHeap: int | None
    taskHeap: int | None
    frameworkOffHeap: int
    taskOffHeap: int
    networkMemory: int | None
    managedMemory: int | None
    jvmMetaspace: int
    jvmOverhead: int | None
    totalFlinkMemory: int | None
    totalProcessMemory: int | None


class TaskManagerShown(TypedDict):
    """One worker with its slots, memory and jobs, as Flink shows it."""

    id: str
    path: str
    dataPort: int
    jmxPort: int
    timeSinceLastHeartbeat: int
    slotsNumber: int
    freeSlots: int
    blocked: bool
    blockedFor: int
    slotResource: SlotResource
    totalResource: SlotResource
    freeResource: SlotResource
    jobs: list[str]
    pid: int | None
    host: str | None
    hardware: Hardware
    memoryConfiguration: MemoryConfiguration


class TaskManagersShown(TypedDict):
    """Every worker of the cluster."""

    taskmanagers: list[TaskManagerShown]


# --- jobs -----------------------------------------------------------------------------------------


class JobIdWithStatus(TypedDict):
    """A job and its state."""

    id: str
    status: JobState


class JobIds(TypedDict):
    """Every job, by its id."""

    jobs: list[JobIdWithStatus]


class JobStatusInfo(TypedDict):
    """The state of a job."""

    status: JobState


class TaskCounts(TypedDict):
    """Subtasks by state."""

    total: int
    created: int
    scheduled: int
    deploying: int
    initializing: int
    running: int
    finished: int
    canceling: int
    canceled: int
    failed: int
    reconciling: int


JobOverview = TypedDict(
    "JobOverview",
    {
        "jid": str,
        "name": str,
        "jobType": JobType,
        "schedulerType": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "state": JobState,
        "last-modification": int,
        "tasks": TaskCounts,
        "pending-operators": int,
    },
)


class JobsOverview(TypedDict):
    """Every job, in one line each."""

    jobs: list[JobOverview]


class PlanInput(TypedDict):
    """What a vertex reads."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNode(TypedDict):
    """One vertex of a job's plan."""

    id: str
    operator: str
    parallelism: int
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, str]
    inputs: NotRequired[list[PlanInput]]


class Plan(TypedDict):
    """The vertices of a job, and what each reads."""

    jid: NotRequired[str]
    name: str
    type: JobType
    nodes: list[PlanNode]


class JobPlan(TypedDict):
    """The plan of a job."""

    plan: Plan


VertexMetrics = TypedDict(
    "VertexMetrics",
    {
        "read-bytes": int,
        "read-bytes-complete": bool,
        "write-bytes": int,
        "write-bytes-complete": bool,
        "read-records": int,
        "read-records-complete": bool,
        "write-records": int,
        "write-records-complete": bool,
        "accumulated-backpressured-time": int,
        "accumulated-idle-time": int,
        "accumulated-busy-time": int,
    },
)

Vertex = TypedDict(
    "Vertex",
    {
        "id": str,
        "slotSharingGroupId": str,
        "name": str,
        "maxParallelism": int,
        "parallelism": int,
        "status": ExecutionState,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "tasks": dict[ExecutionState, int],
        "metrics": VertexMetrics,
    },
)

JobDetails = TypedDict(
    "JobDetails",
    {
        "jid": str,
        "name": str,
        "isStoppable": bool,
        "state": JobState,
        "job-type": JobType,
        "schedulerType": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "maxParallelism": int,
        "now": int,
        "timestamps": dict[JobState, int],
        "vertices": list[Vertex],
        "status-counts": dict[ExecutionState, int],
        "plan": Plan,
        "pending-operators": int,
        "incomplete": NotRequired[str],
    },
)


class Failure(TypedDict):
    """One failure, without a place if the job as a whole failed."""

    exceptionName: str
    stacktrace: str
    timestamp: int
    failureLabels: dict[str, str]
    taskName: NotRequired[str]
    endpoint: NotRequired[str]
    taskManagerId: NotRequired[str]


class RootFailure(Failure):
    """A failure that the job restarted for, with those that came while it did."""

    concurrentExceptions: list[Failure]


class JobExceptionHistory(TypedDict):
    """The newest first."""

    entries: list[RootFailure]
    truncated: bool


class JobExceptions(TypedDict):
    """The failures of a job."""

    exceptionHistory: JobExceptionHistory


PressureOfSubtask = TypedDict(
    "PressureOfSubtask",
    {
        "subtask": int,
        "attempt-number": int,
        "backpressureLevel": PressureLevel,
        "backpressure-level": PressureLevel,
        "ratio": float,
        "idleRatio": float,
        "busyRatio": float,
    },
)

BackPressure = TypedDict(
    "BackPressure",
    {
        "status": Literal["ok", "deprecated"],
        "backpressureLevel": NotRequired[PressureLevel],
        "backpressure-level": NotRequired[PressureLevel],
        "end-timestamp": NotRequired[int],
        "subtasks": NotRequired[list[PressureOfSubtask]],
    },
)


class Counter(TypedDict):
    """A counter of one subtask: its value as text, if it was asked for; or over all subtasks."""

    id: str
    value: NotRequired[str]
    min: NotRequired[int]
    max: NotRequired[int]
    avg: NotRequired[float]
    sum: NotRequired[int]


# --- changes --------------------------------------------------------------------------------------

Started = TypedDict("Started", {"request-id": str})


class OperationState(TypedDict):
    """Whether it is over."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


SavepointMade = TypedDict("SavepointMade", {"location": str, "resumable-location": NotRequired[str]})


class SavepointOperation(TypedDict):
    """A savepoint, or a stop with one: where it is, as soon as it is over."""

    status: OperationState
    operation: SavepointMade | None


class CheckpointTaken(TypedDict):
    """The id of the checkpoint that was taken."""

    checkpointId: int


class CheckpointOperation(TypedDict):
    """A checkpoint that was asked for."""

    status: OperationState
    operation: CheckpointTaken | None


class Place(TypedDict):
    """The directory of what was taken."""

    location: str


class PlaceOperation(TypedDict):
    """A checkpoint that was asked for, with its directory."""

    status: OperationState
    operation: Place | None


class Widths(TypedDict):
    """The parallelism by vertex id."""

    parallelism: dict[str, int]


class RescaleOperation(TypedDict):
    """A change of the parallelism."""

    status: OperationState
    operation: Widths | None


class Submitted(TypedDict):
    """The id of the new job."""

    jobid: str


# --- our own --------------------------------------------------------------------------------------


class OwnJobs(TypedDict):
    """Every job, the cluster that answers, and what a user should know of its metadata."""

    jobs: list[JobSummary]
    cluster: str
    notes: list[str]


class OwnTaskManagers(TypedDict):
    """Every worker, with all that is known of it."""

    taskmanagers: list[TaskManagerInfo]


class Health(TypedDict):
    """The metadata database, and what a user should know of it."""

    metadata: MetadataHealth
    notes: list[str]


class RefusalState(TypedDict):
    """Whether jobs were refused until now."""

    refused: bool


class KeptShown(TypedDict):
    """A job whose submission is kept beyond its end; `name`: its own. See `KeepBody`."""

    job: str
    name: str
    keptMs: int
    forRestart: bool


class AllKept(TypedDict):
    """All that is kept of a job, the oldest first."""

    kept: list[KeptShown]


class Own(TypedDict):
    """Whether the link is of this watcher."""

    own: bool


class LinkNow(TypedDict):
    """The link; null: there is none."""

    link: RunLink | None


class Found(TypedDict):
    """What the answer has by key: the link, and the time of the clock that stamps heartbeats. By job: all
    links, newest first, and the keys of the assets that the job represents."""

    link: NotRequired[RunLink | None]
    now_ms: NotRequired[int]
    links: NotRequired[list[RunLink]]
    assets: NotRequired[list[list[str]]]


class ProceduresNow(TypedDict):
    """Backfills and upgrades, and the time of the clock that stamps their reports. `notes`: which are not
    listed, since this version cannot read them."""

    now_ms: int
    procedures: list[Procedure]
    notes: list[str]
