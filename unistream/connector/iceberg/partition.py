"""How a table is partitioned: ``partition_by`` of a sink, and rows by the values of a table's partition spec.

origin                       the value itself
bucket(16, id)               its hash, in 16 buckets
truncate(4, name)            the first 4 characters (of numbers: rounded down to a multiple of 4)
year(at), month(at), day(at), hour(at)      Spark's spellings `years(at)`, … mean the same
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IcebergType

from unistream.base.errors import ConfigError
from unistream.connector.common import by_values
from unistream.connector.iceberg.stage import Key

FIRST_FIELD_ID: Final = 1000  # of partition fields, by the specification
FOLDER_CHARS_MAX: Final = 120  # of one value; file systems end at 255 bytes
VALUE_BYTES_MAX: Final = 16  # of a value of a column: a decimal's
_TIMES: Final = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
_CALL: Final = re.compile(r"(bucket|truncate|years?|months?|days?|hours?)\((?:\s*(\d+)\s*,)?\s*(.+?)\s*\)")


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    """Raises ConfigError: a transform is unknown, or its column is."""
    fields: list[PartitionField] = []
    for text in partition_by:
        transform, column, name = _parsed(text)
        try:
            source = schema.find_field(column)
        except ValueError:
            raise ConfigError(
                f"partition_by {text!r}: {column!r} is no column of the stream, which has "
                f"{', '.join(field.name for field in schema.fields)}"
            ) from None
        if not transform.can_transform(source.field_type):
            raise ConfigError(f"partition_by {text!r}: column {column!r} is {source.field_type}")
        if name in [field.name for field in fields]:
            raise ConfigError(f"partition_by names {text!r} twice")
        number = FIRST_FIELD_ID + len(fields)
        fields.append(PartitionField(source.field_id, number, transform, name))
    made = PartitionSpec(*fields, spec_id=0)
    check_readable(made, schema)
    return made


def check_readable(spec: PartitionSpec, schema: Schema, stream: Schema | None = None) -> None:
    """Raises ConfigError: pyiceberg does not read partition values of this kind as they were written. Its
    readers then miss rows, a replaced partition is not found, and merged manifests hold other values.
    `stream`: to which columns of the table may be widened."""
    if reads_doubles():
        return
    wider = {} if stream is None else {field.name: field.field_type for field in stream.fields}
    for field, kind in zip(spec.fields, types_of(spec, schema), strict=True):
        column = schema.find_column_name(field.source_id) or ""
        kinds = (kind, wider.get(column)) if isinstance(field.transform, IdentityTransform) else ()
        if any(isinstance(one, DoubleType) for one in kinds):
            raise ConfigError(
                f"the partitions are those of {column!r}, which is double: this version of pyiceberg reads "
                "such values with the precision of a float, so rows of a partition are not found; partition "
                "by another column"
            )


@cache
def reads_doubles() -> bool:
    """Pyiceberg 0.12 does not, see https://github.com/apache/iceberg-python/pull/3808."""
    return bool(new_decoder(struct.pack("<d", 0.1)).read_double() == 0.1)


def _parsed(text: str) -> tuple[Transform[Any, Any], str, str]:
    """Splits a field of `partition_by`: transform, column, and the name of the partition field, as Spark
    names it."""
    if not isinstance(text, str) or not text:
        raise ConfigError(f"partition_by is made of texts such as 'day(at)', not {text!r}")
    found = _CALL.fullmatch(text)
    if found is None:
        return IdentityTransform(), text, text
    kind, number, column = found.groups()
    if kind in ("bucket", "truncate"):
        if not number or int(number) < 1:
            raise ConfigError(f"partition_by {text!r}: write {kind}(16, {column})")
        if kind == "bucket":
            return BucketTransform(int(number)), column, f"{column}_bucket"
        return TruncateTransform(int(number)), column, f"{column}_trunc"
    if number:
        raise ConfigError(f"partition_by {text!r}: {kind} takes a column only")
    unit = kind.rstrip("s")
    return _TIMES[unit], column, f"{column}_{unit}"


def described(spec: PartitionSpec, schema: Schema) -> str:
    """The partitions as `partition_by` would have them, for messages."""
    return ", ".join(_described(field, schema) for field in _live(spec)) or "nothing"


def _described(field: PartitionField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    match field.transform:
        case IdentityTransform():
            return column
        case BucketTransform() as bucket:
            return f"bucket({bucket.num_buckets}, {column})"
        case TruncateTransform() as truncate:
            return f"truncate({truncate.width}, {column})"
    return f"{field.transform}({column})"


def check_same(table: str, schema: Schema, spec: PartitionSpec, partition_by: Sequence[str]) -> None:
    """Raises ConfigError: the table is partitioned in another way."""
    wanted = partition_spec(schema, partition_by)
    if _meaning(wanted) != _meaning(spec):
        raise ConfigError(
            f"table {table} is partitioned by {described(spec, schema)}, the sink by "
            f"{described(wanted, schema)}; leave partition_by out to follow the table"
        )


def _live(spec: PartitionSpec) -> list[PartitionField]:
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def _meaning(spec: PartitionSpec) -> list[tuple[int, str]]:
    return [(field.source_id, str(field.transform)) for field in _live(spec)]


# --- rows -----------------------------------------------------------------------------------------


class Partitioner:
    """Rows of a stream by the partition values of one spec of a table.

    Args:
        spec: The spec.
        schema: Of the table.
        rows: Schema of the rows. A column that they do not have is null.

    Raises:
        ConfigError: see `check_readable`.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema, rows: pa.Schema) -> None:
        check_readable(spec, schema)
        self._spec = spec
        self._schema = schema
        self._steps: list[Callable[[pa.RecordBatch], pa.Array] | None] = []
        for field in spec.fields:
            path = _path(rows, schema.find_column_name(field.source_id) or "")
            if path is None or isinstance(field.transform, VoidTransform):
                self._steps.append(None)
                continue
            kind = schema.find_field(field.source_id).field_type
            self._steps.append(_step(path, field.transform.pyarrow_transform(kind)))

    def split(self, records: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """The rows of each partition, in their order. Rows keep all columns."""
        columns = [step(records) for step in self._steps if step is not None]
        if not columns:
            yield (None,) * len(self._steps), records
            return
        for row, rows in by_values(records, columns):
            values = iter([_key_value(column[row].as_py()) for column in columns])
            yield tuple(None if step is None else next(values) for step in self._steps), rows

    def folder(self, key: Key) -> str:
        """The folder of a key, such as ``origin=JFK/at_day=2013-01-01``; long values are truncated and
        hashed. Readers take the values from the table."""
        if not self._spec.fields:
            return ""
        path = self._spec.partition_to_path(Record(*key), self._schema)
        return "/".join(map(_short, path.split("/")))

    def encoded(self, key: Key) -> tuple[bytes | None, ...]:
        """The partition values of a key by Iceberg's serialisation of single values."""
        return tuple(
            None if value is None else to_bytes(kind, value)
            for kind, value in zip(types_of(self._spec, self._schema), key, strict=True)
        )


class _MinusZero(float):
    """The key of a partition of -0.0. Python's equals 0.0, so that rows of both would come to that of the
    first one; readers that look for 0.0, such as Spark, pass a partition of -0.0."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MinusZero)

    def __hash__(self) -> int:
        return hash("-0.0")


def _key_value(value: Any) -> Any:
    """The value such that keys are equal if they are of one partition.

    >>> {(_key_value(one),) for one in (0.0, -0.0, 0, -0.0, math.nan, float("nan"))} == {
    ...     (0.0,), (_MinusZero(-0.0),), (math.nan,)
    ... }
    True
    """
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return math.nan
    return _MinusZero(value) if value == 0 and math.copysign(1, value) < 0 else value


def types_of(spec: PartitionSpec, schema: Schema) -> list[IcebergType]:
    """The types of a spec's partition values."""
    return [field.field_type for field in spec.partition_type(schema).fields]


def decoded(spec: PartitionSpec, schema: Schema, values: Sequence[bytes | None]) -> Record:
    """See `Partitioner.encoded`."""
    kinds = types_of(spec, schema)
    found = zip(kinds, values, strict=True)
    return Record(*[None if value is None else from_bytes(kind, value) for kind, value in found])


def _path(rows: pa.Schema, column: str) -> list[str] | None:
    """The names that lead to a column, or to a field in structs; None: the rows do not have it. Names may
    contain dots."""
    if column in rows.names:
        return [column]
    for name in rows.names:
        kind = rows.field(name).type
        if column.startswith(f"{name}.") and pa.types.is_struct(kind):
            rest = _path(pa.schema(list(kind)), column[len(name) + 1 :])
            if rest is not None:
                return [name, *rest]
    return None


def _step(
    path: Sequence[str], transform: Callable[[pa.Array], pa.Array]
) -> Callable[[pa.RecordBatch], pa.Array]:
    def apply(records: pa.RecordBatch) -> pa.Array:
        column = records.column(path[0])
        if len(path) > 1:
            column = pc.struct_field(column, list(path[1:]))
        return _plain(transform(_aligned(column)))

    return apply


def _aligned(column: pa.Array) -> pa.Array:
    """The column where pyiceberg's transforms, which are Rust, can read it: those of decimals panic at values
    that lie at no multiple of 16 bytes, and what comes from another process, or a file, lies at one of 8."""
    lies_well = all(one is None or one.address % VALUE_BYTES_MAX == 0 for one in column.buffers())
    return column if lies_well else pa.concat_arrays([column])  # which copies


def _plain(values: pa.Array) -> pa.Array:
    """The values as Iceberg keeps those of partitions."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.cast(pa.int64())
    return values


def _short(folder: str) -> str:
    if len(folder) <= FOLDER_CHARS_MAX:
        return folder
    digest = hashlib.sha256(folder.encode()).hexdigest()[:16]
    return f"{folder[:FOLDER_CHARS_MAX].rstrip('%')}~{digest}"
