"""Tables with columns of an operator's own, and what else must be as it was for them to mean the same.

    OwnTable                                  what an operator reads, as far as it is known before it runs
    own_table_migration(stored, wanted)       Same, Widened or Refused, as `model.state_types` judges
    columns_migration(old, new, keys)         the same for the columns alone, each named
    other_setting(stored, wanted)             why a table that was made under another setting is of no use
    converted_table, converted_records        do what `Widened` promises

A *setting* is how the operator was set up, in words, where its rows cannot be read without it: which windows
their times are the ends of, by which columns there is one row only. Two settings are the same exactly if
their words are. Snapshots of older versions do not say it; it is then taken to be as it was.

Of windows, Flink keeps start and end in the namespace of each entry, so there windows of the old size fire
under their old bounds beside those of the new size, each with a part of the rows. Arroyo puts what it has
stored into windows of the new size. Here windows that overlap share what they hold, as there, and a change is
refused instead: neither gives results that one of the two pipelines would have given.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state_types import (
    Migration,
    Refused,
    Same,
    Widened,
    converted,
    key_migration,
    migration,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTable:
    """A table that an operator reads. KEY_GROUP_COLUMN is no part of it.

    Attributes:
        keys: Columns of the key, in order: the key group of a row follows from them in this order.
        columns: All columns, in any order.
        types: Names and types of all columns; None: known when the first rows come.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    types: pa.Schema | None


def own_table_migration(stored: pa.Schema, wanted: OwnTable) -> Migration:
    """What becomes of a table with the columns `stored`. Same, if `wanted` does not know its types.

    >>> counts = OwnTable(keys=("user",), columns=("user", "n"), types=None)
    >>> own_table_migration(pa.schema([("user", pa.string()), ("total", pa.int64())]), counts)
    Refused(reason='its columns have changed: n, total')
    """
    names = [name for name in stored.names if name != KEY_GROUP_COLUMN]
    changed = sorted(set(names) ^ set(wanted.columns))
    if changed:
        return Refused(f"its columns have changed: {', '.join(changed)}")
    keys = tuple(name for name in names if name in wanted.keys)
    if keys != wanted.keys:
        return Refused(f"it was kept by ({', '.join(keys)}), and the key is now ({', '.join(wanted.keys)})")
    return Same() if wanted.types is None else columns_migration(stored, wanted.types, wanted.keys)


def columns_migration(old: pa.Schema, new: pa.Schema, keys: tuple[str, ...]) -> Migration:
    """What becomes of the columns that `new` has; `old` has them all. Columns of `keys` make the key.

    >>> columns_migration(pa.schema([("n", pa.int64())]), pa.schema([("n", pa.float64())]), ())
    Refused(reason="column 'n': int64 cannot become double")
    """
    changes = []
    for field in new:
        before = old.field(field.name).type
        judge = key_migration if field.name in keys else migration
        match judge(before, field.type):
            case Refused(reason):
                return Refused(f"column {field.name!r}: {reason}")
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
        "operator another uid and allow non-restored state, which drops what it holds (a drain lets it out "
        "first: then start from the resumable savepoint)"
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
    """The same for one batch."""
    arrays = [_converted(records.column(field.name), field) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return converted(array, field.type)
    except pa.ArrowException as error:
        raise ConfigError(f"column {field.name!r} cannot become {field.type}: {error}") from error
