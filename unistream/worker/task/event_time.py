"""Event times of rows as int64 milliseconds, a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, UserCodeError

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def event_times(records: pa.RecordBatch, column: str, split_id: str) -> pa.Int64Array:
    """The event time of each row, from `column`: int64 milliseconds, or an Arrow timestamp of any unit or
    a date; a time without zone is UTC, finer units are rounded down.

    Raises:
        ConfigError: there is no such column, or it is not a time.
        UserCodeError: a row has none.
    """
    index = records.schema.get_field_index(column)
    if index < 0:
        raise ConfigError(
            f"the timestamp column {column!r} is not in the rows; they have {', '.join(records.schema.names)}"
        )
    values = records.column(index)
    if values.null_count:
        row = int(pc.index(values.is_null(), pa.scalar(value=True)).as_py())
        raise UserCodeError(
            f"the timestamp column {column!r} is null in row {row} of a batch of split {split_id!r}"
        )
    kind = values.type
    if pa.types.is_int64(kind):
        return values
    if pa.types.is_timestamp(kind):
        return _to_ms(values.view(pa.int64()), _PER_SECOND[kind.unit])
    if pa.types.is_date64(kind):
        return values.view(pa.int64())
    if pa.types.is_date32(kind):
        return pc.multiply(values.view(pa.int32()).cast(pa.int64()), 86_400_000)
    raise ConfigError(
        f"the timestamp column {column!r} is {kind}; it must be int64 milliseconds, a timestamp or a date"
    )


def _to_ms(values: pa.Int64Array, per_second: int) -> pa.Int64Array:
    if per_second == 1_000:
        return values
    if per_second == 1:
        return pc.multiply(values, 1_000)
    return pa.array(np.floor_divide(values.to_numpy(), per_second // 1_000))
