"""What a sink has staged, as a committable: data files, and for which table they were written.

A staged file is in its final place. Readers do not see it before a snapshot names it. Nothing here imports
pyiceberg, so that what a savepoint lists can be looked at without it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from unistream.base.limits import MIB
from unistream.base.secrets import Secret
from unistream.connector.common import Upsert, decode_formatted
from unistream.connector.iceberg.catalog import TableAddress

TARGET_FILE_BYTES: Final = 64 * MIB
COMMITTABLE_FORMAT: Final = 2  # since 2: upsert

Key: TypeAlias = tuple[Any, ...]
"""Partition values, as Iceberg keeps them: dates and times are numbers."""


class StagedDataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A closed Parquet file.

    Attributes:
        path: As the table names it.
        size: In bytes.
        partition: By Iceberg's serialisation of single values; None is null.
        column_sizes, value_counts, null_value_counts: By field id.
        lower_bounds, upper_bounds: The same, serialised.
        split_offsets: Of the row groups.
    """

    path: str
    size: int
    rows: int
    partition: tuple[bytes | None, ...] = ()
    column_sizes: dict[int, int] = {}
    value_counts: dict[int, int] = {}
    null_value_counts: dict[int, int] = {}
    lower_bounds: dict[int, bytes] = {}
    upper_bounds: dict[int, bytes] = {}
    split_offsets: tuple[int, ...] = ()


class IcebergCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask staged for one checkpoint.

    Attributes:
        catalog, table, properties: See `unistream.connector.iceberg.catalog.TableAddress`; without secrets.
        address: The same, for people and to compare.
        table_id: UUID of the table whose field ids the files have.
        schema_id, spec_id: Of that table, with which they were written.
        overwrite: The files replace what is in their partitions.
        upsert: The files are not for the table: their rows replace those of the same keys.
    """

    catalog: str
    table: str
    properties: dict[str, str]
    address: str
    table_id: str
    schema_id: int
    spec_id: int
    files: tuple[StagedDataFile, ...]
    checkpoint_id: int
    subtask: int
    overwrite: bool = False
    upsert: Upsert | None = None
    format: int = COMMITTABLE_FORMAT

    @property
    def location(self) -> TableAddress:
        """The address of the table, for a committer that is made of what was staged."""
        properties: dict[str, str | Secret] = dict(self.properties)
        return TableAddress(catalog=self.catalog, table=self.table, properties=properties)


_DECODER: Final = msgspec.msgpack.Decoder(IcebergCommittable)


def encode_committable(committable: IcebergCommittable) -> bytes:
    return msgspec.msgpack.encode(committable)


def decode_committable(content: bytes) -> IcebergCommittable:
    """Reads a stored committable. Raises CorruptSnapshot: it is unreadable."""
    what = "a committable of an Iceberg sink"
    return decode_formatted(_DECODER, content, what=what, expected=COMMITTABLE_FORMAT, least=1)
