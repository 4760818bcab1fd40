"""Tables with columns of an operator's own, and the settings on which their meaning depends.

    OwnTable                                  what an operator reads, as far as it is known before it runs
    own_table_migration(stored, wanted)       Same, Widened or Incompatible, as `model.state_types` judges
    columns_migration(old, new, keys)         the same for the columns alone, each named
    other_setting(stored, wanted)             why a table of another setting cannot be used
    converted_table, converted_records        convert where the result is `Widened`

A *setting* describes in words how the operator is configured, if its rows have no meaning without it: the
windows whose ends their times are, or the columns that are unique. Settings are equal if their texts are.
Snapshots of older versions do not contain it; then it is assumed to be unchanged.

For windows, Flink stores start and end in the namespace of each entry, so windows of the old size fire with
their old bounds in addition to those of the new size, each with a part of the rows. Arroyo puts stored rows
into windows of the new size. Here a change is refused: neither gives the results of one of the two pipelines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state_types import (
    Incompatible,
    Migration,
    Same,
    Widened,
    converted,
    key_migration,
    migration,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTable:
    """A table that an operator reads, without KEY_GROUP_COLUMN.

    Attributes:
        keys: Columns of the key, in the order in which they determine the key group.
        columns: All columns, in any order.
        types: Names and types of all columns; None: not known before the first rows.
        also: Further types in which columns may be stored, and are taken as they are.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    types: pa.Schema | None
    also: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)


def own_table_migration(stored: pa.Schema, wanted: OwnTable) -> Migration:
    """What happens to a table with the columns `stored`. Same, if the types of `wanted` are not known.

    >>> counts = OwnTable(keys=("user",), columns=("user", "n"), types=None)
    >>> own_table_migration(pa.schema([("user", pa.string()), ("total", pa.int64())]), counts)
    Incompatible(reason='its columns have changed: n, total')
    """
    names = [name for name in stored.names if name != KEY_GROUP_COLUMN]
    changed = sorted(set(names) ^ set(wanted.columns))
    if changed:
        return Incompatible(f"its columns have changed: {', '.join(changed)}")
    keys = tuple(name for name in names if name in wanted.keys)
    if keys != wanted.keys:
        return Incompatible(
            f"it was kept by ({', '.join(keys)}), and the key is now ({', '.join(wanted.keys)})"
        )
    if wanted.types is None:
        return Same()
    taken = [
        wanted.types.field(one.name) if one.type == wanted.also.get(one.name) else one
        for one in (stored.field(name) for name in names)
    ]
    return columns_migration(pa.schema(taken), wanted.types, wanted.keys)


def columns_migration(old: pa.Schema, new: pa.Schema, keys: tuple[str, ...]) -> Migration:
    """What happens to the columns of `new`, all of which `old` has. `keys`: columns of the key.

    >>> columns_migration(pa.schema([("n", pa.int64())]), pa.schema([("n", pa.float64())]), ())
    Incompatible(reason="column 'n': int64 cannot become double")
    """
    changes = []
    for field in new:
        before = old.field(field.name).type
        judge = key_migration if field.name in keys else migration
        match judge(before, field.type):
            case Incompatible(reason):
                return Incompatible(f"column {field.name!r}: {reason}")
            case Widened(what):
                changes.append(f"column {field.name!r}: {what}")
            case Same():
                pass
    return Widened(", ".join(changes)) if changes else Same()


def other_setting(stored: str, wanted: str) -> str:
    """Why state cannot be used, to follow a colon, and what to do.

    >>> other_setting("hours", "days").partition(";")[0]
    'it was made by hours, and the pipeline now has days'
    """
    return (
        f"it was made by {stored}, and the pipeline now has {wanted}; go back to the former, or give the "
        "operator another uid and allow non-restored state (--allow-non-restored-state), which drops the "
        "stored rows (a drain emits them first: then start from the resumable savepoint)"
    )


def converted_table(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The columns of `wanted`, where their migration is allowed.

    Raises:
        ConfigError: a value does not fit after all (a moment before year 1 in a finer unit).
    """
    columns = []
    for field in wanted:
        chunks = [_converted(chunk, field) for chunk in table.column(field.name).chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=wanted)


def converted_records(records: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns of `wanted` in one batch, where their migration is allowed. Raises as `converted_table`."""
    arrays = [_converted(records.column(field.name), field) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return converted(array, field.type)
    except pa.ArrowException as error:
        raise ConfigError(f"column {field.name!r} cannot become {field.type}: {error}") from error
