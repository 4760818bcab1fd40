"""The outbox of the metadata at the port `master.ports.Records`: commits get a number, readers go on behind
the last number that they have seen, so a smaller one that appears later is never read (I16).

The counter is a row that each transaction locks until its end, as in `unistream.metadata`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from unistream.base.ids import LeaderEpoch
from unistream.port.metadata import CommitRecord
from unistream.testing.sim.shells import SimCatalogue
from unistream.testing.sim.store import SimStore
from unistream.testing.sim.world import Process, World

READ_MS: Final = 40.0


class Outbox:
    """All of a run, with one reader.

    Attributes:
        rows: Number -> commit, as readers see them.
        read: What the reader has seen.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 0
        self._waiting: deque[tuple[Process, CommitRecord]] = deque()
        self._holder: Process | None = None
        self.rows: dict[int, CommitRecord] = {}
        self.read: dict[int, CommitRecord] = {}
        self._read_to = 0
        world.at(READ_MS, self._look)

    def begin(self, process: Process, commit: CommitRecord) -> None:
        """A transaction of `process` records `commit`, and takes the next number."""
        self._waiting.append((process, commit))
        self._lock()

    def _lock(self) -> None:
        """The next transaction has the counter for itself, until its end."""
        if self._holder is None and self._waiting:
            self._holder, commit = self._waiting.popleft()
            self._run(self._holder, commit, self._next_number())

    def _next_number(self) -> int:
        self._last += 1
        return self._last

    def _run(self, process: Process, commit: CommitRecord, number: int) -> None:
        def end() -> None:
            if process.is_alive:
                self.rows[number] = commit
            else:
                self._world.sometimes("a transaction of the metadata died with its master")
            self._release()

        self._world.at(self._world.between(1, 60), end)

    def _release(self) -> None:
        self._holder = None
        self._lock()

    def _look(self) -> None:
        """The reader goes on."""
        self._world.at(READ_MS, self._look)
        for number in sorted(number for number in self.rows if number > self._read_to):
            self.read[number] = self.rows[number]
            self._read_to = number

    def check(self) -> None:
        """The reader has seen what is there. Raises Violation."""
        self._look()
        missed = sorted(set(self.rows) - set(self.read))
        if missed:
            raise self._world.violated(
                f"I16: commits {missed[:5]} appear in the outbox behind its reader, who never sees them"
            )


class OutboxRecords(SimCatalogue):
    """History of one leader, of which commits are read."""

    def __init__(self, store: SimStore, epoch: LeaderEpoch, outbox: Outbox, process: Process) -> None:
        super().__init__(store, epoch)
        self._outbox = outbox
        self._process = process

    def record_commit(self, record: object) -> None:
        assert isinstance(record, CommitRecord), record
        self._outbox.begin(self._process, record)
