"""Parts of the data files of an Iceberg table: how a split is stored, and how it is made of a file in a
manifest.

A split is a range of row groups of one file, with the deletes that are about its rows. Its position is
(unit, skip): the row group to read from, and how many of its rows were already returned, which counts deleted
rows, too. The least event time of a split, which orders splits and holds back the watermark, is in the
file's statistics in the manifest, and otherwise in the footer of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import ColumnStatistics, RowGroupRange, constant_bounds, encoded_split
from unistream.connector.common.columns_by_id import id_of
from unistream.connector.common.single_values import bound_value
from unistream.model.columns.event_time import event_time_of
from unistream.model.messages import Split

PARQUET: Final = "PARQUET"
PUFFIN: Final = "PUFFIN"


class Deletes(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A file with deletes, as a reader needs it. `equality_ids`: the columns by which rows are deleted; none:
    by their positions. `offset`, `length`: of the deletion vector in it; None: it is a Parquet file."""

    path: str
    size: int
    equality_ids: tuple[int, ...] = ()
    offset: int | None = None
    length: int | None = None


class IcebergSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Row groups [start, stop) of a file of `size` bytes; stop None: to its end.

    Attributes:
        snapshot: That has the file, or that has added it.
        path: As the table names it.
        constants: Columns that are the same in all its rows, in Iceberg's binary form: by their ids.
        unreadable: Columns of which that is true, and whose value is not known.
        deletes: About its rows.
        unit, skip: The position; see above.
        length: Stored bytes in these row groups.
        min_timestamp: See `Split`.
    """

    snapshot: int
    path: str
    size: int
    constants: dict[int, bytes | None] = {}
    unreadable: tuple[int, ...] = ()
    deletes: tuple[Deletes, ...] = ()
    start: int = 0
    stop: int | None = None
    unit: int = 0
    skip: int = 0
    length: int = 0
    min_timestamp: int | None = None
    v: int = 1


def encode_split(split: IcebergSplit) -> Split:
    """The id names the range, so it does not depend on the position."""
    stop = "" if split.stop is None else split.stop
    split_id = f"{split.snapshot}:{split.path}:{split.start}-{stop}"
    return encoded_split(split_id, split, split.min_timestamp, split.length)


# --- files of manifests ---------------------------------------------------------------------------


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A data file. Statistics that are not known are missing; bounds are in Iceberg's binary form, by the ids
    of columns. `partition`: spec and values. `sequence`: of the data. `manifest`: its path."""

    path: str
    size: int
    rows: int
    format: str
    encrypted: bool
    sequence: int
    partition: Any
    constants: dict[int, bytes | None]
    unreadable: tuple[int, ...]
    manifest: str
    least: Mapping[int, bytes]
    greatest: Mapping[int, bytes]
    nulls: Mapping[int, int]


class DeleteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with deletes. `partition`: None: of an unpartitioned spec. `referenced`: the one data file that
    it is about; None: it may be about several. `offset`, `length`: see `Deletes`."""

    path: str
    size: int
    format: str
    encrypted: bool
    sequence: int
    partition: Any
    equality_ids: tuple[int, ...]
    is_equality: bool
    referenced: str | None
    offset: int | None
    length: int | None


def check_format(where: str, file: LakeFile | DeleteFile) -> None:
    """Raises ConfigError: such a file is not read."""
    is_vector = isinstance(file, DeleteFile) and file.format == PUFFIN and file.offset is not None
    if file.format != PARQUET and not is_vector:
        what = "deletes" if isinstance(file, DeleteFile) else "rows"
        raise ConfigError(
            f"{where}: file {file.path} has {what} in {file.format}, and unistream reads Parquet; rewrite "
            "the table's files as Parquet (rewrite_data_files), or read it by another engine"
        )
    if file.encrypted:
        raise ConfigError(f"{where}: file {file.path} is encrypted, which unistream does not read")


class DeleteIndex:
    """Which deletes are about which files, as the specification says.

        deletion vector      of the file that it names; then no other positions count
        positions            of files that are not younger, in the same partition, or of the one file named
        equality             of older files, in the same partition; of all partitions, if it has no partition

    Args:
        where: For messages.
        deletes: Of one snapshot.

    Raises:
        ConfigError: some cannot be read.
    """

    def __init__(self, where: str, deletes: Iterable[DeleteFile]) -> None:
        self._vectors: dict[str, list[DeleteFile]] = {}
        self._named: dict[str, list[DeleteFile]] = {}
        self._positions: dict[Any, list[DeleteFile]] = {}
        self._equal: dict[Any, list[DeleteFile]] = {}
        for one in deletes:
            check_format(where, one)
            if one.is_equality:
                self._equal.setdefault(one.partition, []).append(one)
            elif one.offset is not None:
                self._vectors.setdefault(one.referenced or "", []).append(one)
            elif one.referenced is not None:
                self._named.setdefault(one.referenced, []).append(one)
            else:
                self._positions.setdefault(one.partition, []).append(one)

    def about(self, file: LakeFile) -> tuple[Deletes, ...]:
        """The deletes about a file, ordered by their paths, so that a split is the same each time."""
        vectors = [one for one in self._vectors.get(file.path, ()) if one.sequence >= file.sequence]
        partition = file.partition if file.partition in self._positions else None
        positions = (
            []
            if vectors
            else [
                *self._named.get(file.path, ()),
                *self._positions.get(partition, ()),
            ]
        )
        equal = [*self._equal.get(file.partition, ()), *self._equal.get(None, ())]
        deletes = [
            *vectors,
            *(one for one in positions if one.sequence >= file.sequence),
            *(one for one in equal if one.sequence > file.sequence),
        ]
        return tuple(
            Deletes(
                path=one.path,
                size=one.size,
                equality_ids=one.equality_ids,
                offset=one.offset,
                length=one.length,
            )
            for one in sorted(deletes, key=lambda one: one.path)
        )


# --- splits of files ------------------------------------------------------------------------------


def whole_file(
    file: LakeFile, snapshot: int, deletes: tuple[Deletes, ...], least: int | None
) -> IcebergSplit:
    """The split of a whole file. `least`: of its event times."""
    return IcebergSplit(
        snapshot=snapshot,
        path=file.path,
        size=file.size,
        constants=file.constants,
        unreadable=file.unreadable,
        deletes=deletes,
        length=file.size,
        min_timestamp=least,
    )


def part_of_file(whole: IcebergSplit, found: RowGroupRange) -> IcebergSplit:
    """The split of some row groups; its least event time is that of the whole file, if they have no
    statistics."""
    return msgspec.structs.replace(
        whole,
        start=found.start,
        stop=found.stop,
        unit=found.start,
        length=found.length,
        min_timestamp=whole.min_timestamp if found.least is None else found.least,
    )


def file_bounds(file: LakeFile, schema: pa.Schema, column: str) -> ColumnStatistics:
    """What the manifest says of a column in a file. `schema`: with ids."""
    field = schema.field(column)
    id_ = id_of(field)
    if id_ is None:
        return ColumnStatistics()
    if id_ in file.constants:
        value = file.constants[id_]
        bound = bound_value(value, field.type)
        if value is None or bound is not None:
            return constant_bounds(bound)
    return ColumnStatistics(
        least=bound_value(file.least.get(id_), field.type),
        greatest=bound_value(file.greatest.get(id_), field.type),
        nulls=file.nulls.get(id_),
        rows=file.rows,
    )


def least_event_time(file: LakeFile, schema: pa.Schema, column: str) -> int | None:
    """The least event time of a file, in ms; None: not known."""
    least = file_bounds(file, schema, column).least
    return None if least is None else event_time_of(least, schema.field(column).type)


def check_columns_of_deletes(where: str, deletes: Sequence[Deletes], keys: pa.Schema) -> None:
    """Raises ConfigError: rows are deleted by a column that is not one of the table's plain columns."""
    for one in deletes:
        for id_ in one.equality_ids:
            if f"#{id_}" not in keys.names:
                raise ConfigError(
                    f"{where}: file {one.path} deletes rows by the field with id {id_}, which is no plain "
                    "column of the table, and this source does not read such deletes; compact the table "
                    "(rewrite_data_files) first"
                )
