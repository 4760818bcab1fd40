"""A cluster in one process, for tests: real master, real network, TaskManagers as threads."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, overload

from msgspec import structs

from unistream.api.environment import Environment
from unistream.api.frames import Frames
from unistream.base.closing import Closing
from unistream.base.config import METADATA_URL, TASK_SLOTS, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient
from unistream.client.job.reported import reported_result
from unistream.client.remote.job_client import JobResult
from unistream.host.roster import Roster
from unistream.master.cluster import Dispatcher
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.job_info import TaskManagerInfo
from unistream.model.messages import Answer, Refused, Request
from unistream.model.submission import SubmitRequest
from unistream.port.host import LostListener, TaskManagerSpec
from unistream.port.transport import ControlClient
from unistream.worker.code import pack
from unistream.worker.process import Services, TaskManager, default_services, worker_ports

DEFAULTS: Final = {
    "heartbeat.interval": "200 ms",  # metrics are fresh
    "heartbeat.timeout": "30 s",
    "restart-strategy.fixed-delay.delay": "10 ms",
}
JOIN_TIMEOUT_S: Final = 20.0

logger = logging.getLogger(__name__)


class MiniCluster(Closing):
    """A cluster of this process: pipelines run as anywhere else, and start at once. Functions run in threads
    of the test, so that a debugger and `breakpoint()` reach them.

    Args:
        task_managers: Most workers at the same time; they start when jobs need them.
        slots: Of each worker.
        config: Options, in addition to short heartbeats and restart delays. No config.yaml and no variables
            of the environment count here, neither for the cluster nor for a job: a test is the same
            everywhere. (A job graph of `Environment.job_graph` has the options of its environment.)
        workdir: The folder of checkpoints and metadata; None: a temporary one, removed at the end.

    >>> import pyarrow as pa
    >>> import unistream as us
    >>> from unistream.testing import MiniCluster
    >>> env = us.Environment()
    >>> numbers = us.StaticSource(pa.table({"n": [1, 2, 3]}))
    >>> _ = env.from_source(numbers, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").print()
    >>> with MiniCluster(task_managers=2, slots=1) as cluster:
    ...     job = cluster.execute_async(env, "numbers")
    ...     job.wait(60).state
    n=1
    n=2
    n=3
    'FINISHED'
    """

    def __init__(
        self,
        task_managers: int = 1,
        slots: int = 2,
        config: Configuration | Mapping[str, str] | None = None,
        *,
        workdir: str | Path | None = None,
    ) -> None:
        own = config.to_dict() if isinstance(config, Configuration) else dict(config or {})
        self._temporary = Path(tempfile.mkdtemp(prefix="unistream-mini-")) if workdir is None else None
        metadata = f"sqlite:///{Path(self._temporary or workdir or '').absolute() / 'metadata.db'}"
        merged = Configuration({**DEFAULTS, METADATA_URL.key: metadata, TASK_SLOTS.key: str(slots), **own})
        self._host: ThreadHost | None = None
        self._frames: list[Frames] = []  # rows of DataFrames, of all jobs
        self._cluster = EmbeddedCluster(
            "mini",
            merged,
            workdir=self._temporary or workdir,
            create_host=self._create_host,
            max_workers=task_managers,
            rest=False,
        )

    def _create_host(self, on_lost: LostListener) -> ThreadHost:
        self._host = ThreadHost(on_lost)
        return self._host

    @property
    def dispatcher(self) -> Dispatcher:
        return self._cluster.dispatcher

    @property
    def workdir(self) -> Path:
        return self._cluster.workdir

    @overload
    def execute(
        self,
        job: Environment,
        /,
        name: str | None = None,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        allow_non_restored_state: bool = False,
    ) -> JobResult: ...

    @overload
    def execute(
        self,
        job: JobGraph,
        code: JobCode | bytes,
        /,
        *,
        config: Mapping[str, str] | None = None,
        savepoint: str | None = None,
        name: str | None = None,
        allow_non_restored: bool = False,
    ) -> EmbeddedJobClient: ...

    def execute(
        self, job: Environment | JobGraph, /, *code: Any, **options: Any
    ) -> JobResult | EmbeddedJobClient:
        """Runs the job of an environment here, whatever its target is, and waits for its end. Arguments and
        errors as of `Environment.execute`.

        A job graph with its code (`Environment.job_graph`) is started as by `submit`, which does not wait.
        """
        if isinstance(job, JobGraph):
            if len(code) != 1 or not isinstance(code[0], JobCode | bytes):
                raise ConfigError("execute: a job graph comes with its code: execute(*env.job_graph('name'))")
            return self.submit(job, code[0], **options)
        if not isinstance(job, Environment):
            raise ConfigError(f"execute takes an Environment, or a job graph and its code, not {job!r:.200}")
        return reported_result(self.execute_async(job, *code, **options))

    def execute_async(
        self,
        environment: Environment,
        name: str | None = None,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        allow_non_restored_state: bool = False,
    ) -> EmbeddedJobClient:
        """Starts it and returns at once, as `Environment.execute_async` does."""
        request, frames = environment.without_surroundings().submission(
            name, savepoint=savepoint, allow_non_restored_state=allow_non_restored_state
        )
        self._frames.append(frames)
        return self._cluster.submit(request)

    def submit(
        self,
        graph: JobGraph,
        code: JobCode | bytes,
        *,
        config: Mapping[str, str] | None = None,
        savepoint: str | None = None,
        name: str | None = None,
        allow_non_restored: bool = False,
    ) -> EmbeddedJobClient:
        """Starts a job graph; `code` may be packed already.

        Raises:
            ConfigError: the job cannot run.
        """
        return self._cluster.submit(
            SubmitRequest(
                graph=graph if name is None else structs.replace(graph, name=name),
                artifact=code if isinstance(code, bytes) else pack(code),
                config=dict(config or {}),
                savepoint=savepoint,
                allow_non_restored=allow_non_restored,
            )
        )

    def task_managers(self) -> tuple[TaskManagerInfo, ...]:
        """Workers that are running or starting."""
        return self._cluster.dispatcher.task_managers()

    def kill(self, task_manager: TaskManagerId) -> None:
        """Ends a worker as if its process were killed: the master gets no more messages from it.

        Raises:
            ConfigError: there is no such worker.
        """
        assert self._host is not None, "the cluster has a host from its start"
        self._host.kill(task_manager)

    def close(self) -> None:
        """Cancels all jobs and waits until all threads of the cluster have ended."""
        self._cluster.close()
        for frames in self._frames:
            frames.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


class ThreadHost:
    """A `WorkerHost` whose TaskManagers are threads of this process."""

    def __init__(self, on_lost: LostListener) -> None:
        self._workers: Roster[_MiniClusterWorker] = Roster(on_lost)

    def start(self, spec: TaskManagerSpec) -> None:
        self._workers.add(spec.id, lambda: _MiniClusterWorker(spec, self._workers.ended)).thread.start()

    def stop(self, task_manager: TaskManagerId) -> None:
        worker = self._workers.get(task_manager)
        if worker is not None:
            worker.end("stopped by its host")

    def kill(self, task_manager: TaskManagerId) -> None:
        """Cuts the connection to the master, reports the loss, then ends the worker."""
        worker = self._workers.get(task_manager)
        if worker is None:
            raise ConfigError(f"there is no TaskManager {task_manager}")
        worker.cut.set()
        worker.lost("killed")
        worker.end("killed")

    def close(self) -> None:
        self._workers.close()
        workers = self._workers.all()
        for worker in workers:
            worker.end("its host was closed")
        for worker in workers:
            worker.thread.join(JOIN_TIMEOUT_S)
            if worker.thread.is_alive():
                logger.error("event=thread_left task_manager=%s", worker.spec.id)


class _MiniClusterWorker:
    """One TaskManager and its thread."""

    def __init__(self, spec: TaskManagerSpec, on_lost: LostListener) -> None:
        self.spec = spec
        self.cut = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"worker-{spec.id}", daemon=True)
        self._on_lost = on_lost
        self._lost = threading.Lock()
        self._is_lost = False
        self._end_reason: str | None = None
        self._manager: TaskManager | None = None

    def end(self, reason: str) -> None:
        self._end_reason = reason
        manager = self._manager
        if manager is not None:
            manager.release(reason)

    def lost(self, reason: str) -> None:
        """Notifies the listener, once."""
        with self._lost:
            first, self._is_lost = not self._is_lost, True
        if first:
            self._on_lost(self.spec.id, reason)

    def _run(self) -> None:
        reason = "ended"
        try:
            manager = TaskManager(self.spec, worker_ports(self.spec, self._services()))
            self._manager = manager
            try:
                if self._end_reason is None:
                    manager.start()
                    manager.wait()
                reason = manager.reason or reason
            finally:
                if not manager.close():
                    logger.error("event=task_holds_on task_manager=%s", self.spec.id)
        except Exception as error:
            logger.exception("event=worker_failed task_manager=%s", self.spec.id)
            reason = f"{type(error).__name__}: {error}"
        finally:
            self.lost(reason)

    def _services(self) -> Services:
        services = default_services()
        connect = services.control_client
        return replace(services, control_client=lambda address: _CutClient(connect(address), self.cut))


class _CutClient:
    """A `ControlClient` whose calls are all refused once the connection is cut."""

    def __init__(self, client: ControlClient, cut: threading.Event) -> None:
        self._client = client
        self._cut = cut

    def call(self, message: Request) -> Answer:
        if self._cut.is_set():
            return Refused(reason="the connection to the master is cut")  # so that the worker ends
        return self._client.call(message)

    def close(self) -> None:
        self._client.close()
