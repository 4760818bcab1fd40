"""Splits of a source with phases: all of the history is read before anything of the live source. Pure.

    HISTORY ── no split is unassigned, and all that may hold one asked for the live phase ──► READ
       ▲                                                                                       │
       └── a subtask goes back to a checkpoint from before that ──────── an aligned checkpoint ▼ is complete
                                                                                              LIVE

Each phase has a `SplitAssigner` of its own; the splits of both are found at the start of the job. A subtask
begins every attempt in the history and asks for the live phase when it has sent on all that it had: the
request itself is the report. Until the switch live splits stay here: they hold back no watermark and are in
the state of the master.

A row of the history may still be on its way when another subtask could send a live row of the same key. So
where there are checkpoints, one that is aligned separates the phases: when it is complete, every task has
processed the history. Without checkpoints READ is LIVE, and only the sources are in order.

Which subtasks may hold history: those that were given some, and after a restore from before the switch all of
them. One that was never given a split holds nothing, so the switch does not wait for a subtask of a BATCH job
that has no slot yet; there also a pushed history is pulled, or it would wait for its owner.

A snapshot that is taken after the switch contains no history, neither here nor in a reader: all had asked
before it began. A subtask that restarts alone from an earlier one gets its history again; the others keep
what they read, as in Flink, and the newest event time of the history stays that of the first switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.core.checkpoint.split_assignment import (
    NO_ORIGINS,
    Assignment,
    SplitAssigner,
    StoredSplits,
    stored_splits,
)
from unistream.model.graph import HISTORY, LIVE, SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits, Unread

PHASED_FORMAT = 1


class _PhasedAssignerState(msgspec.Struct, frozen=True, kw_only=True):
    """Wire form. `history`: empty when all of it was read. `switched`: that was so before, and `newest`, the
    greatest event time of the history, is final. `passed`: all tasks have processed the history."""

    phased: int
    history: bytes
    live: bytes
    switched: bool
    passed: bool
    newest: int | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_PhasedAssignerState)


def stored_live_splits(state: bytes) -> StoredSplits | None:
    """The splits of the live phase in a `PhasedAssigner.snapshot`; None: some history was not read."""
    decoded = _DECODER.decode(state)
    return None if decoded.history else stored_splits(decoded.live)


class PhasedAssigner:
    """The splits of one source with phases that no reader has yet.

    Args:
        batch: Of a BATCH job, whose subtasks do not all run at the same time.
        separated: A checkpoint separates the phases.
    """

    def __init__(
        self, info: SourceInfo, parallelism: int, *, batch: bool = False, separated: bool = False
    ) -> None:
        history, live = info.phases
        self._live_info = live
        self._history_info = msgspec.structs.replace(history, pull=True) if batch else history
        self._parallelism = parallelism
        self._history = SplitAssigner(self._history_info, parallelism)
        self._live = SplitAssigner(live, parallelism)
        self._holders: set[int] = set()  # subtasks that may have history that they have not sent on
        self._newest: int | None = None
        self._switched = False  # the history was read before; a subtask may have gone back since
        self._has_base = False  # a reader that restarts alone goes back to a snapshot, not to the start
        self._is_durable = False  # that snapshot is from after the end of the history
        self._read_marks: dict[int, bool] = {}  # snapshots in progress without history, and if one is aligned
        self._is_separated = separated
        self._passed = False

    @classmethod
    def restore(
        cls,
        info: SourceInfo,
        parallelism: int,
        state: bytes,
        *,
        batch: bool = False,
        separated: bool = False,
    ) -> PhasedAssigner:
        """An assigner as `snapshot` has stored it, maybe for another parallelism. Splits that readers had are
        in their state.

        Raises:
            CorruptSnapshot: not the state of an assigner of this format.
        """
        try:
            decoded = _DECODER.decode(state)
        except UNDECODABLE as error:
            raise CorruptSnapshot(
                f"state of the split assigner of {info.connector!r} is not that of a source with a history "
                f"and a live phase ({error}); give the source another uid to begin again"
            ) from error
        if decoded.phased != PHASED_FORMAT:
            raise CorruptSnapshot(
                f"state of a phased split assigner has format {decoded.phased}, this version reads "
                f"{PHASED_FORMAT}"
            )
        assigner = cls(info, parallelism, batch=batch, separated=separated)
        assigner._live = SplitAssigner.restore(assigner._live_info, parallelism, decoded.live)
        assigner._newest = decoded.newest
        assigner._switched = decoded.switched
        assigner._passed = decoded.passed
        assigner._has_base = True
        if decoded.history:
            assigner._history = SplitAssigner.restore(assigner._history_info, parallelism, decoded.history)
            assigner._holders = set(range(parallelism))
        else:
            assigner._history.discovered(())
            assigner._is_durable = True
        return assigner

    @classmethod
    def after_history(
        cls, info: SourceInfo, parallelism: int, found: FoundSplits, newest: int | None
    ) -> PhasedAssigner:
        """All of the history was read and processed, and nothing of the live source.

        Args:
            info: Of the source.
            parallelism: Of its vertex.
            found: All splits of both phases, as they were found when the history was begun.
            newest: The greatest event time of the history, if the fence is found there.
        """
        assigner = cls(info, parallelism)
        live = [split for split in found.splits if split.phase == LIVE]
        assigner._history.discovered(())
        assigner._live.discovered(live, found.origin, found.position, found.origins)
        assigner._newest = newest
        assigner._switched = assigner._passed = True
        return assigner

    def snapshot(self, mark: int, *, aligned: bool = True) -> bytes:
        """State without the splits that were taken. `mark`: id of the snapshot; ids grow. `aligned`: it is
        complete when all rows that are before it have been processed."""
        history = self._history.snapshot(mark)
        if self.is_read:
            self._read_marks[mark] = aligned
        return _ENCODER.encode(
            _PhasedAssignerState(
                phased=PHASED_FORMAT,
                history=b"" if self.is_read else history,
                live=self._live.snapshot(mark),
                switched=self._switched,
                passed=self._passed or (self.is_read and aligned),
                newest=self._newest if self._switched else None,
            )
        )

    @property
    def is_read(self) -> bool:
        """All of the history was read."""
        return not self._history.needs_discovery and not self._history.unassigned and not self._holders

    @property
    def is_live(self) -> bool:
        """The live source may be read."""
        return self.is_read and (self._passed or not self._is_separated)

    @property
    def found(self) -> KnownSplits | None:
        """What a discovery must know of those before it; None: it is the first."""
        found = self._live.found
        if found is None:
            return None
        return msgspec.structs.replace(found, ids=found.ids | frozenset(self._history.known))

    @property
    def unassigned(self) -> tuple[Split, ...]:
        """Splits that no reader was given yet."""
        return self._history.unassigned + self._live.unassigned

    @property
    def unread(self) -> Unread:
        """What is unread in both phases, as `SplitAssigner.unread`."""
        return self._history.unread + self._live.unread

    @property
    def needs_discovery(self) -> bool:
        """Whether the splits of a phase are to be listed, as `SplitAssigner.needs_discovery`."""
        return self._history.needs_discovery or self._live.needs_discovery

    def discovered(
        self,
        splits: Iterable[Split],
        origin: str = "",
        position: str = "",
        origins: Mapping[str, str] = NO_ORIGINS,
    ) -> None:
        """All splits of both phases that exist now. The rest is of the live source."""
        found = list(splits)
        self._history.discovered(split for split in found if split.phase == HISTORY)
        self._live.discovered((split for split in found if split.phase == LIVE), origin, position, origins)
        self._note_switch()

    def ready(self, index: int) -> None:
        """Subtask `index` runs (a new attempt). It begins in the history."""
        self._history.ready(index)

    def request(self, index: int, phase: int = HISTORY, newest: int | None = None) -> None:
        """Subtask `index` has room for a split of `phase`. `LIVE`: it has sent on all of its history, whose
        greatest event time is `newest`; None: it had no rows, or the time is not needed."""
        if phase == HISTORY:
            self._history.request(index)
            return
        if not self._switched and newest is not None:
            self._newest = newest if self._newest is None else max(self._newest, newest)
        self._holders.discard(index)
        self._live.ready(index)
        self._live.request(index)
        self._note_switch()

    def take(self) -> list[Assignment]:
        """What can be given out now; it is the reader's from here on."""
        given = self._history.take()
        self._holders.update(assignment.index for assignment in given if assignment.splits)
        if self.is_live:
            given += [replace(one, phase=LIVE, newest=self._newest) for one in self._live.take()]
        return given

    def completed(self, mark: int) -> None:
        """The snapshot `mark` is durable: what was given out before it is in the readers' state there."""
        self._has_base = True
        self._history.completed(mark)
        self._live.completed(mark)
        self._is_durable = mark in self._read_marks
        self._passed = self._passed or self._read_marks.get(mark, False)
        self._read_marks = {read: aligned for read, aligned in self._read_marks.items() if read > mark}

    def reader_reset(self, index: int) -> None:
        """Subtask `index` goes back to the last completed checkpoint (or to the start)."""
        self._history.reader_reset(index)
        self._live.reader_reset(index)
        if self._has_base and not self._is_durable:
            self._holders.add(index)
        else:
            self._holders.discard(index)  # it comes back without history: what it had is unassigned again

    def finished(self, index: int) -> None:
        """Subtask `index` had finished in the snapshot that it starts from: it holds nothing."""
        self._holders.discard(index)
        self._note_switch()

    def _note_switch(self) -> None:
        """The first time: from here on the newest event time is fixed."""
        self._switched = self._switched or self.is_read
