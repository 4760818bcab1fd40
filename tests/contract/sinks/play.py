"""One combination, played: a table, two checkpoints, what others do meanwhile, a death, and what is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tests.contract.sinks.model import Rows, committed, difference, held
from tests.contract.sinks.rig import (
    AROUND_COMMIT,
    BETWEEN,
    NEVER,
    NEW,
    NOBODY,
    NOTHING,
    TABLES,
    TOLD,
    TWICE,
    UNTOLD,
    WHEN,
    WITH_ROWS,
    Combination,
    Rig,
)
from tests.contract.sinks.run import SinkRun
from tests.contract.sinks.values import KINDS, batch
from unistream.base.crash_points import passing
from unistream.port.sink import CommitOutcome


def dimensions(rig: type[Rig]) -> Mapping[str, Sequence[str]]:
    steps = [*rig.staging, *rig.steps, *(step for way in rig.ways.values() for step in way.steps)]
    return {
        "kind": list(rig.kinds),
        "way": list(rig.ways),
        "table": TABLES,
        "foreign": [NOTHING, *rig.foreign],
        "when": WHEN,
        "killed": [NOBODY, *AROUND_COMMIT, *dict.fromkeys(steps)],
    }


def is_possible(rig: type[Rig]) -> Callable[[Mapping[str, str]], bool]:
    def holds(row: Mapping[str, str]) -> bool:
        way, killed = rig.ways[row["way"]], row["killed"]
        if (row["kind"], row["way"]) in rig.refused or (row["foreign"] == NOTHING) != (row["when"] == NEVER):
            return False
        if way.rule == "overwrite" and row["table"] == NEW and row["foreign"] != NOTHING:
            return False  # one commit makes the table
        if killed not in (NOBODY, *AROUND_COMMIT, *rig.staging, *rig.steps, *way.steps):
            return False
        return rig.is_possible(Combination(**row))

    return holds


class Killed(BaseException):
    """What stands for the death of a process."""


def _nothing(rows: Rows) -> Rows:
    return rows


class Play:
    """A combination on an empty place."""

    def __init__(self, rig: Rig, one: Combination) -> None:
        self.rig, self.one, self.way = rig, one, rig.ways[one.way]
        self.is_batch = self.way.rule == "overwrite"
        values = KINDS[one.kind]
        if self.way.place == "key":
            values = values.drop_null()
        self.old = batch(values, first=1_000, n=0)
        self.theirs = batch(values[:1], first=50, n=9)
        self.values = (
            values if self.way.place == "column" else values[1:]
        )  # one partition, or key, is not ours
        self.expected: list[Rows] = [frozenset()]
        self.attempts: list[SinkRun] = []
        self.saved: dict[int | None, Mapping[str, Any]] = {None: {}}
        self.due = "" if one.killed in (NOBODY, *AROUND_COMMIT) else one.killed
        self.meanwhile: Callable[[Rows], Rows] = _nothing
        self.died = False  # in a thread
        self.between: Callable[[], None] | None = None
        self.sink = rig.sink(self.way)

    def expect_each_row_once(self) -> None:
        """Raises AssertionError."""
        try:
            self._play()
        finally:
            for attempt in reversed(self.attempts):
                attempt.close()
        assert not self.due, f"nobody came by {self.due}"
        assert self.between is None, "others did nothing"
        self.check()

    def check(self) -> None:
        for reader, found in self.rig.readers(self.way, self.old.schema):
            rows = held(found)
            assert rows in self.expected, f"{reader}: {difference(rows, self.expected)}"

    def _play(self) -> None:
        if self.one.table == WITH_ROWS:
            self.rig.fill(self.way, self.old)
            self.expected = [self._rows(self.old)]
        self.sink.check(self.old.schema)
        self._begin(None)
        first = batch(self.values, first=0, n=1)
        second = batch(self.values, first=0 if self._replaces_ids else 100, n=2)
        if self.is_batch:
            self._disturbed(1, first)
        elif self.one.table == NEW and self.one.foreign == NOTHING and self.one.killed not in self.way.steps:
            self._disturbed(1, first)
            self._checkpoint(2, second)
        else:
            self._checkpoint(1, first)
            self._disturbed(2, second)
            if self.one.killed != NOBODY:
                self._checkpoint(3, batch(self.values[:1], first=200, n=3))

    @property
    def _replaces_ids(self) -> bool:
        return self.way.rule == "upsert" and self.way.place != "key"

    # --- checkpoints --------------------------------------------------------------------------------

    def _begin(self, restored: int | None) -> None:
        """An attempt. Those before it are not closed: they are dead."""
        attempt = SinkRun(
            self.sink,
            writers=2,
            restored=restored,
            attempt=len(self.attempts),
            checkpointing=not self.is_batch,
            **self.saved[restored],
        )
        self.attempts.append(attempt)

    def _staged(self, checkpoint: int, rows: pa.RecordBatch) -> list[bytes]:
        run, middle = self.attempts[-1], rows.num_rows // 2
        staged = run.staged(checkpoint, rows[:middle], rows[middle:])
        self.saved[checkpoint] = run.states(checkpoint)
        return staged

    def _checkpoint(self, checkpoint: int, rows: pa.RecordBatch) -> None:
        staged = self._staged(checkpoint, rows)
        result = self.attempts[-1].commit_staged(checkpoint, staged)
        assert result.rows == rows.num_rows
        self._settle()
        self._commit(rows)

    def _disturbed(self, checkpoint: int, rows: pa.RecordBatch) -> None:
        with passing(self._passed):
            staged = self._until_staged(checkpoint, rows)
            restored = None if self.is_batch else checkpoint
            if self.one.killed == UNTOLD:
                self._begin(restored)
            around = self._begin_foreign()
            self._until_committed(checkpoint, staged, restored)
        self._commit(rows, around)

    def _until_staged(self, checkpoint: int, rows: pa.RecordBatch) -> list[bytes]:
        try:
            return self._staged(checkpoint, rows)
        except Killed:
            self._begin(checkpoint - 1 or None)
            return self._staged(checkpoint, rows)

    def _until_committed(self, checkpoint: int, staged: Sequence[bytes], restored: int | None) -> None:
        try:
            self.attempts[-1].told(checkpoint, staged)
            self._settle()
        except Killed:
            self._begin(restored)
            self.attempts[-1].told(checkpoint, staged)
            self._settle()
        if self.one.killed == TOLD:
            self._begin(restored)
        if self.one.killed in (TOLD, TWICE):
            again = self.attempts[-1].told(checkpoint, staged)
            assert (again.outcome, again.rows) == (CommitOutcome.ALREADY_COMMITTED, 0)

    def _settle(self) -> None:
        """What the committer does in the background is done."""
        for thread in threading.enumerate():
            if thread.name == self.rig.background:
                thread.join()
        if self.died:
            self.died = False
            raise Killed

    # --- others, and deaths -------------------------------------------------------------------------

    def _passed(self, point: str) -> None:
        if point == (self.way.look or self.rig.look) and self.between is not None:
            between, self.between = self.between, None
            between()
        if point == self.due:
            self.due = ""
            if threading.current_thread() is not threading.main_thread():
                self.died = True
                raise SystemExit  # which ends a thread in silence
            raise Killed

    def _begin_foreign(self) -> Callable[[], bool] | None:
        """What they do around the commit, and whether they succeeded; what they do between is prepared."""
        if self.one.foreign == NOTHING:
            return None
        foreign = self.rig.foreign[self.one.foreign]
        [rows] = self.expected
        victim = min(row.id for row in rows)
        if self.one.when == BETWEEN:
            self.meanwhile = lambda found: foreign.then(found, victim, self._rows(self.theirs))
            self.between = lambda: foreign.begin(self.rig, victim, self.theirs)() and None
            if not self.rig.look:
                between, self.between = self.between, None
                between()
            return None
        act = foreign.begin(self.rig, victim, self.theirs)

        def around() -> bool:
            try:
                act()
            except self.rig.refusals:
                return False
            return True

        return around

    def _commit(self, rows: pa.RecordBatch, around: Callable[[], bool] | None = None) -> None:
        """What it makes of what is expected, with what others do `around` it: in either order."""
        new, meanwhile = self._rows(rows), self.meanwhile
        self.meanwhile = _nothing
        is_behind = bool(self.way.look)  # what it is between follows the commit
        before = self.expected if is_behind else [meanwhile(one) for one in self.expected]
        self.expected = [committed(one, self.way.rule, self.way.place, new) for one in before]
        if is_behind:
            self.expected = [meanwhile(one) for one in self.expected]
        if around is None or not around():
            return
        foreign = self.rig.foreign[self.one.foreign]
        [first], [ours], theirs = before, self.expected, self._rows(self.theirs)
        victim = min(row.id for row in first)
        self.expected = [
            foreign.then(ours, victim, theirs),
            committed(foreign.then(first, victim, theirs), self.way.rule, self.way.place, new),
        ]

    def _rows(self, rows: pa.RecordBatch) -> Rows:
        return held(one | {"v": self.rig.shown(one["v"], self.way)} for one in rows.to_pylist())
