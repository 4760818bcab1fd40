"""Which subtask of a source reads which split. Pure; one `SplitAssigner` per source vertex.

Requests come in (a subtask is ready, a subtask requests more, splits were found); `take` returns what can be
assigned now. A caller that holds back assignments while a snapshot is being triggered (FLINK-21996) does not
call `take`, and a split is always in exactly one place: here, or (once taken) with its reader.

Push: the split at position k of all ids ever seen goes to subtask k mod parallelism. Positions are given in
the natural order of the ids of each discovery and never change, so that partition p of a topic goes to p mod
parallelism and a restart deals them out alike. Pull: first come, first served, in the order of event time as
far as that is known: by position if the source is declared to be in order, else by `Split.min_timestamp`.

Each assignment limits the watermark of its subtask, so that rows of splits that are not assigned yet are not
late when they are read. Pull: any subtask may get such a split, so the limit is the least of their
`min_timestamp` (minus 1); a split without one allows no watermark at all. In a source that is in order, what
follows is not earlier than what the subtask has read. Push: a subtask is limited until it has all splits that
the first discovery since the start has found.

What was given out since the last completed checkpoint is remembered (as Flink does): a reader
that restarts alone goes back to that checkpoint, whose state does not have those splits, so they return here.

The ids of a source whose discoveries continue at a position are forgotten once their splits are with readers
for good: a table that grows for years has more files than a checkpoint should hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.graph import HISTORY, SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import KnownSplits, Unread, UnreadSum, natural_key

ASSIGNER_FORMAT = 1
NO_ORIGINS: Final[Mapping[str, str]] = MappingProxyType({})


class _AssignerState(msgspec.Struct, frozen=True, kw_only=True):
    """Wire form of an assigner. `known`: all ids, in order of position. `discovered`: the first discovery is
    over, so that a split that is not known has come since. `origin`, `position`, `origins`: see
    `FoundSplits`."""

    format: int
    known: tuple[str, ...]
    unassigned: tuple[Split, ...]
    discovered: bool
    origin: str = ""  # not in states that were written before there was one
    position: str = ""  # so it is with this one
    origins: dict[str, str] = {}  # and this


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_AssignerState)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSplits:
    """What the state of an assigner says of its splits. `known`: ids of all that were ever found."""

    known: frozenset[str]
    unassigned: tuple[Split, ...]
    origin: str
    origins: Mapping[str, str]


def stored_splits(state: bytes) -> StoredSplits:
    """The splits in a `SplitAssigner.snapshot` of a source whose discoveries have no position."""
    decoded = _DECODER.decode(state)
    return StoredSplits(
        known=frozenset(decoded.known),
        unassigned=decoded.unassigned,
        origin=decoded.origin,
        origins=decoded.origins,
    )


@dataclass(frozen=True, slots=True)
class _GivenSplit:
    """A split that subtask `index` was given after snapshot `mark` had begun, and before the next one."""

    mark: int
    index: int
    split: Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Splits for subtask `index`. `no_more`, `watermark_limit`, `phase`, `newest`: see `AssignSplits`."""

    index: int
    splits: tuple[Split, ...]
    no_more: bool
    watermark_limit: int = MAX_WATERMARK
    phase: int = HISTORY
    newest: int | None = None


class SplitAssigner:
    """The splits of one source that no reader has yet."""

    def __init__(self, info: SourceInfo, parallelism: int) -> None:
        self._info = info
        self._parallelism = parallelism
        self._positions: dict[str, int] = {}  # of ids
        self._next_position = 0
        self._unassigned: deque[Split] = deque()
        self._discovered = False
        self._is_current = False  # there was a discovery since the start
        self._origin = ""
        self._origins: dict[str, str] = {}
        self._discovered_to = ""  # the position of the last discovery
        self._ready: list[int] = []  # push: subtasks that run and were not sent `no_more`
        self._waiting: deque[int] = deque()  # pull: subtasks with an open request, oldest first
        self._notified: set[int] = set()  # pull: subtasks that were sent `no_more`
        self._limits: dict[int, int] = {}  # the watermark limit that each subtask was sent
        self._unread = UnreadSum()  # in the unassigned
        self._given: list[_GivenSplit] = []  # since the last completed checkpoint
        self._mark = 0  # id of the last snapshot that was begun

    @classmethod
    def restore(cls, info: SourceInfo, parallelism: int, state: bytes) -> SplitAssigner:
        """An assigner as `snapshot` has stored it, maybe for another parallelism. Splits that readers had are
        in their state.

        Raises:
            CorruptSnapshot: not the state of an assigner of this format.
        """
        try:
            decoded = _DECODER.decode(state)
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"state of the split assigner of {info.connector!r}: {error}") from error
        if decoded.format != ASSIGNER_FORMAT:
            raise CorruptSnapshot(
                f"state of a split assigner has format {decoded.format}, this version reads {ASSIGNER_FORMAT}"
            )
        assigner = cls(info, parallelism)
        assigner._positions = {split_id: k for k, split_id in enumerate(decoded.known)}
        assigner._next_position = len(decoded.known)
        assigner._unassigned = deque(decoded.unassigned)
        assigner._discovered = decoded.discovered
        assigner._origin = decoded.origin
        assigner._origins = decoded.origins
        assigner._discovered_to = decoded.position
        assigner._sort()
        return assigner

    def snapshot(self, mark: int) -> bytes:
        """State without the splits that were taken. `mark`: id of the snapshot; ids grow."""
        self._mark = mark
        return _ENCODER.encode(
            _AssignerState(
                format=ASSIGNER_FORMAT,
                known=self.known,
                unassigned=self.unassigned,
                discovered=self._discovered,
                origin=self._origin,
                position=self._discovered_to,
                origins=self._origins,
            )
        )

    @property
    def known(self) -> tuple[str, ...]:
        """Ids of all splits ever seen and not forgotten, in order of position."""
        return tuple(self._positions)

    @property
    def found(self) -> KnownSplits | None:
        """What a discovery must know of those before it; None: it is the first."""
        if not self._discovered:
            return None
        return KnownSplits(
            ids=frozenset(self._positions),
            origin=self._origin,
            origins=dict(self._origins),
            position=self._discovered_to,
        )

    @property
    def unassigned(self) -> tuple[Split, ...]:
        """Splits that no reader was given yet."""
        return tuple(self._unassigned)

    @property
    def unread(self) -> Unread:
        """What is unread in splits that no reader was given yet."""
        return self._unread.unread if self._discovered else Unread(None, None)

    @property
    def needs_discovery(self) -> bool:
        """Nothing was discovered yet, or there may be more by now (an unbounded source after a restore)."""
        return not self._discovered or not self._info.bounded

    def discovered(
        self,
        splits: Iterable[Split],
        origin: str = "",
        position: str = "",
        origins: Mapping[str, str] = NO_ORIGINS,
    ) -> None:
        """The result of a discovery (see `FoundSplits`). Splits that are known already are not added again.
        An origin stays what it is once it is known."""
        self._origin = self._origin or origin
        self._origins |= {name: one for name, one in origins.items() if not self._origins.get(name)}
        self._discovered_to = position
        for split in sorted(splits, key=lambda split: natural_key(split.id)):
            if split.id not in self._positions:
                self._positions[split.id] = self._next_position
                self._next_position += 1
                self._unassigned.append(split)
        self._sort()
        self._discovered = self._is_current = True

    def _sort(self) -> None:
        self._unread = UnreadSum(self._unassigned)
        self._unassigned = deque(sorted(self._unassigned, key=self._rank))

    def _rank(self, split: Split) -> tuple[int, int]:
        """What allows no watermark comes first."""
        by_time = MIN_WATERMARK if self._info.in_order else _watermark_before(split)
        return by_time, self._positions[split.id]

    def ready(self, index: int) -> None:
        """Subtask `index` runs (a new attempt). One that pulls requests splits itself."""
        if not self._info.pull and index not in self._ready:
            self._ready.append(index)

    def request(self, index: int) -> None:
        """Subtask `index` has room for one more split. A repeated request is one request; one that comes
        again after `no_more` is none: its reader has ended, also if a split has come back since."""
        if self._info.pull and index not in self._waiting and index not in self._notified:
            self._waiting.append(index)

    def take(self) -> list[Assignment]:
        """What can be given out now; it is the reader's from here on."""
        if not self._discovered:
            return []
        given = self._take_pulled() if self._info.pull else self._take_pushed()
        self._given += [_GivenSplit(self._mark, a.index, split) for a in given for split in a.splits]
        return given

    def completed(self, mark: int) -> None:
        """The snapshot `mark` is durable: what was given out before it is in the readers' state there."""
        self._given = [given for given in self._given if given.mark >= mark]
        if self._discovered_to:
            here = {split.id for split in self._unassigned} | {given.split.id for given in self._given}
            self._positions = {split: k for split, k in self._positions.items() if split in here}

    def reader_reset(self, index: int) -> None:
        """Subtask `index` goes back to the last completed checkpoint (or to the start)."""
        back = [given.split for given in self._given if given.index == index]
        self._given = [given for given in self._given if given.index != index]
        self._unassigned.extend(back)
        self._sort()
        self._limits.pop(index, None)
        if index in self._ready:
            self._ready.remove(index)
        if index in self._waiting:
            self._waiting.remove(index)
        self._notified.discard(index)

    def _take_pulled(self) -> list[Assignment]:
        given = []
        while self._waiting and (self._unassigned or self._info.bounded):
            splits = (self._next(),) if self._unassigned else ()
            given.append(self._assignment(self._waiting.popleft(), splits, no_more=not splits))
        self._notified.update(assignment.index for assignment in given if assignment.no_more)
        return given + self._raised_limits(self._waiting)

    def _next(self) -> Split:
        split = self._unassigned.popleft()
        self._unread.without(split)
        return split

    def _take_pushed(self) -> list[Assignment]:
        owned: dict[int, list[Split]] = {index: [] for index in self._ready}
        left: deque[Split] = deque()
        for split in self._unassigned:  # once for all subtasks: there may be thousands of both
            owned.get(self._owner(split), left).append(split)
        given = []
        for index in self._ready:
            if owned[index] or self._info.bounded:
                given.append(self._assignment(index, tuple(owned[index]), no_more=self._info.bounded))
        if len(left) < len(self._unassigned):
            self._unassigned, self._unread = left, UnreadSum(left)
        if self._info.bounded:
            self._ready = []
        return given + self._raised_limits(self._ready)

    def _assignment(self, index: int, splits: tuple[Split, ...], *, no_more: bool) -> Assignment:
        self._limits[index] = self._watermark_limit
        return Assignment(index=index, splits=splits, no_more=no_more, watermark_limit=self._watermark_limit)

    def _raised_limits(self, indexes: Iterable[int]) -> list[Assignment]:
        """Assignments without splits that raise the watermark limit of subtasks that wait while the source is
        unbounded."""
        limit = self._watermark_limit
        return [
            self._assignment(index, (), no_more=False)
            for index in indexes
            if limit > self._limits.get(index, MIN_WATERMARK)
        ]

    @property
    def _watermark_limit(self) -> int:
        if not self._info.bounded and not self._is_current:
            return MIN_WATERMARK  # there may be splits that were added while the job was stopped
        if not self._info.pull or self._info.in_order or not self._unassigned:
            return MAX_WATERMARK
        return _watermark_before(self._unassigned[0])

    def _owner(self, split: Split) -> int:
        return self._positions[split.id] % self._parallelism


def _watermark_before(split: Split) -> int:
    """The greatest watermark behind which no row of the split is late."""
    return MIN_WATERMARK if split.min_timestamp is None else max(MIN_WATERMARK, split.min_timestamp - 1)
