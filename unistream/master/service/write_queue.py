"""What waits to be written to the metadata: in order, bounded, and nothing twice. Pure.

A fact (a job, a commit, a savepoint, a leader) is never dropped. Of the archives of ended jobs, which are
large, the newest wait. Statistics are: first the attempts of
tasks, then snapshots in progress, then other checkpoints, each oldest first. A newer state of the same row
takes the place of the one that waits. States and exceptions of one job are kept by number, since the
metadata keep no more of them either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from unistream.base.ids import JobId
from unistream.base.limits import MIB

STATISTICS_MAX: Final = 100_000  # all attempts of the largest job, some times over: 100 MB
OF_JOB_MAX: Final = 1_000  # states, exceptions and events, each, of one job
ARCHIVES_BYTES_MAX: Final = 64 * MIB  # of all jobs that ended while the database was away
BATCH_MAX: Final = 1_000  # rows that are written together


class WriteKind(Enum):
    """What is written. Values are names of the counters of what was dropped."""

    EPOCH = "epochs"
    CLUSTER = "clusters"
    LEFT = "jobs_left_behind"
    JOB = "jobs"
    STATE = "states"
    GRAPH = "graphs"
    COMMIT = "commits"
    SAVEPOINT = "savepoints"
    ARCHIVE = "archives"
    ARTIFACT = "artifacts"
    EXCEPTION = "exceptions"
    EVENT = "events"
    CHECKPOINT = "checkpoints"
    TRIGGERED = "checkpoints_in_progress"
    ATTEMPT = "attempts"


STATISTICS: Final = (WriteKind.ATTEMPT, WriteKind.TRIGGERED, WriteKind.CHECKPOINT)
"""The kinds that may be lost, in the order in which they are dropped."""

LIMITED: Final = (WriteKind.STATE, WriteKind.EXCEPTION, WriteKind.EVENT)

Merge = Callable[[Any, Any], Any]


def newer(_waiting: Any, new: Any) -> Any:
    """The newer state of a row replaces the one that waits."""
    return new


@dataclass(slots=True, eq=False)
class QueuedWrite:
    """One write.

    Attributes:
        row: What is the same for two entries of one row; None: nothing replaces it.
        merge: The content of this entry from that of one that waits for the same row, and its own.
        after: Called when the write was tried, or will not be soon.
        size: Of an archive, in bytes.
    """

    kind: WriteKind
    job: JobId | None
    content: Any
    row: Hashable = None
    merge: Merge = newer
    after: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0


class WriteQueue:
    """The entries that wait, and those that were taken to be written. Not thread-safe."""

    def __init__(self, statistics_max: int = STATISTICS_MAX, of_job_max: int = OF_JOB_MAX) -> None:
        self._statistics_max = statistics_max
        self._of_job_max = of_job_max
        self._waiting: dict[QueuedWrite, None] = {}
        self._by_row: dict[tuple[JobId | None, Hashable], QueuedWrite] = {}
        self._of_kind: dict[WriteKind, dict[QueuedWrite, None]] = {kind: {} for kind in STATISTICS}
        self._of_job: dict[tuple[WriteKind, JobId | None], dict[QueuedWrite, None]] = {}
        self._archives: dict[QueuedWrite, None] = {}
        self._archives_bytes = 0
        self._taken: list[QueuedWrite] = []
        self.dropped: Counter[WriteKind] = Counter()

    def __len__(self) -> int:
        return len(self._taken) + len(self._waiting)

    def put(self, entry: QueuedWrite) -> None:
        """Puts an entry at the end, or in the place of an older state of its row."""
        waiting = self._by_row.get((entry.job, entry.row)) if entry.row is not None else None
        if waiting is None:
            self._add(entry)
        else:
            self._replace(waiting, entry)
        self._limit(entry)

    def take(self) -> Sequence[QueuedWrite]:
        """The first entry, or the first ones if they are attempts; the same again until `done`."""
        if not self._taken:
            for entry in self._waiting:
                batched = not self._taken or (
                    entry.kind is WriteKind.ATTEMPT is self._taken[0].kind and len(self._taken) < BATCH_MAX
                )
                if not batched:
                    break
                self._taken.append(entry)
            for entry in self._taken:
                self._remove(entry)
        return tuple(self._taken)

    def done(self) -> None:
        """What was taken is written, or never will be."""
        self._taken = []

    def release_all(self) -> Sequence[Callable[[], None]]:
        """What is to be called once: nobody should wait for these writes any longer."""
        calls = []
        for entry in (*self._taken, *self._waiting):
            calls += entry.after
            entry.after = []
        return calls

    # --- steps ------------------------------------------------------------------------------------

    def _add(self, entry: QueuedWrite) -> None:
        self._waiting[entry] = None
        self._index(entry)

    def _index(self, entry: QueuedWrite) -> None:
        if entry.row is not None:
            self._by_row[entry.job, entry.row] = entry
        if entry.kind in STATISTICS:
            self._of_kind[entry.kind][entry] = None
        if entry.kind in LIMITED:
            self._of_job.setdefault((entry.kind, entry.job), {})[entry] = None

        if entry.size:
            self._archives[entry] = None
            self._archives_bytes += entry.size

    def _unindex(self, entry: QueuedWrite) -> None:
        if entry.size:
            del self._archives[entry]
            self._archives_bytes -= entry.size
        if entry.row is not None:
            del self._by_row[entry.job, entry.row]
        if entry.kind in STATISTICS:
            del self._of_kind[entry.kind][entry]
        if entry.kind in LIMITED:
            of_job = self._of_job[entry.kind, entry.job]
            del of_job[entry]
            if not of_job:
                del self._of_job[entry.kind, entry.job]

    def _remove(self, entry: QueuedWrite) -> None:
        del self._waiting[entry]
        self._unindex(entry)

    def _replace(self, waiting: QueuedWrite, entry: QueuedWrite) -> None:
        """The entry that waits keeps its place, and becomes what the new one is."""
        self._unindex(waiting)
        waiting.kind, waiting.size = entry.kind, entry.size
        waiting.content = entry.merge(waiting.content, entry.content)
        waiting.after += entry.after
        entry.after = []
        self._index(waiting)

    def _limit(self, entry: QueuedWrite) -> None:
        of_job = self._of_job.get((entry.kind, entry.job), {})
        if len(of_job) > self._of_job_max:
            self._drop(next(iter(of_job)))
        while self._archives_bytes > ARCHIVES_BYTES_MAX:
            self._drop(next(iter(self._archives)))
        while sum(map(len, self._of_kind.values())) > self._statistics_max:
            self._drop(next(e for kind in STATISTICS for e in self._of_kind[kind]))

    def _drop(self, entry: QueuedWrite) -> None:
        self._remove(entry)
        self.dropped[entry.kind] += 1
        for call in entry.after:
            call()
        entry.after = []
