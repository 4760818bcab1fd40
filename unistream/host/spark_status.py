"""The state of Spark's stages and tasks, from the store that Spark's own UI reads (with or without a UI), and
the names of stages.

Neither is public API: all use of it is here (`tests/integration/test_batch_on_spark.py` shows what it has to
do). Each value is one call of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.traceback_utils import SCCallSiteSync

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


class SparkStatus:
    """The stages of one job group."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._tracker = context.statusTracker()
        self._jvm_store: Any = context._jsc.sc().statusStore()
        self._group = group

    def stages(self) -> list[SparkStage]:
        """In the order in which they run; those that Spark knows by now."""
        ids: set[int] = set()
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            ids.update(info.stageIds if info is not None else ())
        return [stage for one in sorted(ids) if (stage := self._stage(one)) is not None]

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

    def failed_tasks(self) -> list[SparkTask]:
        """Attempts that have failed, of all stages."""
        return [
            task
            for stage in self.stages()
            if stage.failed
            for task in self.tasks(stage)
            if task.state == "FAILED"
        ]

    def _stage(self, number: int) -> SparkStage | None:
        try:
            found = self._jvm_store.lastStageAttempt(number)
        except Py4JJavaError:  # it has not been submitted yet
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
