"""Checks the messages that release stored results: I20, while the job runs.

A release without an answer may be lost. Its master repeats it, unless the worker is lost or the job has ended
by then, or it was sent RELEASE_TRIES times.
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


class PartitionReleases:
    """All of a run.

    Attributes:
        is_settled: (worker, job) -> no release has to be sent any more.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: Counter[_Key] = Counter()
        self._answered: set[_Key] = set()
        self.is_settled: Callable[[TaskManagerId, JobId], bool] = lambda _worker, _job: False

    def sent(self, worker: TaskManagerId, message: ReleasePartitions) -> None:
        """A release was sent to `worker`."""
        for attempt, edge in message.partitions:
            self._sent[worker, attempt, edge] += 1

    def answered(self, worker: TaskManagerId, message: ReleasePartitions) -> None:
        """The worker has released them; another copy of the message changes nothing."""
        self._answered.update((worker, *key) for key in message.partitions)

    def unanswered(self, process: Process, worker: TaskManagerId, message: ReleasePartitions) -> None:
        """`process`: the master that has sent it."""
        counts = {(worker, *key): self._sent[worker, *key] for key in message.partitions}
        self._world.sometimes("a release was not answered")
        self._world.at(AGAIN_MS, lambda: self._look(worker, message.job, counts), process)

    def _look(self, worker: TaskManagerId, job: JobId, counts: dict[_Key, int]) -> None:
        for key, count in counts.items():
            if self._sent[key] != count:
                self._world.sometimes("a release without an answer was repeated")
            elif key in self._answered:
                continue
            elif count < RELEASE_TRIES and not self.is_settled(worker, job):
                raise self._world.violated(
                    f"I20: {worker} did not answer the release of {key[1]}'s result, which is not repeated"
                )
