"""The committables of a checkpoint, and which of them are to be committed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from unistream.base.ids import CheckpointId
from unistream.connector.common import Upsert
from unistream.connector.iceberg.stage import IcebergCommittable, StagedFile
from unistream.port.sink import CommitOutcome, CommitResult, VisibleRows


@dataclass(frozen=True, slots=True)
class Part:
    """The committables of one checkpoint."""

    checkpoint_id: int
    staged: tuple[IcebergCommittable, ...]

    @property
    def files(self) -> list[StagedFile]:
        return [file for committable in self.staged for file in committable.files]


def files_of(parts: Sequence[Part]) -> list[StagedFile]:
    return [file for part in parts for file in part.files]


def rows_of(files: Sequence[StagedFile]) -> int:
    return sum(file.rows for file in files)


def selected(parts: Sequence[Part], is_due: Callable[[IcebergCommittable], bool]) -> list[Part]:
    """The committables that are to be committed. A checkpoint may list those of an earlier one, which another
    job that started from that one has committed."""
    due = [Part(part.checkpoint_id, tuple(filter(is_due, part.staged))) for part in parts]
    return [part for part in due if part.staged]


def in_turns(parts: Sequence[Part]) -> list[list[Part]]:
    """All at once; or, if a sink got another mode or key while output was not committed, those of one kind
    after the other, in the order of their checkpoints."""
    staged = [one for part in parts for one in part.staged]
    if len({_kind(one) for one in staged}) < 2:
        return [list(parts)] if staged else []
    ordered = sorted(staged, key=_checkpoint)
    return [
        [Part(number, tuple(same)) for number, same in groupby(turn, _checkpoint)]
        for _, turn in groupby(ordered, _kind)
    ]


def together(results: Sequence[CommitResult]) -> CommitResult:
    """Of turns, the last of which may have to be repeated."""
    last = results[-1]
    if len(results) == 1 or last.outcome is CommitOutcome.RETRY:
        return last
    outcomes = {one.outcome for one in results}
    return replace(
        last,
        outcome=CommitOutcome.COMMITTED if CommitOutcome.COMMITTED in outcomes else last.outcome,
        rows=sum(one.rows for one in results),
        visible=tuple(rows for one in results for rows in one.visible),
    )


def _kind(one: IcebergCommittable) -> tuple[Upsert | None, bool]:
    return one.upsert, one.overwrite


def _checkpoint(one: IcebergCommittable) -> int:
    return one.checkpoint_id


def visible_rows(parts: Sequence[Part], done: Sequence[Part]) -> tuple[VisibleRows, ...]:
    """`done`: what this call has committed of them."""
    new = {part.checkpoint_id: rows_of(part.files) for part in done}
    return tuple(
        VisibleRows(
            CheckpointId(part.checkpoint_id),
            new.get(part.checkpoint_id, rows_of(part.files)),
            already=part.checkpoint_id not in new,
        )
        for part in parts
    )
