"""The committables of one commit to a Delta table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from unistream.base.errors import ProtocolError
from unistream.connector.common import CheckpointCommittables
from unistream.connector.delta.stage import DeltaCommittable, DeltaFile, schema_from_bytes


def files_of(parts: Sequence[CheckpointCommittables[DeltaCommittable]]) -> list[DeltaFile]:
    return [file for part in parts for one in part.staged for file in one.files]


def common_schema(uri: str, staged: Sequence[DeltaCommittable]) -> pa.Schema:
    first = schema_from_bytes(staged[0].schema)
    if any(
        not schema_from_bytes(other.schema).equals(first)
        or (other.upsert, other.overwrite) != (staged[0].upsert, staged[0].overwrite)
        for other in staged[1:]
    ):
        raise ProtocolError(f"table {uri}: the writers of one checkpoint staged different schemas")
    return first
