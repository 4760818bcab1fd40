"""Judge of the word that stored results can be deleted: I20, while the job goes on.

A release that nobody has answered may be lost. Whoever said it says it again, unless its worker is lost or
the job is over by then, or it was said RELEASE_TRIES times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId
from unistream.core.job import LOSS_GRACE_MS, RELEASE_TRIES
from unistream.model.messages import ReleasePartitions
from unistream.testing.sim.world import Process, World

AGAIN_MS: Final = LOSS_GRACE_MS + 500  # the mailboxes between take a few milliseconds

_Key = tuple[TaskManagerId, AttemptId, EdgeId]


class Releases:
    """All of a run.

    Attributes:
        is_settled: (worker, job) -> nobody has to be told any more.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._told: Counter[_Key] = Counter()
        self._answered: set[_Key] = set()
        self.is_settled: Callable[[TaskManagerId, JobId], bool] = lambda _worker, _job: False

    def told(self, worker: TaskManagerId, message: ReleasePartitions) -> None:
        """On its way to `worker`."""
        for attempt, edge in message.partitions:
            self._told[worker, attempt, edge] += 1

    def answered(self, worker: TaskManagerId, message: ReleasePartitions) -> None:
        """It has done so; another copy of the message, whose answer may be lost, changes nothing."""
        self._answered.update((worker, *key) for key in message.partitions)

    def unanswered(self, process: Process, worker: TaskManagerId, message: ReleasePartitions) -> None:
        """`process`: of the master that has said it."""
        counts = {(worker, *key): self._told[worker, *key] for key in message.partitions}
        self._world.sometimes("a release was not answered")
        self._world.at(AGAIN_MS, lambda: self._look(worker, message.job, counts), process)

    def _look(self, worker: TaskManagerId, job: JobId, counts: dict[_Key, int]) -> None:
        for key, count in counts.items():
            if self._told[key] != count:
                self._world.sometimes("a release that nobody answered was said again")
            elif key in self._answered:
                continue
            elif count < RELEASE_TRIES and not self.is_settled(worker, job):
                raise self._world.violated(
                    f"I20: {worker} was told to release what {key[1]} has produced, did not answer, and "
                    "is not told again"
                )
