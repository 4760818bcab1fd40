"""Workers inside Spark tasks: Spark provides the resources, the ResourceManager manages them.

Each TaskManager is one Spark job with one task, in a job group of its own, so that it can be cancelled alone.
It runs in the Python worker process of its task and has no children: Spark kills a Python worker, but not
its children. When the process ends, the task fails, and `on_lost` is called. Spark would repeat the task, but
a TaskManager's id is used only once: the job is cancelled as soon as its task has failed, and a second
attempt that has begun before ends at once.

In local mode Spark's threads are places for workers, not cores. There are twice as many as workers, so that
every worker can be replaced while the place of its predecessor is not free yet.

On a cluster unistream must be installed on the executors, with the same Python version. A worker uses as
many cores of its executor as its configuration says (`taskmanager.cpu.cores`), and is known by its executor's
host, which is also reported if the worker could not start. Blocked hosts are avoided twice: other hosts are
preferred, and a worker that is started on a blocked one ends at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD

from unistream import __version__
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import TaskManagerId
from unistream.core.memory import cpu_threads
from unistream.host.claims import Claims
from unistream.host.processes import Processes, below
from unistream.host.roster import Roster
from unistream.host.spark_application import LiveSpark, SparkApplication, begin_job_group
from unistream.host.spark_errors import failed_task, in_words, unusable_python
from unistream.host.spark_executor import WorkerOrder, run_in_task
from unistream.host.spark_status import SparkStatus, SparkTask, leaving_executors
from unistream.host.spark_wait import PlaceWait, waiting
from unistream.port.host import LeavingListener, LostListener, TaskManagerSpec

RELEASE_GRACE_S: Final = 2.0  # for a worker that was released to end by itself, before its job is cancelled
CANCEL_S: Final = 10.0  # Spark kills the Python worker of a cancelled task after a pause of its own
CANCEL_REPEAT_S: Final = 0.5  # cancelling a group has no effect before Spark knows its job
WATCH_S: Final = 0.5  # between two looks for failed tasks of workers
FORGOTTEN_LOOKS: Final = 20  # one in so many looks is for a master that has forgotten the application
LEAVING_LOOKS: Final = 4  # one in so many looks is for executors that are decommissioned
PROCESS_EXIT_S: Final = 0.5  # for a worker whose job has ended to end by itself, before it is killed
STAGE_NAME: Final = "callSite.short"  # a local property of Spark: what the stages of a job are called

_LOG: Final = logging.getLogger("unistream.host")


class SparkHost:
    """Runs each TaskManager in a Spark task. Uses the SparkContext of this process, or makes one.

    Args:
        on_lost: Called once for each started worker, on that worker's thread.
        master: A Spark master; `local` and `local[...]` are sized by `workers_max`.
        workers_max: The most workers at the same time.
        config: Its keys that begin with `spark.` go to Spark.

    Raises:
        ConfigError: Spark does not start (no Java, a master that is not there).
    """

    def __init__(
        self, on_lost: LostListener, *, master: str, workers_max: int, config: Mapping[str, str]
    ) -> None:
        if workers_max < 1:
            raise ConfigError(f"a host needs room for at least one worker, not {workers_max}")
        self._workers: Roster[_SparkWorker] = Roster(on_lost)
        self._on_leaving: LeavingListener = _not_listened
        self._application = SparkApplication(master, workers_max, config)
        self._claims = Claims() if self._application.is_local else None
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._watch_workers, name="spark-watch", daemon=True)
        self._watch.start()

    @property
    def application(self) -> SparkApplication:
        """The Spark context that the workers run in."""
        return self._application

    def start(self, spec: TaskManagerSpec) -> None:
        """Returns at once.

        Raises:
            ConfigError: this id was used before.
            Unreachable: the host is closed.
        """
        self._workers.add(spec.id, lambda: self._worker(spec)).start()

    def _watch_workers(self) -> None:
        """Checks the workers until the host is closed: a failed task is not left to Spark, which waits for a
        place to repeat it."""
        looks = 0
        while not self._closed.wait(WATCH_S):
            looks += 1
            if looks % FORGOTTEN_LOOKS == 0:
                with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark has ended
                    self._application.end_forgotten()
            for worker in self._workers.all():
                worker.check()
                if looks % LEAVING_LOOKS == 0 and (executor := worker.leaves()) is not None:
                    where = f"executor {executor.executor} on {executor.host}"
                    self._on_leaving(worker.id, f"Spark decommissions {where}, and so it is drained")

    def _worker(self, spec: TaskManagerSpec) -> _SparkWorker:
        return _SparkWorker(
            spec,
            self._application,
            claims=self._claims,
            doubted=self._doubted,
            on_lost=self._workers.ended,
        )

    def _doubted(self) -> frozenset[str]:
        """Hosts of which perhaps nothing is left: see `port.host.SharedHost.given_up`."""
        hosts = (worker.doubted_host() for worker in self._workers.all())
        return frozenset(host for host in hosts if host is not None)

    # --- what only a shared host has --------------------------------------------------------------

    def notes(self) -> list[str]:
        """See `port.host.SharedHost`."""
        exposure = self._application.exposure
        return [*([exposure] if exposure else []), *waiting(one.place for one in self._workers.all())]

    def on_leaving(self, listener: LeavingListener) -> None:
        """See `port.host.SharedHost`: that of a worker whose executor is decommissioned."""
        self._on_leaving = listener

    def given_up(self, task_manager: TaskManagerId) -> None:
        """See `port.host.SharedHost`. Spark does not notice for minutes that a whole host is gone
        (`spark.network.timeout`), and goes on giving it tasks."""
        worker = self._workers.get(task_manager)
        if worker is not None:
            worker.is_given_up = True

    # --- the end ----------------------------------------------------------------------------------

    def stop(self, task_manager: TaskManagerId) -> None:
        """Cancels its job, unless it ends within RELEASE_GRACE_S; returns at once."""
        worker = self._workers.get(task_manager)
        if worker is not None:
            worker.stop(RELEASE_GRACE_S)

    def close(self) -> None:
        """Cancels all jobs, waits for them, and ends the Spark context and its JVM if they are its own."""
        if not self._workers.close():
            return
        self._closed.set()
        self._watch.join(WATCH_S + CANCEL_S)
        workers = self._workers.all()
        for worker in workers:
            worker.stop(grace_s=0.0)
        for worker in workers:
            worker.join(CANCEL_S)
        if self._claims is not None:
            self._claims.close()
        self._application.close()


class _SparkWorker:
    """One Spark job and the thread that waits for it. It has `claims` in local mode."""

    def __init__(
        self,
        spec: TaskManagerSpec,
        application: SparkApplication,
        *,
        claims: Claims | None,
        doubted: Callable[[], frozenset[str]],
        on_lost: LostListener,
    ) -> None:
        self.id = spec.id
        self.is_given_up = False
        self._spec = spec
        self._doubted = doubted
        self._task: SparkTask | None = None  # on a cluster: as soon as it runs
        self._leaves = False
        self._application = application
        self._spark: LiveSpark | None = None  # where its job was given to
        self._claims = claims
        self._on_lost = on_lost
        self._failed_on = ""
        self._hopeless = False  # no worker can be started as this one was
        self._status: SparkStatus | None = None
        self._failed: SparkTask | None = None
        self._group = f"unistream-{spec.id}"
        self.place = PlaceWait(spec.id)
        self._stopping = threading.Event()
        self._ended = threading.Event()
        # The job group is a property of the thread's own twin in the JVM.
        self._thread = threading.Thread(target=self._run, name=f"worker-{spec.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        self._stopping.set()
        threading.Thread(
            target=self._cancel, args=(grace_s,), name=f"cancel-{self._spec.id}", daemon=True
        ).start()

    def check(self) -> None:
        """Cancels its job if its task has failed."""
        spark = self._spark
        if spark is None or self._failed is not None or self._ended.is_set():
            return
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark has ended
            if self._status is None:
                self._status = SparkStatus(spark.context, self._group)
            self._failed = next(iter(self._status.failed_tasks()), None)
            if self._failed is not None:
                spark.context.cancelJobGroup(self._group)
            elif self.place.is_pending:
                self.place.look(spark, self._status)
            elif self._task is None and spark.placement is not None:
                self._task = self._status.running_task()

    def leaves(self) -> SparkTask | None:
        """Its task, once, when the executor is being decommissioned."""
        spark, task = self._spark, self._task
        if spark is None or task is None or self._leaves or self._ended.is_set() or self._stopping.is_set():
            return None
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark has ended
            self._leaves = bool(leaving_executors(spark.context, [task.executor]))
        return task if self._leaves else None

    def doubted_host(self) -> str | None:
        """Where it ran, if it was given up, and Spark has not heard of the end of its task; else None."""
        if not self.is_given_up or self._task is None or self._status is None:
            return None
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark has ended
            if self._status.running_task() is not None:
                return self._task.host
        self.is_given_up = False
        return None

    def join(self, timeout_s: float) -> None:
        if self._thread is threading.current_thread():
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _LOG.error("event=spark_job_not_ended task_manager=%s", self._spec.id)

    def _cancel(self, grace_s: float) -> None:
        self._ended.wait(grace_s)
        for _ in range(int(CANCEL_S / CANCEL_REPEAT_S)):
            if self._ended.is_set():
                return
            if self._spark is not None:
                with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark is gone: so is the job
                    self._spark.context.cancelJobGroup(self._group)
            self._ended.wait(CANCEL_REPEAT_S)
        _LOG.error("event=spark_cancel_timeout task_manager=%s", self._spec.id)

    def _run(self) -> None:
        reason = self._live()
        self._ended.set()
        self.place.end()
        _LOG.info("event=worker_ended task_manager=%s reason=%r", self._spec.id, reason)
        try:
            self._on_lost(self._spec.id, reason, self._failed_on, self._hopeless)
        except Exception:  # not our code; this thread must still end properly
            _LOG.exception("event=lost_listener_failed task_manager=%s", self._spec.id)

    def _live(self) -> str:
        """Runs the job to the end of its process; returns how it ended."""
        if self._stopping.is_set():
            return "it was stopped before it was started"
        folder = self._claims.offer(self._spec.id) if self._claims is not None else ""
        order = WorkerOrder(spec=self._spec, claim_folder=folder, version=__version__)
        reason = "its Spark job ended"
        try:
            spark = self._spark = self._application.living()
            title = self._spec.purpose or "unistream"
            what = f"{title} (TaskManager {self._spec.id})"
            begin_job_group(spark.context, self._group, what)
            spark.context.setLocalProperty(STAGE_NAME, title)  # this thread starts no other job
            if self._stopping.is_set():  # meanwhile: a new Spark takes its time
                reason = "it was stopped before it was started"
            else:
                orders = self._order(spark, msgspec.json.encode(order))
                spark.context.runJob(orders, run_in_task)  # an action of an RDD would name the stage itself
            self.check()
        except Exception as error:
            self.check()
            reason = self._in_words(error)
        else:
            reason = reason if self._failed is None else self._in_words(self._failed.error)
        self._end_process()
        return reason

    def _in_words(self, error: Exception | str) -> str:
        if self._stopping.is_set():
            return "its Spark job was cancelled after it was requested to stop"
        if self._spark is None:
            return f"it could not be started: {in_words(error)}"
        if not self._spark.lives:
            return "Spark has ended (its JVM or its context), and its workers with it"
        if self._failed is not None:
            error = self._failed.error
        host, where = self._failed_at(error)
        if self._spark.placement is not None:
            self._failed_on = host
        unusable = unusable_python(error, str(self._spark.context.pythonExec))
        if unusable is not None:
            self._hopeless = True
            return unusable
        return f"its Spark job failed{where}: {in_words(error)}"

    def _failed_at(self, error: Exception | str) -> tuple[str, str]:
        """The host of its failed task, and the words for it; both empty if it failed nowhere."""
        task = failed_task(error) if self._failed is None else self._failed
        return (task.host, f" on {task.host}, executor {task.executor}") if task is not None else ("", "")

    def _order(self, spark: LiveSpark, text: bytes) -> RDD[bytes]:
        if spark.placement is None:
            return spark.context.parallelize([text], 1)
        cores = cpu_threads(Configuration(self._spec.config))
        return spark.placement.order(text, cores=cores, avoid={*self._spec.avoid, *self._doubted()})

    def _end_process(self) -> None:
        """Ends the worker's process: Spark reports a cancelled job seconds before it kills the process."""
        pid = self._claims.withdraw(self._spec.id) if self._claims is not None else None
        # a pid that is not below the JVM may have been reused
        if pid is not None and self._spark is not None and pid in below(self._spark.jvm_pid):
            Processes([pid]).end(PROCESS_EXIT_S)


def _not_listened(_worker: TaskManagerId, _reason: str) -> None:
    """Nobody listens yet."""
