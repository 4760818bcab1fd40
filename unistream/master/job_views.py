"""What a dispatcher knows of its jobs: those in memory, those to be recovered, those in the catalogue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from unistream.base.errors import NotFound
from unistream.base.ids import JobId
from unistream.master.cluster_services import ClusterServices
from unistream.master.history import (
    checkpoints_from_records,
    info_from_records,
    info_from_result,
    summary_of,
)
from unistream.master.job_info import TERMINAL_STATES, JobInfo, JobSummary
from unistream.master.job_master import JobMaster
from unistream.master.ports import MasterPorts
from unistream.master.recovery import Recovery
from unistream.master.resource_manager import ResourceManager
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobGraph, shown
from unistream.port.metadata import JobRecord

WAIT_FOR_S: Final = 1.0  # a JobInfo also changes without a recorded fact: workers come and go


class JobViews:
    """The part of a `Dispatcher` that changes nothing. Public methods may be called from any thread."""

    _services: ClusterServices
    _ports: MasterPorts
    _resources: ResourceManager
    _recovery: Recovery
    _jobs: dict[JobId, JobMaster]
    _jobs_lock: threading.Lock

    def job(self, job: JobId) -> JobInfo:
        """Raises NotFound."""
        master = self._jobs.get(job)
        if master is not None:
            return master.info(self._resources.workers())
        recovering = self._recovery.info(job)
        if recovering is not None:
            return recovering
        result = self._ports.jobs.result(job)
        record = self._services.metadata.job(job)
        if record is not None:
            return info_from_records(record, self._services.metadata, result)
        if result is None:
            raise NotFound(f"there is no job {job}")
        return info_from_result(result, self._services.target)

    def checkpoints(self, job: JobId) -> CheckpointsInfo:
        """The statistics of the job's snapshots. Raises NotFound."""
        master = self._jobs.get(job)
        if master is not None:
            return master.checkpoints()
        record = self._record(job)
        return checkpoints_from_records(
            record,
            self._services.metadata.checkpoints(record.job),
            self._services.metadata.checkpoint_totals(record.job),
        )

    def graph_json(self, job: JobId) -> bytes:
        """The job's graph with its current parallelism. Raises NotFound."""
        master = self._jobs.get(job)
        if master is not None:
            return msgspec.json.encode(shown(master.journal.graph))
        return self._record(job).graph_json.encode()

    def wanted_graph(self, job: JobId) -> JobGraph:
        """With the parallelism that the job would have with enough slots. Raises NotFound."""
        master = self._jobs.get(job)
        if master is not None:
            view = master.view()
            return shown(view.wanted or view.graph)
        return msgspec.json.decode(self.graph_json(job), type=JobGraph)

    def jobs(self) -> list[JobSummary]:
        """Jobs of this cluster that run or wait, and those that ended since it was started; newest first."""
        workers = self._resources.workers()
        infos = [master.info(workers) for master in self.masters().values()]
        known = {info.job for info in infos}
        infos += [info for info in self._recovery.infos() if info.job not in known]
        return [summary_of(info) for info in sorted(infos, key=lambda info: info.submitted_ms, reverse=True)]

    def masters(self) -> dict[JobId, JobMaster]:
        """The jobs in memory, oldest first."""
        with self._jobs_lock:
            return dict(self._jobs)

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
            version = 0 if master is None else master.journal.version
            info = self.job(job)
            if condition(info):
                return info
            left_ms = deadline_ms - self._services.clock.monotonic_ms()
            if info.is_terminal or left_ms <= 0:
                return None
            if master is None:
                self._recovery.await_start(job, min(left_ms / 1000, WAIT_FOR_S))
            else:
                master.journal.await_change(version, min(left_ms / 1000, WAIT_FOR_S))

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs by state: running, finished, cancelled, failed."""
        states = [summary.state for summary in self.jobs()]
        return {
            "running": sum(state not in TERMINAL_STATES for state in states),
            "finished": states.count("FINISHED"),
            "cancelled": states.count("CANCELED"),
            "failed": states.count("FAILED"),
        }

    def _record(self, job: JobId) -> JobRecord:
        """The record of a job that is not in memory."""
        record = self._services.metadata.job(job)
        if record is None:
            raise NotFound(f"there is no job {job}")
        return record
