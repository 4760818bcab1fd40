"""What a dispatcher knows of its jobs: those in memory, those to be recovered, those in the catalogue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from unistream.base.errors import NotFound, Unreachable
from unistream.base.ids import JobId, TaskManagerId
from unistream.master import shown as views
from unistream.master.cluster.job_masters import JobMasterRegistry
from unistream.master.cluster.recovery import JobRecovery
from unistream.master.job import JobMaster
from unistream.master.service import ClusterServices, MasterPorts, ResourceManager
from unistream.master.store import (
    StampedLinks,
    StampedProcedures,
    TriggeredOperation,
    find_operation,
    operation_of,
    taken_over,
)
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobGraph, shown
from unistream.model.job_info import TERMINAL_STATES, JobInfo, JobSummary, MetadataHealth
from unistream.model.job_log_line import JobLogLine
from unistream.model.stored_job import StoredResult
from unistream.port.metadata import CommitRecord, HistoryPlace, JobRecord, OutboxRecord, PastJobs

DATABASE_AWAY: Final = "the metadata database does not answer: only how the job has ended is known"
WAIT_FOR_S: Final = 1.0  # a JobInfo also changes without a recorded fact: workers come and go

T = TypeVar("T")

logger = logging.getLogger(__name__)


class JobViews:
    """The part of a `Dispatcher` that changes nothing. Public methods may be called from any thread."""

    _services: ClusterServices
    _ports: MasterPorts
    _resources: ResourceManager
    _recovery: JobRecovery
    _jobs: JobMasterRegistry
    _ended: views.EndedJobs
    _pages: views.RecentPages

    def job(self, job: JobId) -> JobInfo:
        """While the database is away, how a job has ended. Raises NotFound, Unreachable."""
        try:
            return self.whole_job(job)
        except Unreachable:
            result = self._ports.jobs.result(job)
            if result is None:
                raise
        return self._ended_as(result, incomplete=DATABASE_AWAY)

    def whole_job(self, job: JobId) -> JobInfo:
        """The job with its exceptions and tasks. Raises NotFound; Unreachable: only the database knows
        them."""
        recovering, master = self._unended(job)
        if master is not None:
            shown = master.live.info(self._resources.workers())
            return replace(shown, notes=tuple(self._resources.notes()))
        if recovering is not None:
            return recovering
        result = self._ports.jobs.result(job)
        if result is not None and (reason := self.metadata_health().reason) is not None:
            raise Unreachable(f"the metadata database does not answer: {reason}")  # nobody waits for it
        record = self._services.metadata.job(job)
        if record is not None:
            found = self._recorded(record, result)
            return self._page(found, "job", lambda: views.recorded_info(found, self._services.metadata))
        if result is None:
            raise NotFound(f"there is no job {job}")
        return self._ended_as(result)

    def _ended_as(self, result: StoredResult, incomplete: str = "") -> JobInfo:
        info = views.info_of_result(result, self._services.target, self._ports.catalogue.cluster)
        return replace(info, incomplete=incomplete)

    def checkpoints(self, job: JobId) -> CheckpointsInfo:
        """The statistics of the job's snapshots. Raises NotFound."""
        recovering, master = self._unended(job)
        if master is not None:
            return master.live.checkpoints()
        if recovering is not None:
            return self._checkpoints_meanwhile(job)
        record, store = self._record(job), self._services.metadata
        if record is None:
            return CheckpointsInfo()
        found = self._recorded(record, self._ports.jobs.result(job))
        return self._page(found, "checkpoints", lambda: views.checkpoints_of(found, store))

    def log(self, job: JobId, after: int, limit: int) -> Sequence[JobLogLine]:
        """What its functions have logged behind line `after`: the newest lines, also of a job that has ended.
        A new leader begins without those of before. Raises NotFound."""
        recovering, master = self._unended(job)
        if master is not None:
            return master.journal.log.after(after, limit)
        if recovering is not None:
            return []
        self.job(job)
        record, store = self._record(job), self._services.metadata
        if record is None:
            return []
        found = self._recorded(record, self._ports.jobs.result(job))
        lines = self._page(found, "log", lambda: views.log_of(found, store))
        return [line for line in lines if line.seq > after][:limit]

    def workers_info(self) -> views.WorkersInfo:
        """All workers, what is in their slots, and hosts that are avoided."""
        running = self._jobs.running()
        return views.workers_info(
            self._resources.workers(),
            leased=self._resources.leased(),
            jobs={
                job: views.JobInSlots(master.setup.graph.name, master.live.view())
                for job, master in running.items()
            },
            blocked=self._resources.blocked(),
            logs=self._services.log_dir,
            now_ms=self._services.clock.wall_ms(),
        )

    def worker_log(self, task_manager: TaskManagerId) -> views.WorkerLog:
        """The end of a worker's log. Raises NotFound: it is on another machine."""
        return views.worker_log(self._services.log_dir, task_manager)

    def operation(self, job: JobId, trigger: str) -> TriggeredOperation | None:
        """What was started under this trigger id, by this leader or an earlier one; None: there is none, or
        no longer. Raises Unreachable."""
        recovering, master = self._unended(job)
        jobs = self._ports.jobs
        if master is not None:
            return master.operation(trigger)
        if recovering is not None:
            known = taken_over(jobs.request(job).operations)
        else:
            result = jobs.result(job)
            known = () if result is None else result.operations
        found = find_operation(known, trigger)
        return None if found is None else operation_of(found)

    def has_pipeline(self, job: JobId) -> bool:
        """What the job was made of is stored, also if it has ended. Raises Unreachable."""
        return self._ports.jobs.has_pipeline(job)

    def pipeline(self, job: JobId) -> bytes | None:
        """What the job was made of, as its client has sent it: opaque here. Raises Unreachable,
        CorruptSnapshot."""
        return self._ports.jobs.pipeline(job)

    def _page(self, found: views.RecordedJob, what: str, read: Callable[[], T]) -> T:
        """A job that does not run does not change, unless its row does."""
        if found.state not in TERMINAL_STATES:
            return read()
        record = found.record
        return self._pages.get((what, record.job, record.version, found.ended_ms, found.state), read)

    def _checkpoints_meanwhile(self, job: JobId) -> CheckpointsInfo:
        """The recorded checkpoints of a job that is not started yet; none while the database is away."""
        store = self._services.metadata
        try:
            record = store.job(job)
            if record is not None:
                return views.checkpoints_from_records(
                    record, store.checkpoints(job), store.checkpoint_totals(job)
                )
        except Unreachable as error:
            logger.warning("event=metadata_not_asked job=%s reason=%r", job, str(error))
        return CheckpointsInfo()

    def graph(self, job: JobId) -> JobGraph:
        """The job's graph with its current parallelism, without secrets. Raises NotFound."""
        waiting = self._recovery.graph(job)
        master = self._jobs.get(job)
        if master is not None:
            return shown(master.journal.graph)
        if waiting is not None:
            return waiting
        record = self._record(job)
        return JobGraph(name="", vertices=(), edges=()) if record is None else views.graph_of(record)

    def known_graph(self, job: JobId) -> JobGraph:
        """The job's graph as `graph` gives it; without vertices while the database is away, which alone knows
        them of a job that has ended."""
        try:
            return self.graph(job)
        except Unreachable:
            result = self._ports.jobs.result(job)
            if result is None:
                raise
        return JobGraph(name=result.name, vertices=(), edges=())

    def wanted_graph(self, job: JobId) -> JobGraph:
        """The job's graph with the parallelism that it would have with enough slots. Raises NotFound."""
        master = self._jobs.get(job)
        if master is not None:
            view = master.live.view()
            return shown(view.wanted or view.graph)
        return self.graph(job)

    def jobs(self) -> list[JobSummary]:
        """Jobs of this cluster that run or wait, and jobs of all clusters on its database that have ended;
        newest first. While the database is away, those that it is known to have."""
        found = {info.job: views.summary_of(info) for info in self._recovery.infos()}
        found |= {job: master.live.summary() for job, master in self.masters().items()}
        return self._with_ended(found)

    def shown_jobs(self) -> list[tuple[JobSummary, JobInfo | None]]:
        """The jobs that `jobs` lists, each of this cluster that has not ended with all that is known of it at
        one moment: a running job is asked once."""
        infos = {info.job: info for info in self._recovery.infos()}
        found = {job: views.summary_of(info) for job, info in infos.items()}
        workers = self._resources.workers()
        for job, master in self.masters().items():
            found[job], infos[job] = master.live.summary_and_info(workers)
        return [(summary, infos.get(summary.job)) for summary in self._with_ended(found)]

    def _with_ended(self, found: dict[JobId, JobSummary]) -> list[JobSummary]:
        for summary in self._ended.read(not_away=self.metadata_health().away_since_ms is None):
            found.setdefault(summary.job, summary)
        return sorted(found.values(), key=lambda summary: summary.submitted_ms, reverse=True)

    def timeline(self, job: JobId) -> views.JobTimeline:
        """The life of the job on one axis. Raises NotFound; Unreachable: the database is away."""
        self._check_metadata()
        store = self._services.metadata
        return views.timeline_of(self.whole_job(job), store.job(job), store, self._services.clock.wall_ms())

    def past_jobs(self, wanted: PastJobs, limit: int, before: HistoryPlace | None) -> views.JobsPage:
        """Jobs that do not run. Raises Unreachable: the database is away."""
        self._check_metadata()
        running = self._jobs.running()
        waiting = [info.job for info in self._recovery.infos()]
        return views.search_past_jobs(
            self._services.metadata,
            replace(wanted, running=(*running, *waiting)),
            own=self._ports.catalogue.cluster,
            limit=limit,
            before=before,
            now_ms=self._services.clock.wall_ms(),
        )

    def metadata_health(self) -> MetadataHealth:
        """The state of the database."""
        return self._ports.catalogue.health()

    def notes(self) -> list[str]:
        """What a user should know of the database, and of where the workers run."""
        return [*self.metadata_health().sentences(), *self._resources.notes()]

    def commits(self, after: int, limit: int) -> Sequence[OutboxRecord]:
        """See `MetadataStore.outbox`. Raises Unreachable."""
        self._check_metadata()
        return self._services.metadata.outbox(after, limit)

    def commits_of(self, job: JobId, limit: int) -> Sequence[CommitRecord]:
        """The newest commits of one job, the oldest of them first. Raises Unreachable."""
        self._check_metadata()
        return self._services.metadata.commits(job, limit)

    @property
    def run_links(self) -> StampedLinks:
        """Which run of an orchestrator watches which job, by the clock of this master."""
        return StampedLinks(self._services.metadata.links, self._services.clock, self._check_metadata)

    @property
    def procedures(self) -> StampedProcedures:
        """What commands report of backfills and upgrades, by the clock of this master."""
        services = self._services
        return StampedProcedures(services.metadata.procedures, services.clock, self._check_metadata)

    def _check_metadata(self) -> None:
        """Raises Unreachable: the database is known to be away."""
        reason = self.metadata_health().reason
        if reason is not None:
            raise Unreachable(f"the metadata database does not answer: {reason}")  # nobody waits for it

    def masters(self) -> dict[JobId, JobMaster]:
        """The jobs in memory, oldest first."""
        return self._jobs.all()

    def wait(self, job: JobId, timeout_s: float | None) -> bool:
        """True once the job has ended and its result is recorded. Raises NotFound."""
        deadline_ms = None if timeout_s is None else self._services.clock.monotonic_ms() + timeout_s * 1000
        if not self._recovery.await_start(job, timeout_s):
            return False
        master = self._jobs.get(job)
        if master is None:
            return self.job(job).is_terminal
        now_ms = self._services.clock.monotonic_ms()
        return master.wait(None if deadline_ms is None else max(0.0, (deadline_ms - now_ms) / 1000))

    def wait_for(self, job: JobId, condition: Callable[[JobInfo], bool], timeout_s: float) -> JobInfo | None:
        """The first JobInfo that satisfies `condition`; None after `timeout_s`, or if the job has ended
        without one. Raises NotFound."""
        deadline_ms = self._services.clock.monotonic_ms() + int(timeout_s * 1000)
        while True:
            master = self._jobs.get(job)
            version = 0 if master is None else master.journal.version.number
            info = self.job(job)
            if condition(info):
                return info
            left_ms = deadline_ms - self._services.clock.monotonic_ms()
            if info.is_terminal or left_ms <= 0 or not self._is_ours(job):
                return None
            if master is None:
                self._recovery.await_start(job, min(left_ms / 1000, WAIT_FOR_S))
            else:
                master.journal.version.await_newer(version, min(left_ms / 1000, WAIT_FOR_S))

    def _unended(self, job: JobId) -> tuple[JobInfo | None, JobMaster | None]:
        """A job that is to be started, and its master. Asked for in this order, since a job gets its master
        before it is taken from those; one that has neither does not run here."""
        recovering = self._recovery.info(job)
        return recovering, self._jobs.get(job)

    def _is_ours(self, job: JobId) -> bool:
        """It runs here, or is to be started here."""
        return self._recovery.info(job) is not None or self._jobs.get(job) is not None

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs that this master has had, see `counts_of`."""
        states = [master.live.state for master in self.masters().values()]
        return counts_of([*states, *(info.state for info in self._recovery.infos())])

    def _record(self, job: JobId) -> JobRecord | None:
        """The record of a job that is not in memory; None: only its result is known. Raises NotFound."""
        record = self._services.metadata.job(job)
        if record is None and self._ports.jobs.result(job) is None:
            raise NotFound(f"there is no job {job}")
        return record

    def _recorded(self, record: JobRecord, result: StoredResult | None) -> views.RecordedJob:
        return views.RecordedJob(
            record=record,
            result=result,
            cluster=self._services.metadata.cluster(record.cluster),
            is_here=record.cluster == self._ports.catalogue.cluster,
            now_ms=self._services.clock.wall_ms(),
        )


def counts_of(states: Sequence[str]) -> dict[str, int]:
    """Number of jobs that are running, finished, cancelled, failed."""
    return {
        "running": sum(state not in TERMINAL_STATES for state in states),
        "finished": states.count("FINISHED"),
        "cancelled": states.count("CANCELED"),
        "failed": states.count("FAILED"),
    }
