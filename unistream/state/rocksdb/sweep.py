"""Deletes expired rows that are never touched again, bit by bit, round after round.

    RESTING ── half a time to live after its round began ──► GOING ── every row was checked ──► RESTING
    after_batch()   checks SWEEP_RATIO times as many rows as were written since the last time
    turn()          a completed checkpoint: checks SWEEP_ROWS_MIN, even if nothing is written any more

All on the task's thread: nothing can renew a row between reading and deleting it. A round goes through one
state after the other, from shard to shard in the order of keys, and remembers the next key, so that rows may
be added and removed meanwhile. The first shard of a round depends on the number of writes, so that a job that
restarts before a round ends still reaches all shards.

This bounds a state: a round over S rows takes S / SWEEP_RATIO writes, and leaves live rows and those written
meanwhile. So there are at most about three times as many rows as live ones, at a cost proportional to writing
(docs/decision/time-to-live.md). Deleted rows leave the files when RocksDB compacts them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Final

from unistream.base.clock import Clock
from unistream.state.rocksdb.api import rows_from
from unistream.state.rocksdb.keys import group_prefix
from unistream.state.rocksdb.shards import Groups
from unistream.state.rocksdb.store import Store
from unistream.state.rocksdb.values import expiry_of

SWEEP_RATIO: Final = 2  # rows that are checked for each that is written; must be more than 1
SWEEP_ROWS_MIN: Final = 4_096  # about 3 ms
STEP_ROWS_MIN: Final = 256  # fewer are postponed: an iterator costs as much as a few rows


@dataclass(slots=True)
class _Round:
    """A state with a time to live.

    Attributes:
        family: Name of its column family.
        began_ms: When its latest round began; None: there was none.
        parts: The rest of this round: (key groups of a shard, the first key), in order; empty: it rests.
    """

    family: str
    ttl_ms: int
    began_ms: int | None = None
    parts: list[tuple[Groups, bytes]] = field(default_factory=list)

    def rests(self, now_ms: int) -> bool:
        if self.began_ms is None:
            return False
        return not self.parts and now_ms < self.began_ms + max(1, self.ttl_ms // 2)


class TtlSweep:
    """Deletes expired rows of the states of a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._rounds: list[_Round] = []  # the one in progress, or that has rested longest, first
        self._written = 0
        self._owed = 0

    def add(self, family: str, ttl_ms: int) -> None:
        if not self._rounds:
            self._written = self._store.written()
        self._rounds.append(_Round(family, ttl_ms))

    def after_batch(self) -> None:
        """Checks some rows, in proportion to those written since the last time."""
        if not self._rounds:
            return
        written = self._store.written()
        self._owed += SWEEP_RATIO * (written - self._written)
        self._written = written
        if self._owed >= STEP_ROWS_MIN:
            self._step()

    def turn(self) -> None:
        """Checks some rows, whatever was written."""
        if self._rounds:
            self._owed += SWEEP_ROWS_MIN
            self._step()

    def _step(self) -> None:
        now_ms = self._clock.wall_ms()
        while self._owed > 0:
            due = next((one for one in self._rounds if not one.rests(now_ms)), None)
            if due is None:
                break
            if not due.parts:
                self._begin(due, now_ms)
            if due.parts:
                self._advance(due, now_ms)
            if not due.parts:
                self._rounds.remove(due)
                self._rounds.append(due)
        self._owed = 0
        self._written = self._store.written()  # rows deleted here do not count

    def _begin(self, due: _Round, now_ms: int) -> None:
        shards = [shard.groups for shard, _ in self._store.shards.opened()]
        first = self._written % len(shards) if shards else 0
        due.began_ms = now_ms
        due.parts = [(groups, group_prefix(groups[0])) for groups in shards[first:] + shards[:first]]

    def _advance(self, due: _Round, now_ms: int) -> None:
        """Checks as many rows as are owed, in one shard."""
        groups, first = due.parts[0]
        database = self._store.shards.of_group(groups[0]).open()
        seen, last, expired = 0, first, list[bytes]()
        if database.has(due.family):
            rows = rows_from(database.family(due.family), first, group_prefix(groups[1] + 1))
            for last, cell in itertools.islice(rows, self._owed):
                seen += 1
                if expiry_of(cell) <= now_ms:
                    expired.append(last)
        if expired:
            database.write(due.family, [(key, None) for key in expired])
        if seen < self._owed:
            del due.parts[0]
        else:
            due.parts[0] = groups, last + b"\0"  # the next key there can be
        self._owed -= seen
