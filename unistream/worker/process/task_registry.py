"""The attempts that a TaskManager knows: running, ended, and too old to start."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from unistream.base.ids import AttemptId, JobId, SubtaskId
from unistream.worker.task import TaskRun

ENDED_KEPT: Final = 10_000  # attempts, to recognise late messages


class TaskRegistry:
    """Thread-safe. An attempt is started at most once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[AttemptId, TaskRun] = {}
        self._ended: OrderedDict[AttemptId, None] = OrderedDict()
        self._newest: OrderedDict[tuple[JobId, SubtaskId], int] = OrderedDict()

    def add(self, task: TaskRun) -> bool:
        """False: this attempt or a newer one of its subtask is known already."""
        attempt = task.attempt
        subtask = (attempt.job, attempt.subtask)
        with self._lock:
            if attempt.attempt <= self._newest.get(subtask, -1):
                return False
            self._newest[subtask] = attempt.attempt
            self._newest.move_to_end(subtask)
            while len(self._newest) > ENDED_KEPT + len(self._running):
                self._newest.popitem(last=False)
            self._running[attempt] = task
        return True

    def forbid(self, attempt: AttemptId) -> None:
        """It was cancelled before its deployment, which must not start it any more."""
        subtask = (attempt.job, attempt.subtask)
        with self._lock:
            self._newest[subtask] = max(attempt.attempt, self._newest.get(subtask, -1))
            self._newest.move_to_end(subtask)

    def end(self, attempt: AttemptId) -> None:
        with self._lock:
            self._running.pop(attempt, None)
            self._ended[attempt] = None
            while len(self._ended) > ENDED_KEPT:
                self._ended.popitem(last=False)

    def running(self, attempt: AttemptId) -> TaskRun | None:
        with self._lock:
            return self._running.get(attempt)

    def all_running(self) -> list[TaskRun]:
        with self._lock:
            return list(self._running.values())

    def is_known(self, attempt: AttemptId) -> bool:
        """It runs here, or has run here."""
        with self._lock:
            return attempt in self._running or attempt in self._ended

    def older(self, attempt: AttemptId) -> list[AttemptId]:
        """Known earlier attempts of the same subtask."""
        with self._lock:
            return [
                known
                for known in (*self._running, *self._ended)
                if known.job == attempt.job
                and known.subtask == attempt.subtask
                and known.attempt < attempt.attempt
            ]
