"""Types of Spark's DataFrames and of Arrow's columns, both ways: only pairs whose values are the same.

The pairs are those that Parquet holds exactly, as Spark and Arrow write and read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from unistream.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ZONE: Final = "UTC"
DECIMAL_DIGITS_MAX: Final = 38

_ARROW: Final = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", ZONE),
    "TimestampNTZType": pa.timestamp("us"),
    "NullType": pa.null(),
}
_SPARK: Final = {type_: name for name, type_ in _ARROW.items()} | {
    pa.string(): "StringType",
    pa.large_string(): "StringType",
    pa.large_binary(): "BinaryType",
    pa.duration("us"): "DayTimeIntervalType",
}
_BEFORE: Final = "cast it to another type before, or leave the column out"


class _NoPair(Exception):
    """`column`: its path; `type_`: in words."""

    def __init__(self, column: str, type_: str, hint: str = _BEFORE) -> None:
        super().__init__(column)
        self.column, self.type_, self.hint = column, type_, hint


def check_names(names: Iterable[str], what: str, *, case_sensitive: bool) -> None:
    """Raises ConfigError unless there is a column, and none has the name of another one."""
    listed = list(names)
    if not listed:
        raise ConfigError(f"{what}: there are no columns")
    counts = Counter(name if case_sensitive else name.lower() for name in listed)
    for name in listed:
        if counts[name if case_sensitive else name.lower()] > 1:
            raise ConfigError(
                f"{what}: more than one column is called {name!r}"
                f"{'' if case_sensitive else ' (Spark ignores case unless spark.sql.caseSensitive is set)'}: "
                "rename all but one"
            )


# --- Spark to Arrow ---------------------------------------------------------------------------------


def arrow_schema(schema: StructType, what: str, *, case_sensitive: bool = False) -> pa.Schema:
    """The columns of a DataFrame as Spark writes them to Parquet and Arrow reads them.

    Raises:
        ConfigError: two columns have one name, or a type has no Arrow form; names the column.
    """
    check_names(schema.names, what, case_sensitive=case_sensitive)
    try:
        return pa.schema([pa.field(field.name, _column(field.dataType, field.name)) for field in schema])
    except _NoPair as found:
        raise ConfigError(
            f"{what}: column {found.column!r} is {found.type_}, which Arrow cannot represent: {found.hint}"
        ) from None


def _column(type_: DataType, path: str) -> pa.DataType:
    if type(type_).__name__ == "DayTimeIntervalType":
        return pa.duration("us")  # not inside others: in a file it is an int64
    return _arrow(type_, path)


def _arrow(type_: Any, path: str) -> pa.DataType:
    """Fields inside are as nullable as in Spark's schema: so they are in the files that Spark writes."""
    name = type(type_).__name__
    if name in _ARROW:
        return _ARROW[name]
    match name:
        case "StringType":
            if getattr(type_, "collation", "UTF8_BINARY") not in {None, "UTF8_BINARY"}:
                raise _NoPair(path, f"a STRING with collation {type_.collation}", "cast it to STRING before")
            return pa.string()
        case "DecimalType":
            return pa.decimal128(type_.precision, type_.scale)
        case "ArrayType":
            item = _arrow(type_.elementType, f"{path}.element")
            return pa.list_(pa.field("element", item, nullable=type_.containsNull))
        case "MapType":
            value = _arrow(type_.valueType, f"{path}.value")
            return pa.map_(
                _arrow(type_.keyType, f"{path}.key"),
                pa.field("value", value, nullable=type_.valueContainsNull),
            )
        case "StructType":
            check_names(type_.names, f"column {path!r}", case_sensitive=False)
            fields = [
                pa.field(f.name, _arrow(f.dataType, f"{path}.{f.name}"), nullable=f.nullable) for f in type_
            ]
            return pa.struct(fields)
    raise _NoPair(path, str(type_.simpleString()).upper())


# --- Arrow to Spark ---------------------------------------------------------------------------------


def spark_schema(schema: pa.Schema, what: str, *, case_sensitive: bool = False) -> StructType:
    """The types by which Spark reads the Parquet files of these columns, with the same values. Columns may
    have nulls, as in all that Spark reads from files.

    Raises:
        ConfigError: two columns have one name, or Spark has no type for all values of one.
    """
    from pyspark.sql.types import StructField, StructType

    check_names(schema.names, what, case_sensitive=case_sensitive)
    try:
        return StructType([StructField(field.name, _spark(field.type, field.name)) for field in schema])
    except _NoPair as found:
        raise ConfigError(
            f"{what}: column {found.column!r} is {found.type_}, which Spark has no type for: {found.hint}"
        ) from None


def _spark(type_: pa.DataType, path: str) -> DataType:
    from pyspark.sql import types as spark

    is_ = pa.types
    if is_.is_dictionary(type_):
        return _spark(type_.value_type, path)
    if is_.is_decimal128(type_) and 0 <= type_.scale <= type_.precision <= DECIMAL_DIGITS_MAX:
        return spark.DecimalType(type_.precision, type_.scale)
    if is_.is_timestamp(type_) and type_.unit != "ns":
        return spark.TimestampNTZType() if type_.tz is None else spark.TimestampType()
    if is_.is_fixed_size_binary(type_):
        return spark.BinaryType()
    if is_.is_list(type_) or is_.is_large_list(type_):
        return spark.ArrayType(_spark(type_.value_type, f"{path}.element"))
    if is_.is_map(type_):
        key = _spark(type_.key_type, f"{path}.key")
        return spark.MapType(key, _spark(type_.item_type, f"{path}.value"))
    if is_.is_struct(type_):
        fields = list(type_)
        check_names([field.name for field in fields], f"column {path!r}", case_sensitive=False)
        return spark.StructType(
            [spark.StructField(field.name, _spark(field.type, f"{path}.{field.name}")) for field in fields]
        )
    found = _SPARK.get(type_)
    if found is None:
        raise _NoPair(path, str(type_), _cure(type_))
    made: DataType = getattr(spark, found)()
    return made


def _cure(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return "cast it to pa.timestamp('us') before, or leave the column out"
    if pa.types.is_unsigned_integer(type_):
        return "cast it to a signed integer before, or leave the column out"
    return _BEFORE
