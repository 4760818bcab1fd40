"""Says that a worker waits for Spark to give it a place, and what Spark has.

Spark waits for executors without end and without an error: after the restart of a master that remembers no
application, when all cores are taken, or in a session of the program with few threads.
"""

from __future__ import annotations

import logging
from typing import Final

from unistream.base.clock import Clock, SystemClock
from unistream.base.ids import TaskManagerId
from unistream.host.spark_application import LiveSpark
from unistream.host.spark_master import local_cores
from unistream.host.spark_status import SparkExecutor, SparkStatus, live_executors

FIRST_MS: Final = 15_000  # an executor starts within some seconds
AGAIN_MS: Final = 60_000

_LOG: Final = logging.getLogger("unistream.host")


class PlaceWait:
    """The wait from the order of a worker until Spark has started its task. `is_pending`: it has not yet."""

    def __init__(self, worker: TaskManagerId, clock: Clock | None = None) -> None:
        self._worker = worker
        self._clock = clock or SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._next_ms = self._began_ms + FIRST_MS
        self.is_pending = True

    def look(self, spark: LiveSpark, status: SparkStatus) -> None:
        """Logs a warning after 15 s, and each minute from then on."""
        if any(stage.running or stage.finished for stage in status.stages()):
            self.is_pending = False
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + AGAIN_MS
        is_local = spark.placement is None
        executors = [] if is_local else live_executors(spark.context)
        _LOG.warning(
            "event=worker_waits_for_spark task_manager=%s waited_s=%d reason=%r",
            self._worker,
            (now_ms - self._began_ms) // 1000,
            lacking(str(spark.context.master), executors, is_local=is_local),
        )


def lacking(master: str, executors: list[SparkExecutor], *, is_local: bool) -> str:
    """Why Spark may have no place for a worker."""
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
    return f"{master} has {len(executors)} executors ({hosts}), which run {busy} tasks on {cores} cores"
