"""Keys as Python objects and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.columns.column_values import column_values
from unistream.model.key_groups import canonical_keys
from unistream.state.common.migration import described, plain_keys, time_storage

_NAN: Final = float("nan")


class KeyCodec:
    """Keys as Python objects: a scalar for one column, a tuple for several.

    Dates and times are their stored numbers, which are cheaper to make and to hash; a NaN is always the same
    object, since it equals nothing else. Equal keys have one form (`canonical_keys`).
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = plain_keys(schema)
        self._raw = [time_storage(field.type) for field in self.schema]
        self._accepted = schema

    def encode(self, keys: pa.RecordBatch) -> list[Any]:
        """One key per row. Raises ConfigError for other columns than those of the schema."""
        self.check(keys.schema)
        keys = canonical_keys(keys, keys.schema.names)
        columns = [
            _encode_column(column, field.type, raw)
            for column, field, raw in zip(keys.columns, self.schema, self._raw, strict=True)
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def decode(self, keys: Sequence[Any]) -> pa.RecordBatch:
        """The key columns of `keys`."""
        count = len(self.schema)
        columns = [keys] if count == 1 else list(zip(*keys, strict=True)) or [()] * count
        arrays = [
            pa.array(values, raw).view(field.type) if raw is not None else pa.array(values, field.type)
            for values, field, raw in zip(columns, self.schema, self._raw, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def column_of(self, keys: pa.RecordBatch) -> pa.Array | None:
        """The key column; None if there are several."""
        if keys.num_columns != 1:
            return None
        column, kind = canonical_keys(keys, keys.schema.names).column(0), self.schema.field(0).type
        return column if column.type.equals(kind) else column.cast(kind)

    def values_of(self, key: Any) -> tuple[Any, ...]:
        if all(raw is None for raw in self._raw):
            return (key,) if len(self.schema) == 1 else tuple(key)
        return tuple(column[0].as_py() for column in self.decode([key]).columns)

    def check(self, schema: pa.Schema) -> None:
        """Raises ConfigError unless these are the key columns, possibly as dictionaries."""
        if schema.equals(self._accepted):
            return
        same_names = schema.names == self.schema.names
        if not same_names or not all(
            _same_keys(old.type, new.type) for old, new in zip(self.schema, schema, strict=True)
        ):
            raise ConfigError(
                f"the key columns are ({described(schema)}), but the state is keyed by "
                f"({described(self.schema)}); key columns and their types cannot change: cast them, or give "
                "the operator another uid"
            )
        self._accepted = schema


def _same_keys(declared: pa.DataType, given: pa.DataType) -> bool:
    plain = plain_keys(pa.schema([("k", given)])).field(0).type
    text = (pa.types.is_string, pa.types.is_large_string)
    both_text = any(test(declared) for test in text) and any(test(plain) for test in text)
    return bool(plain.equals(declared)) or both_text


def _encode_column(column: pa.Array, kind: pa.DataType, raw: pa.DataType | None) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if raw is not None:
        return column_values(column.view(raw))
    values = column_values(column)
    if pa.types.is_floating(kind):
        return [_NAN if value is not None and value != value else value for value in values]  # noqa: PLR0124
    return values
