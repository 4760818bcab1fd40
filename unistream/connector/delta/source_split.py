"""Parts of the data files of a Delta table: how a split is stored, and how it is made of a file in the log.

A split is a range of row groups of one file. Its position is (unit, skip): the row group to read from, and
how many of its rows were already returned. The least event time of a split, which orders splits and holds
back the watermark, is in the file's statistics in the log, and otherwise in the footer of the file.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import (
    ColumnStatistics,
    RowGroupRange,
    comparable,
    constant_bounds,
    encoded_split,
    lenient,
)
from unistream.connector.delta.column_mapping import by_logical_name
from unistream.model.columns.event_time import event_time_of
from unistream.model.messages import Split

STATS_ROUNDING: Final = dt.timedelta(milliseconds=1)  # writers cut the greatest time to milliseconds


class DeltaSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Row groups [start, stop) of a file of `size` bytes; stop None: to its end.

    Attributes:
        version: Of the table: the snapshot that has the file, or the commit that added it.
        path: Relative to the table, not encoded.
        partition: Values of the partition columns, as in the log.
        unit, skip: The position; see above.
        length: Stored bytes in these row groups.
        deleted: Rows of the whole file that were deleted, as `connector.common.deleted_rows` packs them.
        min_timestamp: See `Split`.
        rows: In these row groups; None: not known.
    """

    version: int
    path: str
    size: int
    partition: dict[str, str | None]
    start: int = 0
    stop: int | None = None
    unit: int = 0
    skip: int = 0
    length: int = 0
    min_timestamp: int | None = None
    rows: int | None = None
    deleted: bytes = b""
    v: int = 1


def encode_split(split: DeltaSplit) -> Split:
    """The id names the range, so it does not depend on the position."""
    stop = "" if split.stop is None else split.stop
    split_id = f"{split.version}:{split.path}:{split.start}-{stop}"
    return encoded_split(split_id, split, split.min_timestamp, split.length, split.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of a table. `deleted`: see `DeltaSplit`. Statistics that are not known are missing; the bounds
    are comparable (see `connector.common.row_filter`)."""

    path: str
    size: int
    partition: dict[str, str | None]
    deleted: bytes = b""
    rows: int | None = None
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)


def renamed(file: DataFile, fields: Sequence[pa.Field]) -> DataFile:
    """What the log has by physical names, by those of a job."""
    return replace(
        file,
        partition=by_logical_name(file.partition, fields),
        least=by_logical_name(file.least, fields),
        greatest=by_logical_name(file.greatest, fields),
        nulls=by_logical_name(file.nulls, fields),
    )


def whole_file(file: DataFile, version: int, least: int | None) -> DeltaSplit:
    """The split of a whole file. `least`: the smallest time in it."""
    return DeltaSplit(
        version=version,
        path=file.path,
        size=file.size,
        partition=file.partition,
        length=file.size,
        rows=file.rows,
        min_timestamp=least,
        deleted=file.deleted,
    )


def part_of_file(file: DataFile, version: int, found: RowGroupRange, least: int | None) -> DeltaSplit:
    """The split of some row groups. `least`: of the whole file, if the row groups have no statistics."""
    return DeltaSplit(
        version=version,
        path=file.path,
        size=file.size,
        partition=file.partition,
        start=found.start,
        stop=found.stop,
        unit=found.start,
        length=found.length,
        rows=found.rows,
        min_timestamp=least if found.least is None else found.least,
        deleted=file.deleted,
    )


# --- statistics -----------------------------------------------------------------------------------


def file_bounds(file: DataFile, schema: pa.Schema, column: str) -> ColumnStatistics:
    """What the log says of a column in a file."""
    if column in file.partition:
        return constant_bounds(partition_value(file.partition, schema.field(column)))
    greatest = file.greatest.get(column)
    if isinstance(greatest, dt.datetime):
        try:
            greatest += STATS_ROUNDING
        except OverflowError:
            greatest = None
    return ColumnStatistics(
        least=file.least.get(column), greatest=greatest, nulls=file.nulls.get(column), rows=file.rows
    )


def least_event_time(file: DataFile, schema: pa.Schema, column: str) -> int | None:
    """The least event time of a file, in ms; None: not known."""
    least = file_bounds(file, schema, column).least
    return None if least is None else event_time_of(least, schema.field(column).type)


def partition_value(partition: Mapping[str, str | None], field: pa.Field) -> Any:
    """The value of a partition column; the empty text is null, as the Delta protocol requires.

    Raises:
        ConfigError: it is none of its type.
    """
    text, kind = partition[field.name], field.type
    if text is None or text == "":
        return None
    try:
        if pa.types.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
        if pa.types.is_integer(kind):
            return int(text)
        if pa.types.is_floating(kind):
            return pa.scalar(float(text), kind).as_py()
        if pa.types.is_timestamp(kind) and kind.tz is None:
            return dt.datetime.fromisoformat(text).replace(tzinfo=None)
        return comparable(text, kind)
    except (KeyError, ValueError, InvalidOperation) as error:
        raise ConfigError(
            f"partition column {field.name!r} is {text!r} in the log, which is no {kind}"
        ) from error


def logged_stats(stats: str | None, columns: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """Arguments of `DataFile` from the JSON text in a commit; no more than can be trusted."""
    try:
        found = json.loads(stats, parse_float=Decimal) if stats else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    rows = found.get("numRecords")
    nulls = {name: n for name, n in _of(found, "nullCount").items() if isinstance(n, int) and name in columns}
    return {
        "rows": rows if isinstance(rows, int) else None,
        "nulls": nulls,
        "least": trusted(_of(found, "minValues"), columns),
        "greatest": trusted(_of(found, "maxValues"), columns),
    }


def trusted(values: Mapping[str, Any], columns: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """The bounds of `columns` that are exact; some writers round decimals."""
    found: dict[str, Any] = {}
    for name, kind in columns.items():
        value = values.get(name)
        if value is None or pa.types.is_decimal(kind):
            continue
        if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is None:
            value = value.removesuffix("Z")
        bound = lenient(value, kind)
        if bound is not None:
            found[name] = bound
    return found


def _of(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = found.get(key)
    return inner if isinstance(inner, dict) else {}
