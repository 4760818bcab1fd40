"""The committables of a checkpoint, and which of them are to be committed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unistream.base.ids import CheckpointId
from unistream.connector.iceberg.stage import IcebergCommittable, StagedFile
from unistream.port.sink import VisibleRows


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
