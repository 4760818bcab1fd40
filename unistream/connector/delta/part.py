"""The committables of one checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId
from unistream.connector.delta.stage import DeltaCommittable, DeltaFile, schema_from_bytes
from unistream.port.sink import VisibleRows


@dataclass(frozen=True, slots=True)
class Part:
    """The committables of one checkpoint."""

    checkpoint_id: int
    staged: tuple[DeltaCommittable, ...]

    @property
    def files(self) -> list[DeltaFile]:
        return [file for committable in self.staged for file in committable.files]


def rows_of(files: Sequence[DeltaFile]) -> int:
    return sum(file.rows for file in files)


def visible_rows(parts: Sequence[Part], done: Collection[Part]) -> tuple[VisibleRows, ...]:
    """`done`: parts committed by this call."""
    return tuple(
        VisibleRows(CheckpointId(part.checkpoint_id), rows_of(part.files), already=part not in done)
        for part in parts
    )


def files_of(parts: Sequence[Part]) -> list[DeltaFile]:
    return [file for part in parts for file in part.files]


def common_schema(uri: str, staged: Sequence[DeltaCommittable]) -> pa.Schema:
    first = schema_from_bytes(staged[0].schema)
    if any(
        not schema_from_bytes(other.schema).equals(first)
        or (other.upsert, other.overwrite) != (staged[0].upsert, staged[0].overwrite)
        for other in staged[1:]
    ):
        raise ProtocolError(f"table {uri}: the writers of one checkpoint staged different schemas")
    return first
