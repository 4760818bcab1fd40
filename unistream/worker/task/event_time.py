"""Event times of the rows of a source."""

from __future__ import annotations

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.model import event_time


def event_times(records: pa.RecordBatch, column: str, split_id: str) -> pa.Int64Array:
    """The event time of each row, from `column` (see `unistream.model.event_time`), ms.

    Raises:
        ConfigError: there is no such column, or it is not a time.
        UserCodeError: a row has none, or one that is out of range.
    """
    index = records.schema.get_field_index(column)
    if index < 0:
        raise ConfigError(
            f"the timestamp column {column!r} is not in the rows; they have {', '.join(records.schema.names)}"
        )
    values = records.column(index)
    if not event_time.is_event_time(values.type):
        raise ConfigError(
            f"the timestamp column {column!r} is {values.type}; "
            "it must be int64 milliseconds, a timestamp or a date"
        )
    row = event_time.first_null(values)
    if row is not None:
        raise UserCodeError(
            f"the timestamp column {column!r} is null in row {row} of a batch of split {split_id!r}"
        )
    try:
        return event_time.event_times(values)
    except pa.ArrowInvalid as error:
        raise UserCodeError(
            f"the timestamp column {column!r} ({values.type}) has a time that is out of the range of int64 "
            f"milliseconds in a batch of split {split_id!r}: {error}"
        ) from error
