"""The jobs of a cluster that are in memory, and whether it takes more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId, LineageId
from unistream.core import contract
from unistream.master.job import JobMaster
from unistream.master.shown import written_by_both
from unistream.model.graph import JobGraph
from unistream.port.engine import BatchEngine

JOBS_RUNNING_MAX: Final = 1_000  # each has a thread; what so many cost: docs/scale.md
JOBS_ENDED_KEPT_MAX: Final = 100  # older ones are read from the catalogue
PURPOSE_CHARS_MAX: Final = 200  # of a title that people read in lists


class JobMasterRegistry:
    """The JobMasters of the jobs that run, and of the last that have ended (Flink's
    JobManagerRunnerRegistry). Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._masters: dict[JobId, JobMaster] = {}

    def add(self, master: JobMaster) -> None:
        with self._lock:
            self._masters[master.setup.job] = master

    def get(self, job: JobId) -> JobMaster | None:
        return self._masters.get(job)

    def all(self) -> dict[JobId, JobMaster]:
        """Oldest first."""
        with self._lock:
            return dict(self._masters)

    def running(self) -> dict[JobId, JobMaster]:
        """The jobs that have not ended, oldest first."""
        return {job: master for job, master in self.all().items() if not master.wait(0)}

    def forget_ended(self) -> None:
        """Removes the jobs that ended first; they remain in the catalogue."""
        with self._lock:
            ended = [job for job, master in self._masters.items() if master.wait(0)]
            for old in ended[: max(0, len(ended) - JOBS_ENDED_KEPT_MAX)]:
                del self._masters[old]

    def post(self, job: JobId, event: contract.Event) -> None:
        """Hands an event of the ResourceManager to the job's master. A job that is no longer in memory needs
        no events."""
        master = self._masters.get(job)
        if master is not None:
            master.post(event)

    def describe(self, job: JobId) -> str:
        """The job's name and vertices, in one line; "": it has just ended."""
        master = self._masters.get(job)
        if master is None:
            return ""
        graph = master.setup.graph
        return f"{graph.name}: {', '.join(vertex.name for vertex in graph.vertices)}"[:PURPOSE_CHARS_MAX]

    def check_alone(self, graph: JobGraph, lineage: LineageId | None) -> None:
        """Raises ConfigError: one of these jobs writes one of the same outputs, and has not ended. `lineage`:
        only jobs of this line are asked; None: all."""
        for job, master in self.running().items():
            if lineage is not None and master.setup.lineage != lineage:
                continue
            uri = written_by_both(graph.writes, master.journal.graph.writes)
            if uri is not None:
                raise not_alone(job, master.journal.graph.name, uri)


def not_alone(job: JobId, name: str, uri: str) -> ConfigError:
    """The refusal of a job that another one, which has not ended, does not leave alone."""
    return ConfigError(
        f"job {job} ({name}) runs and writes {uri}, too, where two would write rows twice: stop it first, "
        f"'unistream stop {job[:8]}' does it with a savepoint; nothing was started"
    )


class JobAdmission:
    """Whether new jobs are taken. Who asks holds `lock` until the job is in the registry: none is added once
    the cluster is closed."""

    def __init__(self, clock: Clock, jobs: JobMasterRegistry) -> None:
        self.lock = threading.Lock()
        self.is_closed = False
        self._clock = clock
        self._jobs = jobs
        self._refuses_until_ms = 0

    def check(self) -> None:
        """Raises ConfigError: no job is taken now."""
        if self.is_closed:
            raise ConfigError("the cluster is shutting down and takes no more jobs")
        if self._clock.monotonic_ms() < self._refuses_until_ms:
            raise ConfigError("the cluster is being stopped and takes no jobs now; submit it again later")
        running = len(self._jobs.running())
        if running >= JOBS_RUNNING_MAX:
            raise ConfigError(f"{running} jobs are running, limit {JOBS_RUNNING_MAX}; wait for one to end")

    def refuse(self, for_ms: int) -> bool:
        """See `Dispatcher.refuse_jobs`."""
        with self.lock:
            now_ms = self._clock.monotonic_ms()
            before, self._refuses_until_ms = self._refuses_until_ms, now_ms + for_ms
            return now_ms < before

    def close(self) -> bool:
        """False: it was closed before."""
        with self.lock:
            first, self.is_closed = not self.is_closed, True
        return first


class SharedEngine:
    """The engine that runs all BATCH jobs of the cluster, made for the first one. Thread-safe."""

    def __init__(self, create: Callable[[], BatchEngine]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._engine: BatchEngine | None = None

    def get(self) -> BatchEngine:
        with self._lock:
            if self._engine is None:
                self._engine = self._create()
            return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
