"""Checks a submitted job and prepares all that its JobMaster needs."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

from msgspec import structs

from unistream.base import config as options
from unistream.base.config import ConfigOption, Configuration
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId, VertexId
from unistream.base.limits import ARTIFACT_BYTES_MAX, PIPELINE_BYTES_MAX
from unistream.core import contract
from unistream.core import graph as graphs
from unistream.core.contract import FIRST_CHECKPOINT, JobSettings, RestorePoint
from unistream.core.job import BoundedJobMachine, job_settings, why_not_adaptive, with_parallelism
from unistream.core.memory import memory_plan, slot_profile
from unistream.master.service import JobDecisions
from unistream.model.graph import JobGraph, JobType
from unistream.model.snapshot import Manifest, resumable_directory
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import NOTHING_USED, ArtifactName, AttemptCounter, Sealed, StoredOperation
from unistream.model.submission import SubmitRequest, digest_of, of_job
from unistream.port.storage import CheckpointStorage

if TYPE_CHECKING:
    from unistream.master.service import ClusterServices

logger = logging.getLogger(__name__)

REGION_STRATEGY: Final = options.SCHEDULING_STRATEGY.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a job begins.

    Attributes:
        artifact: The user's code in the artifact store, by this leader or an earlier one.
        restore: What it starts from, also of its own.
        submitted_ms: When its user has submitted it.
        lineage: None: that of `restore`, or a new one.
        first_checkpoint_id: No lower id is free.
        parallelism: Of vertices whose parallelism a user has changed.
        stop: A stop that an earlier leader has accepted, to be requested once the job runs.
        operations: What clients have started under earlier leaders, by trigger id.
        used: Attempts and restarts under earlier leaders.
        sealed: What an earlier leader has begun to commit.
    """

    artifact: str
    restore: RestorePoint | None
    submitted_ms: int
    lineage: LineageId | None = None
    first_checkpoint_id: CheckpointId = FIRST_CHECKPOINT
    parallelism: Mapping[VertexId, int] = field(default_factory=dict)
    stop: contract.SnapshotRequest | None = None
    operations: tuple[StoredOperation, ...] = ()
    used: AttemptCounter = NOTHING_USED
    sealed: Sealed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """A checked job.

    Attributes:
        graph: Carries its whole configuration.
        engine: What runs it: "spark", or "native" for workers of the built-in runtime.
        memory_bytes: Managed memory of each subtask that an engine runs.
        offloads: The engine for bounded jobs runs the bounded part of this stream.
        checkpoint_root: Of `storage`.
        artifact: SHA-256 of the user's code, which has `artifact_bytes`.
        digest: Of what was submitted (`digest_of`).
        given: As submitted.
    """

    job: JobId
    lineage: LineageId
    start: Origin
    graph: JobGraph
    machine: JobDecisions
    storage: CheckpointStorage
    savepoint_dir: str
    artifact: str
    artifact_bytes: int = 0
    digest: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    engine: str = graphs.NATIVE_ENGINE
    memory_bytes: int = 0
    offloads: bool = False
    checkpoint_root: str = ""

    @property
    def restored(self) -> CheckpointId | None:
        """The snapshot of a user, or of another job, that it starts from."""
        restore = self.start.restore
        return None if restore is None or restore.manifest.job == self.job else restore.manifest.restores_as

    @property
    def own_restore(self) -> RestorePoint | None:
        """The snapshot of this job that an earlier leader has taken, from which it goes on."""
        restore = self.start.restore
        return None if restore is None or restore.manifest.job != self.job else restore

    @property
    def has_engine(self) -> bool:
        """Something of it is run by the engine for bounded jobs."""
        return self.offloads or self.engine != graphs.NATIVE_ENGINE


def prepare(
    request: SubmitRequest,
    *,
    job: JobId,
    cluster: Configuration,
    services: ClusterServices,
    epoch: LeaderEpoch,
    origin: Callable[[CheckpointStorage, Configuration], Origin] | None = None,
) -> JobSetup:
    """Checks graph, configuration and savepoint. `origin` says where the job begins; None: with the savepoint
    of the request, or without one.

    Raises:
        ConfigError: one of them cannot work; says which and why.
        CorruptSnapshot: the savepoint is damaged.
        Unreachable: the checkpoint storage does not answer.
    """
    config, engine, offloads = check_alone(request, cluster, services, is_new=origin is None)
    native = engine == graphs.NATIVE_ENGINE or offloads
    checkpoint_root = config.find(options.CHECKPOINT_DIR) or services.checkpoint_root
    storage = services.create_storage(checkpoint_root)
    start = (origin or _submitted(request, epoch, services.clock.wall_ms()))(storage, config)
    graph = _started(_with_savepoint(request.graph, storage, start.submitted_ms), config, start)
    settings = job_settings(
        config,
        job=job,
        lineage=_lineage(start, services),
        epoch=epoch,
        artifact=_sha256(request),
        checkpoint_root=checkpoint_root,
        draw=services.draw,
        first_checkpoint_id=start.first_checkpoint_id,
        used=start.used,
        sealed=start.sealed,
        offloads=offloads,
        **_asked(request),
    )
    machine = (services.create_machine if native else _bounded_machine)(graph, settings, start.restore)
    _check_writable(storage, settings)  # last: it creates a folder, which only a job that starts needs
    return JobSetup(
        job=job,
        lineage=settings.lineage,
        start=start,
        graph=graph,
        machine=machine,
        storage=storage,
        savepoint_dir=config.find(options.SAVEPOINT_DIR) or services.savepoint_root,
        artifact=settings.artifact,
        **_as_submitted(request),
        engine=graphs.NATIVE_ENGINE if native else engine,
        memory_bytes=_memory_bytes(config, cluster) if engine != graphs.NATIVE_ENGINE else 0,
        offloads=offloads,
        checkpoint_root=checkpoint_root,
    )


def check_alone(
    request: SubmitRequest, cluster: Configuration, services: ClusterServices, *, is_new: bool = True
) -> tuple[Configuration, str, bool]:
    """What can be said of a job without its savepoint and its storage: its configuration, its engine, and
    whether that runs the bounded part of a stream. Raises ConfigError: it cannot work."""
    config = _checked_config(request, cluster)
    _check_store(config, cluster, is_new=is_new)
    engine, offloads = _engine(request.graph, config, services)
    if engine == graphs.NATIVE_ENGINE or offloads:
        _check_workers(request.graph, config, cluster, services)
    return config, engine, offloads


def _as_submitted(request: SubmitRequest) -> dict[str, Any]:
    """Fields of a `JobSetup`."""
    size, given = len(request.artifact), of_job(request.given)
    return {"artifact_bytes": size, "digest": digest_of(request), "given": given}


def _checked_config(request: SubmitRequest, cluster: Configuration) -> Configuration:
    """That of a job: the options of the cluster, of its graph, and of the request; the last ones count."""
    _check_request(request)
    config = cluster.merged(request.graph.config).merged(request.config)
    return _without_idle_options(request.graph, config, cluster)


def _check_store(config: Configuration, cluster: Configuration, *, is_new: bool) -> None:
    """A job that is recovered goes on with the store of the cluster, whatever that is by now.

    Raises:
        ConfigError: a new one names another object store than the cluster, whose processes have one.
    """
    of_stores: tuple[ConfigOption[Any], ...] = (options.S3_ENDPOINT, options.S3_REGION, options.S3_PATH_STYLE)
    for option in of_stores:
        of_job, of_cluster = str(config.find(option)), str(cluster.find(option))
        if is_new and of_job != of_cluster:
            raise ConfigError(
                f"{option.key} is {of_job} for the job and {of_cluster} for the cluster, whose masters and "
                f"workers have one store: start the cluster with -D {option.key}=…, or give the sources and "
                "sinks options of their own (filesystem_options, storage_options)"
            )


class _RequestSettings(TypedDict):
    batch: bool
    allow_non_restored: bool
    first_checkpoint_pause_ms: int


def _asked(request: SubmitRequest) -> _RequestSettings:
    """What the request itself says of the settings."""
    return {
        "batch": request.graph.job_type is JobType.BATCH,
        "allow_non_restored": request.allow_non_restored,
        "first_checkpoint_pause_ms": request.first_checkpoint_pause_ms,
    }


def _lineage(start: Origin, services: ClusterServices) -> LineageId:
    former = None if start.restore is None else start.restore.manifest.lineage
    return start.lineage or former or LineageId(services.new_id())


def _started(graph: JobGraph, config: Configuration, start: Origin) -> JobGraph:
    """The graph with its whole configuration, as wide as what it starts from allows and its users want."""
    graph = structs.replace(graph, config=config.to_dict())
    if start.restore is not None:
        graph = graphs.adapt_max_parallelism(graph, start.restore.manifest)
    return with_parallelism(graph, start.parallelism) if start.parallelism else graph


def _sha256(request: SubmitRequest) -> str:
    return hashlib.sha256(request.artifact).hexdigest()


def _submitted(
    request: SubmitRequest, epoch: LeaderEpoch, now_ms: int
) -> Callable[[CheckpointStorage, Configuration], Origin]:
    def origin(storage: CheckpointStorage, config: Configuration) -> Origin:
        claimed = config.get(options.CLAIM_MODE) == "CLAIM"
        restore = restore_point(storage, request.savepoint, claimed=claimed)
        artifact = str(ArtifactName(_sha256(request), epoch))
        return Origin(artifact=artifact, restore=restore, submitted_ms=now_ms)

    return origin


def _with_savepoint(graph: JobGraph, storage: CheckpointStorage, now_ms: int) -> JobGraph:
    """The directory of a bootstrap's savepoint is there. Raises ConfigError if one is in it already."""
    if graph.bootstrap is None:
        return graph
    directory = storage.begin_savepoint(graph.bootstrap.directory)
    bootstrap = structs.replace(graph.bootstrap, directory=directory, timestamp_ms=now_ms)
    return structs.replace(graph, bootstrap=bootstrap)


def _memory_bytes(config: Configuration, cluster: Configuration) -> int:
    return memory_plan(config, cluster.get(options.TASK_SLOTS)).slot.managed


def _engine(graph: JobGraph, config: Configuration, services: ClusterServices) -> tuple[str, bool]:
    """What runs the job, or its bounded part; True: the part alone. That is scheduled as one region, as one
    strategy alone does."""
    on_spark = services.create_engine is not None
    engine = graphs.choose_engine(graph, config, target=services.target, on_spark=on_spark)
    offloads = engine != graphs.NATIVE_ENGINE and graph.job_type is not JobType.BATCH
    strategy = config.get(options.SCHEDULING_STRATEGY)
    if offloads and strategy != REGION_STRATEGY:
        logger.info(
            "event=part_not_offloaded job=%r: %s=%s", graph.name, options.SCHEDULING_STRATEGY.key, strategy
        )
        return graphs.NATIVE_ENGINE, False
    return engine, offloads


def _check_workers(
    graph: JobGraph, config: Configuration, cluster: Configuration, services: ClusterServices
) -> None:
    """The workers that the host starts can run the job. Others, of any size and libraries, may register."""
    if not services.traits.active:
        return
    if config.get(options.STATE_BACKEND) == "rocksdb":
        require("rocksdb", "state.backend.type: rocksdb")
    slots = cluster.get(options.TASK_SLOTS)
    share = slot_profile(cluster, slots)
    graphs.check_profiles(graph, share, services.traits.largest, slots)
    graphs.check_measures(graph, cluster, share)


def _bounded_machine(graph: JobGraph, settings: JobSettings, restore: RestorePoint | None) -> JobDecisions:
    assert restore is None, "a BATCH job restores nothing"
    return BoundedJobMachine(graph, settings)


def _without_idle_options(graph: JobGraph, config: Configuration, cluster: Configuration) -> Configuration:
    """The configuration without what has no effect for this graph: checkpoints where they could never
    complete (a task would wait for its last one for ever), the adaptive scheduler where it cannot run the
    job, and a state backend on disk for a BATCH job, which has state of few keys at a time and takes no
    snapshots."""
    forgets = graph.job_type is JobType.BATCH and graph.bootstrap is None
    idle: set[str] = {options.STATE_BACKEND.key} if forgets else set()
    reason = graphs.why_interval_is_idle(graph, config)
    if reason is not None:
        idle.add(options.CHECKPOINT_INTERVAL.key)
        is_usual = config.find(options.CHECKPOINT_INTERVAL) == cluster.find(options.CHECKPOINT_INTERVAL)
        logger.log(
            logging.INFO if is_usual else logging.WARNING,  # the cluster has it for all of its jobs
            "event=checkpoints_disabled job=%r reason=%r: %s has no effect",
            graph.name,
            reason,
            options.CHECKPOINT_INTERVAL.key,
        )
    reason = why_not_adaptive(graph)
    if reason is not None and config.get(options.SCHEDULER) == "adaptive":
        idle.add(options.SCHEDULER.key)
        logger.info(
            "event=default_scheduler job=%r reason=%r: %s: adaptive has no effect",
            graph.name,
            reason,
            options.SCHEDULER.key,
        )
    return Configuration({key: value for key, value in config.to_dict().items() if key not in idle})


def _check_request(request: SubmitRequest) -> None:
    if not request.artifact:
        raise ConfigError("the job has no code: its artifact is empty")
    if len(request.artifact) > ARTIFACT_BYTES_MAX:
        raise ConfigError(
            f"the job's code has {len(request.artifact)} B, limit {ARTIFACT_BYTES_MAX} B: "
            "do not capture data in functions, read it from a source"
        )
    if len(request.pipeline) > PIPELINE_BYTES_MAX:
        raise ConfigError(f"the job's pipeline has {len(request.pipeline)} B, limit {PIPELINE_BYTES_MAX} B")
    graphs.check(request.graph)
    if request.graph.bootstrap is not None:
        graphs.check_bootstrap(request.graph)
    if request.savepoint is not None:
        graphs.check_restores(request.graph, request.savepoint)


def _check_writable(storage: CheckpointStorage, settings: JobSettings) -> None:
    """A job whose checkpoints can never be stored would restart for ever."""
    if settings.checkpoint_interval_ms is None:
        return
    try:
        storage.check_writable()
    except ConfigError as error:
        raise ConfigError(f"{error}; change {options.CHECKPOINT_DIR.key}") from error


def restore_point(storage: CheckpointStorage, directory: str | None, *, claimed: bool) -> RestorePoint | None:
    """The snapshot that a user starts from. Raises ConfigError, CorruptSnapshot, Unreachable."""
    if directory is None:
        return None
    if "://" not in directory and not directory.startswith("file:"):
        directory = os.path.abspath(directory)  # workers have other working directories
    manifest = storage.read_manifest(directory)
    if manifest.kind is SnapshotKind.TERMINATE:
        raise ConfigError(_why_terminal(directory, manifest))
    if claimed:
        storage.claim(directory)
    return RestorePoint(directory=directory, manifest=manifest, owned=claimed)


def _why_terminal(directory: str, manifest: Manifest) -> str:
    text = f"{directory} is the terminal savepoint of a job that was drained: its windows have fired"
    resumable = resumable_directory(directory, manifest)
    if resumable is None:
        return f"{text}, and no job can be resumed from it"
    return f"{text}; resume from {resumable}, which was taken just before"
