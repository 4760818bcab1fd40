"""The committables of a checkpoint, and which of them are to be committed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from unistream.connector.common import CheckpointCommittables, Upsert
from unistream.connector.iceberg.stage import IcebergCommittable, StagedDataFile


def files_of(parts: Sequence[CheckpointCommittables[IcebergCommittable]]) -> list[StagedDataFile]:
    return [file for part in parts for one in part.staged for file in one.files]


def selected(
    parts: Sequence[CheckpointCommittables[IcebergCommittable]], is_due: Callable[[IcebergCommittable], bool]
) -> list[CheckpointCommittables[IcebergCommittable]]:
    """The committables that are to be committed. A checkpoint may list those of an earlier one, which another
    job that started from that one has committed."""
    due = [CheckpointCommittables(part.checkpoint_id, tuple(filter(is_due, part.staged))) for part in parts]
    return [part for part in due if part.staged]


def in_turns(
    parts: Sequence[CheckpointCommittables[IcebergCommittable]],
) -> list[Sequence[CheckpointCommittables[IcebergCommittable]]]:
    """Divides parts into those that are committed together: all at once; or, if a sink got another mode or
    key while output was not committed, those of one kind after the other, in the order of their
    checkpoints."""
    staged = [one for part in parts for one in part.staged]
    if len({_kind(one) for one in staged}) < 2:
        return [list(parts)] if staged else []
    ordered = sorted(staged, key=_checkpoint)
    return [
        [CheckpointCommittables(number, tuple(same)) for number, same in groupby(turn, _checkpoint)]
        for _, turn in groupby(ordered, _kind)
    ]


def _kind(one: IcebergCommittable) -> tuple[Upsert | None, bool]:
    return one.upsert, one.overwrite


def _checkpoint(one: IcebergCommittable) -> int:
    return one.checkpoint_id
