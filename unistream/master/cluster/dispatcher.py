"""The master of one cluster: takes jobs, owns the control server, the workers and the JobMasters.

It never loads user code: a job is a graph (data) and an artifact (opaque bytes).
A request is checked completely before a job exists: graph, configuration, and the savepoint's manifest.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

import msgspec

from unistream.base.config import METADATA_URL, Configuration
from unistream.base.errors import AlreadyEnded, ConfigError, NotFound, Unreachable
from unistream.base.ids import (
    NO_CLUSTER,
    ClusterId,
    JobId,
    LeaderEpoch,
    LineageId,
    TaskManagerId,
    job_of_request,
)
from unistream.base.releases import own_release
from unistream.core import contract
from unistream.core.job import vertices_named, with_parallelism
from unistream.core.resource import heartbeat_terms
from unistream.master.cluster.cluster_view import cluster_info
from unistream.master.cluster.job_masters import JobAdmission, JobMasterRegistry, SharedEngine, not_alone
from unistream.master.cluster.job_views import JobViews
from unistream.master.cluster.kept_jobs import KeptJobs
from unistream.master.cluster.recovery import JobRecovery
from unistream.master.cluster.suspension import Suspension
from unistream.master.cluster.worker_gateway import WorkerGateway
from unistream.master.job import JobMaster, JobSetup, check_alone, prepare, scheduler_of
from unistream.master.service import ClusterServices, MasterPorts, ResourceManager, WorkerSettings
from unistream.master.shown import ClusterInfo, EndedJobs, RecentPages, writer_elsewhere
from unistream.master.store import RescaleAsked, UntilWritten, digest_of_widths
from unistream.model.graph import JobGraph, shown
from unistream.model.job_info import DrainStatus, TaskManagerInfo
from unistream.model.stored_job import ArtifactName, StoredJob
from unistream.model.submission import SubmitRequest
from unistream.port.engine import BatchEngine
from unistream.port.metadata import ArtifactRecord, JobRecord
from unistream.port.transport import Server

IO_TIMEOUT_S: Final = 30.0
CATALOGUE_TIMEOUT_S: Final = 10.0

logger = logging.getLogger(__name__)


class Dispatcher(JobViews):
    """See the module. All public methods may be called from any thread.

    Raises:
        UnistreamError: the metadata store or the control server cannot be used.
    """

    def __init__(self, config: Configuration, services: ClusterServices, ports: MasterPorts) -> None:
        self._config = config
        self._services = services
        self._ports = ports
        self._catalogue = ports.catalogue
        self._jobs = JobMasterRegistry()
        self._admission = JobAdmission(services.clock, self._jobs)
        self._engine = SharedEngine(self._create_engine)
        self._suspension = Suspension(services.goes_on, services.clock)
        self._pages = RecentPages()
        self._ended = EndedJobs(
            services.metadata, services.clock, ports.catalogue.cluster, ports.jobs.results
        )
        self.started_ms = services.clock.wall_ms()
        try:
            self._server = services.create_server(self.handle)
            self._resources = self._create_resource_manager()
        except BaseException:
            self._close_half_made()
            raise
        self._gateway = WorkerGateway(self._resources, self._jobs.get, services.artifacts.get)
        self._until_written = UntilWritten(ports.create_loop, ports.leadership)
        self._recovery = JobRecovery(ports, services, config, self._recovered)
        self.kept_jobs = KeptJobs(ports.jobs, ports.leadership, services.clock, self.submit)
        self._resources.start()

    def handle(self, request: bytes, caller: str = "", /) -> bytes:
        """A control message of a worker -> its answer (see `ControlHandler`). Workers exist only after the
        constructor."""
        return self._gateway.handle(request, caller)

    def _close_half_made(self) -> None:
        server: Server | None = getattr(self, "_server", None)
        if server is not None:
            server.close()
        self._ports.senders.close()
        self._ports.stopping.close(IO_TIMEOUT_S)
        self._ports.io.close(IO_TIMEOUT_S)
        self._catalogue.close(CATALOGUE_TIMEOUT_S)

    def _create_resource_manager(self) -> ResourceManager:
        return ResourceManager(
            machine=self._services.create_resource_machine(
                self._config,
                self._services.new_id,
                self._services.max_workers,
                self._services.traits,
            ),
            create_host=self._services.create_host,
            ports=self._ports,
            post=self._jobs.post,
            describe=self._jobs.describe,
            settings=WorkerSettings(
                master=self._server.address,
                heartbeat=heartbeat_terms(self._config),
                config=self._config.to_dict(),
                log_dir=self._services.log_dir,
                active=self._services.traits.active,
                credentials=self._services.credentials,
            ),
            clock=self._services.clock,
        )

    # --- users ------------------------------------------------------------------------------------

    def submit(self, request: SubmitRequest) -> JobId:
        """Checks a job completely, then starts it. A `request_id` that is sent again names the same job.

        Raises:
            ConfigError: graph, configuration or savepoint cannot work; nothing was started.
            CorruptSnapshot: the savepoint is damaged.
            Fenced, Unreachable, OutcomeUnknown: it could not be made durable, or this master does not lead
                now; send it again with the same id.
        """
        job = self.job_id(request.request_id)
        self._ports.leadership.demand()
        with self._admission.lock:
            if request.request_id is not None and self._exists(job):
                return job
            if request.request_id is not None and self._ports.jobs.pointer(job) is not None:
                self._recovery.resume(job)  # it was stored, and its user did not get to know
                return job
            self._admission.check()
            if request.alone:
                self._check_alone(request.graph)
            setup = prepare(
                request,
                job=job,
                cluster=self._config,
                services=self._services,
                epoch=self._ports.jobs.epoch,
            )
            if request.alone_in_line:
                self._check_alone(request.graph, setup.lineage)
            stored = _stored(request, setup, self._ports.jobs.epoch)
            self._ports.jobs.add(stored, request.artifact, setup.start.restore, request.pipeline)
            self._start(setup)
        logger.info("event=job_accepted job=%s name=%r lineage=%s", job, request.graph.name, setup.lineage)
        return job

    def check(self, request: SubmitRequest) -> None:
        """Refuses what `submit` would, as far as that is known without a savepoint; nothing is started.

        Raises:
            ConfigError: graph or configuration cannot work here.
        """
        check_alone(request, self._config, self._services)

    def task_managers(self) -> tuple[TaskManagerInfo, ...]:
        return self._resources.workers()

    def drain(self, task_manager: TaskManagerId, *, wait: bool) -> Future[None]:
        """See `ResourceManager.drain`.

        Raises:
            NotFound: there is no such worker.
            Fenced, Unreachable: this master does not lead now.
        """
        self._ports.leadership.demand()
        if all(worker.id != task_manager for worker in self._resources.workers()):
            raise NotFound(f"there is no worker {task_manager}")
        return self._resources.drain(task_manager, wait=wait)

    def drain_status(self, task_manager: TaskManagerId) -> DrainStatus:
        """How far it is. Raises NotFound."""
        return self._resources.drain_status(task_manager)

    def cluster_info(self) -> ClusterInfo:
        """Who leads, where the cluster keeps what, its versions and its configuration."""
        return cluster_info(self._config, self._services, self._ports, self.started_ms)

    def cancel(self, job: JobId) -> None:
        """Returns at once; a cancelled job may be cancelled again.

        Raises:
            NotFound, AlreadyEnded: it has finished or failed.
            Fenced, Unreachable, OutcomeUnknown: the request could not be made durable.
        """
        self._ports.leadership.demand()
        if self._recovery.cancel(job):
            return
        master = self._master(job)
        if master.wait(0) and master.live.state != "CANCELED":
            raise AlreadyEnded(f"job {job} cannot be cancelled: it has ended as {master.live.state}")
        master.cancel()

    def snapshot(
        self, job: JobId, request: contract.SnapshotRequest, trigger: str | None = None
    ) -> Future[str]:
        """Directory of a checkpoint that is taken now, or of a savepoint; with a stop or a drain, when the
        job has ended. A checkpoint is the job's own as any other: a newer one replaces it.

        `trigger`: of a savepoint or a stop; the same id is the same one, also for later leaders.

        Raises:
            NotFound, AlreadyEnded
            Otherwise as `DurableRequests.snapshot`.
        """
        known = None if trigger is None else self.operation(job, trigger)
        if known is not None and trigger is not None:
            return known.of(request, trigger)
        what = "no checkpoint can be taken" if not request.kind.is_savepoint else "no savepoint can be taken"
        return self._running(job, what).request_snapshot(request, trigger)

    def rescale(self, job: JobId, parallelism: Mapping[str, int], trigger: str | None = None) -> Future[str]:
        """Changes the parallelism of a running job; the answer ("") comes when it runs with it, also under
        the next leader.

        Args:
            job: Its id.
            parallelism: By vertex id, vertex name or uid of one of the vertex' operators.
            trigger: The same id is the same one, also for later leaders.

        Raises:
            NotFound, AlreadyEnded
            ConfigError: a name that fits no vertex or several, or an invalid parallelism.
            Otherwise as `DurableRequests.rescale`.
        """
        digest = digest_of_widths(parallelism)
        known = None if trigger is None else self.operation(job, trigger)
        if known is not None and trigger is not None:
            return known.of(RescaleAsked(digest), trigger)
        master = self._running(job, "it cannot be rescaled")
        graph = master.journal.graph
        wanted = vertices_named(graph, parallelism)
        with_parallelism(graph, wanted)  # refuses an invalid parallelism; the machine checks again
        return master.rescale(RescaleAsked(digest, wanted), trigger or self._services.new_id())

    def step_down(self, reason: str) -> None:
        """Another master leads, or may: all jobs are its own, and the workers of this one end. Bounded."""
        self._ports.leadership.end(reason)
        self.close()

    def close(self) -> None:
        """Suspends running jobs and keeps their snapshots, ends all workers; bounded. Safe to repeat."""
        if not self._admission.close():
            return
        self._ports.leadership.end_unless_leading("its cluster was shut down while nobody knew who leads")
        self._recovery.close()
        self._suspension.end(list(self.masters().values()))
        self._until_written.close()
        self._engine.close()
        self._resources.close()
        self._server.close()
        self._ports.io.close(IO_TIMEOUT_S)
        self._catalogue.close(CATALOGUE_TIMEOUT_S)

    def abandon(self, timeout_s: float) -> None:
        """Suspends running jobs without waiting for their tasks, so that a `close` that runs meanwhile, on
        another thread, does not wait for them either. Their snapshots stay."""
        self._suspension.abandon(self.masters().values(), timeout_s)

    # --- starting a job ---------------------------------------------------------------------------

    def job_id(self, request_id: str | None) -> JobId:
        """The same request id names the same job, also for another dispatcher on the same database."""
        if request_id is None:
            return JobId(self._services.new_id())
        if not 0 < len(request_id) <= 200:
            raise ConfigError("a request id has 1 to 200 characters")
        return job_of_request(request_id)

    def refuse_jobs(self, for_ms: int) -> bool:
        """New jobs are refused for this long, 0: they are accepted again. True: they were until now."""
        return self._admission.refuse(for_ms)

    def _exists(self, job: JobId) -> bool:
        """Whether the job is in memory, waits for recovery or has ended, as far as is known: the metadata may
        be away or lost."""
        recovering, master = self._unended(job)
        if recovering is not None or master is not None:
            return True
        if self._ports.jobs.result(job) is not None:
            return True
        try:
            record = self._services.metadata.job(job)
            return record is not None and self._answers_for(record)
        except Unreachable as error:
            logger.warning("event=metadata_not_asked job=%s reason=%r", job, str(error))
            return False

    def _check_alone(self, graph: JobGraph, lineage: LineageId | None = None) -> None:
        """Raises ConfigError: a job of this cluster, or of one with the same database, writes there.

        `lineage`: only jobs of this line are asked; others may write there, too, if the sink lets them."""
        self._jobs.check_alone(graph, lineage)
        services = self._services
        try:
            now_ms = services.clock.wall_ms()
            found = writer_elsewhere(
                services.metadata, now_ms, self._catalogue.cluster, graph.writes, lineage
            )
        except Unreachable as error:
            logger.warning("event=metadata_not_asked reason=%r", str(error))
            return
        if found is not None:
            job, uri = found
            raise not_alone(job.job, job.name, uri)

    def _answers_for(self, record: JobRecord) -> bool:
        """Whether a request that names this job has been done. Clusters for which a user has chosen one
        database answer for each other; others only share the history."""
        return record.cluster in (NO_CLUSTER, self._catalogue.cluster) or (
            self._config.find(METADATA_URL) is not None
        )

    def _start(self, setup: JobSetup) -> JobMaster:
        """Starts a checked job: a submitted one, or one of an earlier leader."""
        master = JobMaster(
            setup,
            self._services,
            self._ports,
            request_slots=self._resources.post,
            on_ended=lambda _job: self._jobs.forget_ended(),
            finish_later=self._recovery.finish_later,
            until_written=self._until_written,
            create_engine=self._engine.get,
        )
        self._catalogue.add_job(
            JobRecord(
                job=setup.job,
                name=setup.graph.name,
                lineage=setup.lineage,
                state="INITIALIZING",
                target=self._services.target,
                submitted_ms=setup.start.submitted_ms,
                restarts=setup.start.used.restarts_then,
                graph_json=msgspec.json.encode(shown(setup.graph)).decode(),
                job_type=setup.graph.job_type.value,
                scheduler=scheduler_of(setup.graph),
            )
        )
        now_ms = self._services.clock.wall_ms()
        self._catalogue.record_artifact(
            setup.job,
            ArtifactRecord(
                sha256=setup.artifact, size_bytes=setup.artifact_bytes, created_ms=now_ms, used_ms=now_ms
            ),
        )
        self._jobs.add(master)
        master.start()
        return master

    def recover(self) -> None:
        """Goes on with the jobs of earlier leaders, in the background. Once, before any job is submitted.

        Raises:
            Unreachable, CorruptSnapshot: what they have left cannot be read.
        """
        self._recovery.begin()

    @property
    def jobs_found(self) -> int:
        """How many unfinished jobs `recover` has found."""
        return self._recovery.found

    def _recovered(self, setup: JobSetup) -> Callable[[contract.Event], None]:
        with self._admission.lock:
            if self._admission.is_closed:
                return lambda _event: None  # the next leader starts it
            master = self._start(setup)
        logger.info("event=job_recovered job=%s name=%r", setup.job, setup.graph.name)
        return master.post

    def _create_engine(self) -> BatchEngine:
        create = self._services.create_engine
        assert create is not None, "`prepare` has refused jobs for an engine"
        return create(self._resources.host)

    def _master(self, job: JobId) -> JobMaster:
        master = self._jobs.get(job)
        if master is not None:
            return master
        self._recovery.refuse(job, "it does not run yet")
        master = self._jobs.get(job)  # it may just have got one
        if master is not None:
            return master
        raise AlreadyEnded(f"job {job} does not run in this cluster; it was last seen {self.job(job).state}")

    def _running(self, job: JobId, what: str) -> JobMaster:
        """Raises NotFound, AlreadyEnded; `what` is the consequence in its text."""
        self._ports.leadership.demand()
        master = self._master(job)
        if master.wait(0):
            raise AlreadyEnded(f"job {job} has already ended as {master.live.state}: {what}")
        return master

    @property
    def control_address(self) -> str:
        """Flight location where workers register."""
        return self._server.address

    @property
    def cluster(self) -> ClusterId:
        """Whose jobs these are, through all masters."""
        return self._catalogue.cluster

    @property
    def outlives_master(self) -> bool:
        """Its jobs may go on under another master, also one that starts later."""
        return bool(self._services.goes_on)

    @property
    def config(self) -> Configuration:
        return self._config


def _stored(request: SubmitRequest, setup: JobSetup, epoch: LeaderEpoch) -> StoredJob:
    made_of = request.pipeline
    return StoredJob(
        job=setup.job,
        lineage=setup.lineage,
        submitted_ms=setup.start.submitted_ms,
        graph=request.graph,
        artifact=setup.start.artifact,
        config=request.config,
        savepoint=None if setup.start.restore is None else setup.start.restore.directory,
        allow_non_restored=request.allow_non_restored,
        first_checkpoint_pause_ms=request.first_checkpoint_pause_ms,
        given=request.given,
        pipeline=str(ArtifactName(hashlib.sha256(made_of).hexdigest(), epoch)) if made_of else "",
        version=own_release().version,
    )
