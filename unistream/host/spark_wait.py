"""Says that a worker waits for Spark to give it a place, and what Spark has.

Spark waits for executors without end and without an error: after the restart of a master that remembers no
application, when all cores are taken, or in a session of the program with few threads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from unistream.base.clock import Clock, SystemClock
from unistream.base.ids import TaskManagerId
from unistream.host.spark_application import LiveSpark
from unistream.host.spark_master import local_cores
from unistream.host.spark_status import SparkExecutor, SparkStatus, is_known, live_executors

FIRST_MS: Final = 15_000  # an executor starts within some seconds
AGAIN_MS: Final = 60_000

_LOG: Final = logging.getLogger("unistream.host")


class PlaceWait:
    """The wait from the order of a worker until Spark has started its task.

    Attributes:
        is_pending: It has not yet.
        reason: Why it may have no place, since the wait is long; "": it is not long, or over.
    """

    def __init__(self, worker: TaskManagerId, clock: Clock | None = None) -> None:
        self._worker = worker
        self._clock = clock or SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._next_ms = self._began_ms + FIRST_MS
        self.is_pending = True
        self.reason = ""

    @property
    def waited_s(self) -> int:
        return (self._clock.monotonic_ms() - self._began_ms) // 1000

    def end(self) -> None:
        """It has its place, or wants none any more."""
        self.is_pending, self.reason = False, ""

    def look(self, spark: LiveSpark, status: SparkStatus) -> None:
        """Logs a warning after 15 s, and each minute from then on."""
        if any(stage.running or stage.finished for stage in status.stages()):
            self.end()
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + AGAIN_MS
        is_local = spark.placement is None
        executors = [] if is_local else live_executors(spark.context)
        forgotten = not is_local and not executors and is_known(spark.context) is False
        self.reason = lacking(str(spark.context.master), executors, is_local=is_local, forgotten=forgotten)
        _LOG.warning(
            "event=worker_waits_for_spark task_manager=%s waited_s=%d reason=%r",
            self._worker,
            self.waited_s,
            self.reason,
        )


def waiting(waits: Iterable[PlaceWait]) -> list[str]:
    """What is said of workers that have waited for long: one sentence for all of them."""
    long = sorted((wait for wait in waits if wait.reason), key=lambda wait: -wait.waited_s)
    if not long:
        return []
    who = "a worker waits" if len(long) == 1 else f"{len(long)} workers wait"
    return [f"{who} for a place on Spark, for {long[0].waited_s} s: {long[0].reason}"]


def lacking(master: str, executors: list[SparkExecutor], *, is_local: bool, forgotten: bool = False) -> str:
    """Why Spark may have no place for a worker. `forgotten`: its master does not know the application."""
    if forgotten:
        return (
            f"{master} was restarted and does not know this application any more: start its session again, "
            "and run the master with spark.deploy.recoveryMode"
        )
    if is_local:
        return (
            f"{master} runs {local_cores(master)} tasks at a time, and as many workers: give the "
            "session more threads, or the workers more slots (taskmanager.numberOfTaskSlots)"
        )
    if not executors:
        return (
            f"{master} has given this application no executor: has the master workers with free cores and "
            "memory, and does it still know the application?"
        )
    busy, cores = sum(one.active for one in executors), sum(one.cores for one in executors)
    hosts = ", ".join(sorted({one.host for one in executors}))
    some = "1 executor" if len(executors) == 1 else f"{len(executors)} executors"
    return f"{master} has {some} ({hosts}), with {cores} cores and {busy} tasks that run"
