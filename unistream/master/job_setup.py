"""Everything that is checked and decided before a job exists."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from msgspec import structs

from unistream.base.config import (
    CHECKPOINT_DIR,
    HEARTBEAT_TIMEOUT,
    SAVEPOINT_DIR,
    TASK_SLOTS,
    Configuration,
)
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, LeaderEpoch, LineageId
from unistream.base.limits import ARTIFACT_BYTES_MAX
from unistream.core.graph_check import check
from unistream.core.job_machine import JobMachine
from unistream.core.job_settings import JobSettings, RestorePoint
from unistream.core.resource_machine import ResourceMachine
from unistream.model.graph import JobGraph
from unistream.port.storage import CheckpointStorage

JOB_NAME_CHARS_MAX: Final = 200
WORKER_IDLE_TIMEOUT_MS: Final = 30_000  # resourcemanager.taskmanager-timeout
WORKER_START_TIMEOUT_MS: Final = 120_000  # a first Spark task on a busy machine takes half a minute


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run.

    Attributes:
        artifact: The user's code; opaque here, opened only by a worker of this job.
        config: On top of the graph's own configuration.
        savepoint: Directory of a checkpoint or savepoint to start from.
        request_id: Chosen by the client: sending the same again is one job.
        allow_non_restored: State whose operator is gone is dropped instead of refused.
    """

    graph: JobGraph
    artifact: bytes
    config: dict[str, str] = {}
    savepoint: str | None = None
    request_id: str | None = None
    allow_non_restored: bool = False


class Places(Protocol):
    """What `prepare` needs of `ClusterServices`."""

    @property
    def checkpoint_root(self) -> str: ...

    @property
    def savepoint_root(self) -> str: ...

    @property
    def create_storage(self) -> Callable[[str], CheckpointStorage]: ...

    @property
    def new_id(self) -> Callable[[], str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """A checked job. `graph` carries the whole configuration of the job."""

    job: JobId
    lineage: LineageId
    graph: JobGraph
    machine: JobMachine
    storage: CheckpointStorage
    savepoint_dir: str
    artifact: str


def prepare(
    request: SubmitRequest, *, job: JobId, cluster: Configuration, services: Places, epoch: LeaderEpoch
) -> JobSetup:
    """Checks graph, configuration and savepoint.

    Raises:
        ConfigError: one of them cannot work; says which and why.
        CorruptSnapshot: the savepoint is damaged.
    """
    _check_sizes(request)
    check(request.graph)
    config = cluster.merged(request.graph.config).merged(request.config)
    checkpoint_root = config.find(CHECKPOINT_DIR) or services.checkpoint_root
    storage = services.create_storage(checkpoint_root)
    restore = _restore_point(storage, request.savepoint)
    lineage = LineageId(services.new_id()) if restore is None else restore.manifest.lineage
    graph = structs.replace(request.graph, config=config.to_dict())
    artifact = hashlib.sha256(request.artifact).hexdigest()
    settings = JobSettings.from_config(
        config,
        job=job,
        lineage=lineage,
        epoch=epoch,
        artifact=artifact,
        checkpoint_root=checkpoint_root,
        allow_non_restored=request.allow_non_restored,
    )
    return JobSetup(
        job=job,
        lineage=lineage,
        graph=graph,
        machine=JobMachine(graph, settings, restore),
        storage=storage,
        savepoint_dir=config.find(SAVEPOINT_DIR) or services.savepoint_root,
        artifact=artifact,
    )


def _check_sizes(request: SubmitRequest) -> None:
    if not request.artifact:
        raise ConfigError("the job has no code: its artifact is empty")
    if len(request.artifact) > ARTIFACT_BYTES_MAX:
        raise ConfigError(
            f"the job's code has {len(request.artifact)} B, limit {ARTIFACT_BYTES_MAX} B: "
            "do not capture data in functions, read it from a source"
        )
    name = request.graph.name
    if not 0 < len(name) <= JOB_NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(
            f"a job's name has 1 to {JOB_NAME_CHARS_MAX} printable characters, not {name[:80]!r}"
        )


def _restore_point(storage: CheckpointStorage, directory: str | None) -> RestorePoint | None:
    if directory is None:
        return None
    if "://" not in directory and not directory.startswith("file:"):
        directory = os.path.abspath(directory)  # workers run in folders of their own
    manifest = storage.read_manifest(directory)
    return RestorePoint(directory=directory, manifest=manifest, owned=False)


def create_resource_machine(
    config: Configuration, new_id: Callable[[], str], max_workers: int | None
) -> ResourceMachine:
    """The cluster's slots, by its configuration."""
    return ResourceMachine(
        slots_per_worker=config.get(TASK_SLOTS),
        heartbeat_timeout_ms=config.get(HEARTBEAT_TIMEOUT),
        idle_timeout_ms=WORKER_IDLE_TIMEOUT_MS,
        start_timeout_ms=WORKER_START_TIMEOUT_MS,
        max_workers=max_workers,
        new_id=lambda prefix: f"{prefix}-{new_id()[:12]}",
    )
