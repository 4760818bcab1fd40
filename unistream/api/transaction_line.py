"""The rules of `unistream.port.line` for sinks of users: their system records the lines, we compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from unistream.base.errors import Transient
from unistream.connector.common import kept_snapshot, rewound
from unistream.port.line import Followed, LineCommit, OnForeign, SinkLine, foreign_line
from unistream.port.sink import SinkContext

TRIES_MAX: Final = 20  # each that is lost is one that another committer has made


class RecordsLines(Protocol):
    """What is needed of a sink; see `TwoPhaseCommitSink`."""

    name: str
    on_foreign: OnForeign

    def line_commits(self) -> Sequence[LineCommit] | None: ...
    def record_lines(self, lines: Sequence[LineCommit], expected: Sequence[LineCommit]) -> bool: ...


class TransactionLine:
    """The line of one sink, in an opened copy of it. `remembered`: from the restored state."""

    def __init__(
        self, sink: RecordsLines, context: SinkContext, remembered: Followed[str] | None = None
    ) -> None:
        self._sink = sink
        self._context = context
        self._where = f"sink {sink.name!r}"
        self._line = SinkLine(self._where, context, str, remembered)

    def check_new(self) -> None:
        """Checks the target before the first row of a job that starts from no snapshot. Raises ConfigError:
        another line of jobs writes there."""
        lines = self._sink.line_commits() or ()
        if all(one.lineage != self._context.lineage for one in lines):
            self._checked(lines)

    def check(self) -> LineCommit | None:
        """The last commit of this line, if the system has one.

        Raises:
            ConfigError: another line writes there, another job this line, or there are later commits of it
                than the job was restored from.
            Fenced: another job has taken over from this one.
        """
        lines = self._sink.line_commits() or ()
        mine = next((one for one in lines if one.lineage == self._context.lineage), None)
        if mine is not None and mine.checkpoint > self._context.committed_max:
            raise rewound(self._where, self._context, mine.checkpoint, "")
        return self._checked(lines)

    def remembered(self, last: LineCommit) -> Followed[str]:
        """What the state keeps of the line, after this last commit."""
        return self._line.remembered(last.job, last.checkpoint)

    def record(self, checkpoint_id: int, snapshot: str) -> LineCommit | None:
        """Records a checkpoint in the line before its transactions are committed. Returns the last commit
        that the system has now; None: it keeps none.

        Raises:
            Transient: others changed the record again and again.
        """
        for _ in range(TRIES_MAX):
            lines = self._sink.line_commits()
            if lines is None:
                return None
            mine = self._checked(lines)
            if mine is not None and mine.checkpoint >= checkpoint_id:
                return mine
            new = LineCommit(
                lineage=self._context.lineage,
                job=self._line.writer(checkpoint_id),
                checkpoint=checkpoint_id,
                snapshot=snapshot,
            )
            others = [one for one in lines if one.lineage != self._context.lineage]
            if self._sink.record_lines([*others, new], lines):
                self._line.committed(checkpoint_id)
                return new
        raise Transient(f"{self._where}: its record of jobs was changed {TRIES_MAX} times meanwhile")

    def _checked(self, lines: Sequence[LineCommit]) -> LineCommit | None:
        mine = next((one for one in lines if one.lineage == self._context.lineage), None)
        self._line.check(
            None if mine is None else mine.job,
            0 if mine is None else mine.checkpoint,
            begins=lambda: self._check_begins(lines),
        )
        return mine

    def _check_begins(self, lines: Sequence[LineCommit]) -> None:
        if lines and self._sink.on_foreign == "refuse":
            last = lines[-1]
            snapshot = kept_snapshot(last.snapshot)
            raise foreign_line(
                self._where, writer=last.job, checkpoint=str(last.checkpoint), snapshot=snapshot
            )
