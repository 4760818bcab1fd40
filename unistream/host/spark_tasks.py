"""What runs in the Python workers of Spark for a bounded job: one place of a stage, or the commit.

An error that another attempt may mend is raised, and Spark repeats the task, but for the last attempt. All
other results, failures too, are reported through an accumulator, of which Spark applies one update for each
task that ends without an error; a place behind a failed one makes nothing.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import AccumulatorParam, TaskContext

from unistream.base.allocator import choose_allocator
from unistream.base.breakpoints import refuse_breakpoints
from unistream.base.config import Configuration
from unistream.base.object_stores import use_store
from unistream.core.memory import thread_environment
from unistream.host.child import die_with_parent
from unistream.host.core_slots import core_slot
from unistream.host.executor import executor_host
from unistream.host.spark_executor import check_version
from unistream.model.bounded import BoundedJob, PlaceReport
from unistream.net.folder import PrivateFolder
from unistream.worker.exchange import PLACE_FOLDER_PREFIX, spill_roots

if TYPE_CHECKING:
    from pyspark import Accumulator, Broadcast, SparkContext

_RUN_SHIFT: Final = 40  # more attempts than a Spark context ever makes
COMMIT_STAGE: Final = -1
"""The number of the commit among the stages, in reports."""

Sent = tuple[int, bytes]
"""A piece on its way: the place that reads it, and its bytes."""


class Reported(msgspec.Struct, frozen=True, array_like=True):
    """A report of one attempt. `task`: Spark's id of it."""

    stage: int
    place: int
    task: int
    report: PlaceReport


Reports = dict[tuple[int, int], bytes]
"""Encoded `Reported` by stage and place: one that comes again, after a stage was repeated, replaces the
first."""


class _ReportsParam(AccumulatorParam[Reports]):  # type: ignore[misc]  # pyspark exports it without a type
    def zero(self, value: Reports) -> Reports:
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        return value1 | value2  # a new one: the driver reads the last while Spark's thread makes this


def reports_accumulator(context: SparkContext) -> Accumulator[Reports]:
    """Takes the reports of all tasks of a run."""
    return context.accumulator({}, _ReportsParam())


class StageTasks(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run have in common.

    Attributes:
        run: Its number.
        attempts_max: How often Spark runs a task that raises.
        tmp_dirs: `io.tmp.dirs`, for what does not fit into memory.
        slots_folder, slots: Of `core_slot`; empty: Spark itself bounds the number of tasks.
        version: Of the JobManager's unistream; "": all is of one installation.
    """

    run: int
    attempts_max: int
    tmp_dirs: str | None = None
    slots_folder: str = ""
    slots: int = 0
    version: str = ""


class StageRunner:
    """The function of one stage: `mapPartitionsWithIndex(StageRunner(...))`."""

    def __init__(
        self,
        job: Broadcast[bytes],
        reports: Accumulator[Reports],
        tasks: StageTasks,
        stage: int,
    ) -> None:
        self._job = job
        self._reports = reports
        self._tasks = tasks
        self._stage = stage

    def __call__(self, place: int, rows: Iterable[Sent] | Iterable[int]) -> Iterator[Sent]:
        from unistream.worker.bounded import BoundedRun, Piece

        with _in_task(self._tasks) as (task, folder):
            job = _job(self._job)
            attempt = BoundedRun(job).place(
                self._stage, place, attempt=_attempt(self._tasks, task), folder=folder
            )
            pieces = (msgspec.msgpack.decode(row[1], type=Piece) for row in rows if isinstance(row, tuple))
            is_last = task.attemptNumber() + 1 >= self._tasks.attempts_max
            for to, piece in attempt.run(pieces, is_last=is_last):
                yield to, msgspec.msgpack.encode(piece)
            assert attempt.report is not None, "it has ended"
            _report(self._reports, self._stage, place, task, attempt.report)


class CommitRunner:
    """The function of the commit: `mapPartitionsWithIndex(CommitRunner(...))` of one partition.

    Args:
        stores: The committers store what they would commit.
    """

    def __init__(
        self,
        job: Broadcast[bytes],
        staged: Broadcast[list[bytes]],
        reports: Accumulator[Reports],
        tasks: StageTasks,
        *,
        stores: bool,
    ) -> None:
        self._job = job
        self._stores = stores
        self._staged = staged
        self._reports = reports
        self._tasks = tasks

    def __call__(self, _place: int, _rows: Iterable[int]) -> Iterator[int]:
        from unistream.worker.bounded import BoundedRun, Piece, SubtaskFailed, may_help

        with _in_task(self._tasks) as (task, folder):
            staged = [msgspec.msgpack.decode(content, type=Piece) for content in self._staged.value]
            is_last = task.attemptNumber() + 1 >= self._tasks.attempts_max
            run = BoundedRun(_job(self._job))
            perform = run.store_committers if self._stores else run.commit
            reports = perform(staged, attempt=_attempt(self._tasks, task), folder=folder)
            for number, report in enumerate(reports):
                if report.failure is not None and not is_last and may_help(report.failure):
                    raise SubtaskFailed(report.failure)
                _report(self._reports, COMMIT_STAGE, number, task, report)
        yield from ()


@contextmanager
def _in_task(tasks: StageTasks) -> Iterator[tuple[TaskContext, Path]]:
    """This attempt of a Spark task, and a folder that is removed with it."""
    task = TaskContext.get()
    assert task is not None, "Spark runs it in a task"
    if tasks.version:
        check_version(executor_host(), tasks.version)
    if tasks.slots_folder:  # the terminal of a user, who gets the failure in one line
        logging.getLogger("unistream.worker.task.task").setLevel(logging.CRITICAL)
    choose_allocator()
    refuse_breakpoints()
    die_with_parent(os.getppid())
    root = spill_roots(tasks.tmp_dirs, tempfile.gettempdir())[0]
    folder = PrivateFolder(root, PLACE_FOLDER_PREFIX)  # removes those of processes that were killed
    try:
        with core_slot(tasks.slots_folder, tasks.slots):
            yield task, folder.path
    finally:
        folder.close()


def _job(sent: Broadcast[bytes]) -> BoundedJob:
    job = msgspec.msgpack.decode(sent.value, type=BoundedJob)
    config = Configuration(job.graph.config)
    os.environ.update(thread_environment(config))
    use_store(config)
    return job


def _attempt(tasks: StageTasks, task: TaskContext) -> int:
    """A number that no other attempt has, also of an earlier run in a Spark context that has ended."""
    return (tasks.run << _RUN_SHIFT) | int(task.taskAttemptId())


def _report(
    reports: Accumulator[Reports],
    stage: int,
    place: int,
    task: TaskContext,
    report: PlaceReport,
) -> None:
    content = msgspec.msgpack.encode(Reported(stage, place, int(task.taskAttemptId()), report))
    reports.add({(stage, place): content})
