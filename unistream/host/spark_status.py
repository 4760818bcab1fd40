"""The state of Spark's executors, stages and tasks, from the store that Spark's own UI reads (with or without
a UI), and the names of stages.

Neither is public API: all use of it is here (`tests/integration/test_batch_on_spark.py` shows what it has to
do). Each value is one call of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.traceback_utils import SCCallSiteSync

_MASTER_STATE: Final = "org.apache.spark.deploy.DeployMessages$RequestMasterState$"
_DRIVER: Final = "driver"  # its name among the executors
TASKS_MAX: Final = 256  # of a stage: the states of single tasks are not read beyond that


@dataclass(frozen=True, slots=True)
class SparkTask:
    """An attempt of a task. `place`: its partition; `state`: RUNNING, SUCCESS, FAILED or KILLED; `executor`,
    `host`: where, by Spark's names."""

    id: int
    place: int
    state: str
    executor: str
    host: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class SparkStage:
    """The last attempt of a stage, which Spark repeats for places whose output was lost. `shuffle_bytes`:
    written."""

    id: int
    attempt: int
    tasks: int
    running: int
    finished: int
    failed: int
    shuffle_bytes: int


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """A process that runs tasks: `cores` at a time, of which `active` are running now."""

    id: str
    host: str
    cores: int
    active: int


def live_executors(context: SparkContext) -> list[SparkExecutor]:
    """The executors of a cluster without the driver, which runs no tasks there."""
    listed: Any = context._jsc.sc().statusStore().executorList(True)
    return [
        SparkExecutor(
            id=str(executor.id()),
            host=host_of(str(executor.hostPort())),
            cores=int(executor.totalCores()),
            active=int(executor.activeTasks()),
        )
        for executor in _each(listed)
        if str(executor.id()) != _DRIVER
    ]


def leaving_executors(context: SparkContext, executors: Iterable[str]) -> frozenset[str]:
    """The part of `executors` that is decommissioned: these get no more tasks, and end when the last one has,
    or with their host."""
    scheduler: Any = context._jsc.sc().taskScheduler()
    return frozenset(one for one in executors if scheduler.getExecutorDecommissionState(one).isDefined())


def is_known(context: SparkContext) -> bool | None:
    """Whether the leading standalone master knows the application: one that was restarted without recovery
    knows none, gives it no executors, and does not say so. None: nobody answers, or it is no such master."""
    scheme, _, places = str(context.master).partition("://")
    if scheme != "spark":
        return None
    answers = [_known_at(context, f"spark://{place}") for place in places.split(",")]
    return None if all(answer is None for answer in answers) else any(answers)


def _known_at(context: SparkContext, url: str) -> bool | None:
    """None: it does not answer, or does not lead."""
    jvm: Any = context._jvm
    try:
        request = jvm.java.lang.Class.forName(_MASTER_STATE).getField("MODULE$").get(None)
        environment = context._jsc.sc().taskScheduler().backend().rpcEnv()
        master = environment.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress.fromSparkURL(url), "Master")
        anything = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.Object"))
        state = master.askSync(request, anything)
        if str(state.status()) != "ALIVE":
            return None
        return any(str(application.id()) == context.applicationId for application in state.activeApps())
    except Py4JJavaError:
        return None


def host_of(host_port: str) -> str:
    """The host of an executor. It has a port only as soon as its block manager is known, a moment after it
    counts.

    >>> host_of("node-1:35711"), host_of("node-1"), host_of("[::1]:35711"), host_of("[::1]")
    ('node-1', 'node-1', '[::1]', '[::1]')
    """
    host, _, port = host_port.rpartition(":")
    return host if port.isdecimal() else host_port


class SparkStatus:
    """The stages of one job group."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._tracker = context.statusTracker()
        self._jvm_store: Any = context._jsc.sc().statusStore()
        self._group = group
        self._ids: list[int] = []  # known as soon as Spark has the job

    def stages(self) -> list[SparkStage]:
        """The stages that Spark knows by now, in the order in which they run."""
        return [stage for one in self._stage_ids() if (stage := self._stage(one)) is not None]

    def tasks(self, stage: SparkStage) -> list[SparkTask]:
        """Its attempts of tasks; none if there are more than `TASKS_MAX` tasks."""
        if stage.tasks > TASKS_MAX:
            return []
        found = self._jvm_store.taskList(stage.id, stage.attempt, 4 * TASKS_MAX)
        return [
            SparkTask(
                id=int(task.taskId()),
                place=int(task.partitionId()),  # `index` counts the tasks of a stage's attempt
                state=str(task.status()),
                executor=str(task.executorId()),
                host=str(task.host()),
                error=str(task.errorMessage().get()) if task.errorMessage().isDefined() else "",
            )
            for task in _each(found)
        ]

    def running_task(self) -> SparkTask | None:
        """A task of the group that runs, by what Spark has heard last of its executor; None: there is
        none."""
        running = (task for stage in self.stages() for task in self.tasks(stage) if task.state == "RUNNING")
        return next(running, None)

    def failed_tasks(self) -> list[SparkTask]:
        """Attempts that have failed, of all stages; two calls for each stage without any."""
        failed = [one for one in self._stage_ids() if (last := self._last(one)) and last.numFailedTasks()]
        stages = [stage for one in failed if (stage := self._stage(one)) is not None]
        return [task for stage in stages for task in self.tasks(stage) if task.state == "FAILED"]

    def _stage_ids(self) -> list[int]:
        if not self._ids:
            jobs = self._tracker.getJobIdsForGroup(self._group)
            infos = [info for job in jobs if (info := self._tracker.getJobInfo(job)) is not None]
            self._ids = sorted({stage for info in infos for stage in info.stageIds})
        return self._ids

    def _last(self, number: int) -> Any:
        """None: it has not been submitted yet."""
        try:
            return self._jvm_store.lastStageAttempt(number)
        except Py4JJavaError:
            return None

    def _stage(self, number: int) -> SparkStage | None:
        found = self._last(number)
        if found is None:
            return None
        return SparkStage(
            id=number,
            attempt=int(found.attemptId()),
            tasks=int(found.numTasks()),
            running=int(found.numActiveTasks()),
            finished=int(found.numCompleteTasks()),
            failed=int(found.numFailedTasks()),
            shuffle_bytes=int(found.shuffleWriteBytes()),
        )


@contextmanager
def stage_name(context: SparkContext, name: str) -> Iterator[None]:
    """Spark names stages after the place in the program where their data sets were made; those made in here
    are called `name`. pyspark's own names are for the outermost call only, which this is."""
    SCCallSiteSync._spark_stack_depth += 1
    jvm_context: Any = context._jsc
    jvm_context.setCallSite(name)
    try:
        yield
    finally:
        SCCallSiteSync._spark_stack_depth -= 1
        jvm_context.setCallSite(None)


def _each(sequence: Any) -> Iterator[Any]:
    for place in range(int(sequence.size())):
        yield sequence.apply(place)
