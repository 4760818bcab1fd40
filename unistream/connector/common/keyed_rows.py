"""Rows that replace those of the same key: their columns, and which of them count.

Writers stage them with all columns, in the order in which they came, and with a column `DELETES` if rows can
delete others. Who commits them keeps the last row of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common.delete_when import check_delete_when
from unistream.model.columns.column_names import numbered

DELETES: Final = "_unistream_deleted"


class Upsert(msgspec.Struct, frozen=True, kw_only=True):
    """How staged rows replace others.

    Attributes:
        key: Columns; a row replaces the one that has the same values in them.
        deletes: The staged rows have a column that says which of them only delete the other.
    """

    key: tuple[str, ...]
    deletes: bool = False


def checked_upsert(
    sink: str, mode: str, modes: Sequence[str], key: str | Sequence[str], delete_when: object
) -> Upsert | None:
    """The key that rows are replaced by; None: they are not. `sink`: for messages. Raises ConfigError: there
    is no such mode, or the arguments contradict each other."""
    if mode not in modes:
        raise ConfigError(f"{sink}: mode must be one of {', '.join(modes)}, not {mode!r}")
    columns = (key,) if isinstance(key, str) else tuple(key)
    if bool(columns) is not (mode == "upsert"):
        raise ConfigError(f"{sink} with mode='upsert' needs a key, and with any other mode has none")
    check_delete_when(delete_when, columns)
    return Upsert(key=columns, deletes=delete_when is not None) if columns else None


def check_key(table: str, key: Sequence[str], stored: pa.Schema, *, takes_bytes: bool) -> None:
    """Raises ConfigError: rows cannot be found by these columns of the stored schema, or it has ours.
    `table`: what it is, for messages."""
    if DELETES in map(str.lower, stored.names):
        raise ConfigError(f"a column cannot be called {DELETES!r}: the sink has one of its own; rename it")
    for name in key:
        if name not in stored.names:
            raise ConfigError(f"key {name!r} is no column of the stream, which has {', '.join(stored.names)}")
        kind = stored.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_bytes = pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or (is_bytes and not takes_bytes):
            raise ConfigError(f"rows of {table} cannot be found by column {name!r}, which is {kind}")


def check_keys(where: str, key: Sequence[str], records: pa.RecordBatch) -> None:
    """Raises UserCodeError: a row has no key, so nothing can be replaced by it."""
    for name in key:
        if records.column(name).null_count:
            raise UserCodeError(f"{where}: column {name!r} is part of the key, and null in some rows")


def with_deletes(records: pa.RecordBatch, deleted: pa.Array[Any]) -> pa.RecordBatch:
    """Adds the column `DELETES`, which says of each row whether it deletes."""
    names = [*records.schema.names, DELETES]
    return pa.RecordBatch.from_arrays([*records.columns, deleted], names=names)


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows.

    >>> rows = pa.table({"id": [1, 2, 1], "n": [1, 2, 3]})
    >>> last_of_each_key(rows, ["id"]).to_pylist()
    [{'id': 2, 'n': 2}, {'id': 1, 'n': 3}]
    """
    places: Any = pa.array(np.arange(rows.num_rows))
    columns = [_storage(rows.column(name)) for name in key]
    keys = numbered(pa.table(columns, names=list(key)))
    last = keys.append_column("place", places).group_by(keys.schema.names, use_threads=False)
    kept = last.aggregate([("place", "max")]).column("place_max")
    return rows.take(kept.take(pc.sort_indices(kept)))


def _storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The stored values of a column of UUIDs: Arrow groups by none of an extension."""
    kind = column.type
    if not isinstance(kind, pa.BaseExtensionType):
        return column
    return pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
