"""Which rows of a data file are deleted: by their positions, by a deletion vector, or by equal values.

Rows are marked, not removed: a position in a split counts all rows of a row group.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.base.parquet_files import parquet_file
from unistream.connector.common import marks
from unistream.connector.common.columns_by_id import NamedField, conformed, identified, stored_columns
from unistream.connector.iceberg.source_split import Deletes, IcebergSplit
from unistream.connector.iceberg.source_storage import LakeFiles

CACHED_BYTES_MAX: Final = 64 * MIB  # of files with deletes that several data files share
VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"
PATH, POS = "file_path", "pos"


class DeletedRows:
    """Finds the deleted rows of splits; of one reader, since it keeps what it has read.

    Args:
        where: For messages.
        files: Of the table.
        keys: See `source_schema.key_columns`.
        mapping: See `columns_by_id.name_mapping`.
    """

    def __init__(
        self, where: str, files: LakeFiles, keys: pa.Schema, mapping: Sequence[NamedField] | None
    ) -> None:
        self._where = where
        self._files = files
        self._keys = keys
        self._mapping = mapping
        self._cached: dict[str, pa.Table] = {}

    def keys_of(self, split: IcebergSplit) -> pa.Schema:
        """The columns by which rows of the split may have been deleted."""
        ids = dict.fromkeys(id_ for one in split.deletes for id_ in one.equality_ids)
        return pa.schema([self._keys.field(f"#{id_}") for id_ in ids])

    def of(self, split: IcebergSplit) -> Callable[[pa.Table, int], pa.Array] | None:
        """A function of rows of the split, with its `keys_of`, and of the place of the first one in the file:
        true for those that are deleted. None: none is.

        Raises:
            ConfigError: a file with deletes was removed.
            UserCodeError: it is damaged.
            Unreachable: the storage failed.
        """
        if not split.deletes:
            return None
        by_position = [one for one in split.deletes if not one.equality_ids]
        positions = self._positions(split.path, by_position)
        by_equality = [
            (ids, [one for one in split.deletes if one.equality_ids == ids])
            for ids in dict.fromkeys(one.equality_ids for one in split.deletes if one.equality_ids)
        ]
        equal = [pa.concat_tables([self._equal(one) for one in deletes]) for _, deletes in by_equality]

        def deleted(rows: pa.Table, first: int) -> pa.Array:
            found = marks(positions, first, rows.num_rows)
            for table in equal:
                found |= equal_rows(rows.select(table.column_names), table)
            return pa.array(found)

        return deleted

    # --- files ------------------------------------------------------------------------------------

    def _positions(self, path: str, deletes: Sequence[Deletes]) -> np.ndarray[Any, Any]:
        """The positions of the deleted rows of a file, sorted."""
        found = [self._vector(one) if one.offset is not None else self._listed(one, path) for one in deletes]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _listed(self, one: Deletes, path: str) -> np.ndarray[Any, Any]:
        table = self._read(one, lambda found: pa.schema([found.field(PATH), found.field(POS)]))
        mine = table.filter(pc.equal(table.column(PATH).cast(pa.string()), path))
        return np.asarray(mine.column(POS).cast(pa.int64()).to_numpy())

    def _vector(self, one: Deletes) -> np.ndarray[Any, Any]:
        with self._files.open(one.path, one.size, "deletion vector") as file:
            file.seek(one.offset or 0)
            data = file.read(one.length or 0)
        try:
            return vector_positions(data)
        except ValueError as error:
            raise UserCodeError(
                f"{self._where}: deletion vector in {one.path} is damaged: {error}"
            ) from error

    def _equal(self, one: Deletes) -> pa.Table:
        wanted = pa.schema([self._keys.field(f"#{id_}") for id_ in one.equality_ids])
        where = f"{self._where}: file {one.path}"

        def columns(found: pa.Schema) -> pa.Schema:
            stored = stored_columns(where, identified(where, found, self._mapping), wanted)
            missing = [field.name for field in wanted if field.name not in stored]
            if missing:
                raise ConfigError(f"{where} has no column with the field id {missing[0].removeprefix('#')}")
            return pa.schema([stored[field.name] for field in wanted])

        held = self._read(one, columns)
        stored = {name: held.schema.field(place) for place, name in enumerate(wanted.names)}
        return conformed(where, held, stored, wanted, {})

    def _read(self, one: Deletes, columns: Callable[[pa.Schema], pa.Schema]) -> pa.Table:
        """Columns of a file with deletes. Small ones are kept: many data files share them."""
        if one.path in self._cached:
            return self._cached[one.path]
        try:
            with self._files.open(one.path, one.size, "file with deletes") as file:
                parquet = parquet_file(file)
                wanted = columns(parquet.schema_arrow)
                found = parquet.read(columns=wanted.names, use_threads=False).select(wanted.names)
                found = found.cast(wanted) if found.schema.names == wanted.names else found
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
            raise UserCodeError(f"{self._where}: file with deletes {one.path} is damaged: {error}") from error
        while self._cached and sum(map(_bytes, self._cached.values())) + found.nbytes > CACHED_BYTES_MAX:
            del self._cached[next(iter(self._cached))]
        if found.nbytes <= CACHED_BYTES_MAX:
            self._cached[one.path] = found
        return found


def _bytes(table: pa.Table) -> int:
    return int(table.nbytes)


# --- rows that are equal --------------------------------------------------------------------------


def equal_rows(rows: pa.Table, deleted: pa.Table) -> np.ndarray[Any, Any]:
    """True for rows that are equal to one of `deleted`, in all of its columns; null is equal to null.

    >>> rows = pa.table({"a": [1, 1, None], "b": ["x", "y", "y"]})
    >>> equal_rows(rows, pa.table({"a": [1, None], "b": ["y", "y"]})).tolist()
    [False, True, True]
    """
    if not deleted.num_rows or not rows.num_rows:
        return np.zeros(rows.num_rows, dtype=bool)
    if len(deleted.column_names) == 1:
        [name] = deleted.column_names
        found = pc.is_in(_storage(rows.column(name)), value_set=_storage(deleted.column(name)))
        return np.asarray(found.to_numpy(zero_copy_only=False))
    codes = np.zeros(rows.num_rows, np.int64)  # -1: equal to none
    wanted = np.zeros(deleted.num_rows, np.int64)
    for name in deleted.column_names:
        values = _storage(deleted.column(name))
        distinct = values.unique()
        code = _index(_storage(rows.column(name)), distinct)
        codes = np.where((codes < 0) | (code < 0), -1, codes * len(distinct) + code)
        wanted = wanted * len(distinct) + _index(values, distinct)
        wanted_distinct = np.unique(wanted)  # so that numbers stay small, however many columns there are
        at = np.searchsorted(wanted_distinct, codes).clip(max=len(wanted_distinct) - 1)
        codes = np.where(wanted_distinct[at] == codes, at, -1)
        wanted = np.searchsorted(wanted_distinct, wanted)
    return codes >= 0


def _index(values: Any, distinct: Any) -> np.ndarray[Any, Any]:
    found = pc.index_in(values, value_set=distinct)
    return np.asarray(found.fill_null(-1).to_numpy(), np.int64)


def _storage(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    return whole.storage if isinstance(whole, pa.ExtensionArray) else whole


# --- deletion vectors -----------------------------------------------------------------------------


def vector_positions(data: bytes) -> np.ndarray[Any, Any]:
    """The positions in a blob ``deletion-vector-v1``: its length, a magic number, a roaring bitmap of 64
    bits in the portable form, and the checksum of the last two.

    Raises:
        ValueError: it is none.
    """
    length, checksum = int.from_bytes(data[:4], "big"), data[-4:]
    body = data[4 : 4 + length]
    if len(data) != length + 8 or body[:4] != VECTOR_MAGIC:
        raise ValueError("it is no deletion vector")
    if zlib.crc32(body) != int.from_bytes(checksum, "big"):
        raise ValueError("its checksum is wrong")
    return np.fromiter(BitMap64.deserialize(body[4:]), np.int64)
