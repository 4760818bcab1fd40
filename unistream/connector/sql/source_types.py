"""Columns of a database as columns of Arrow: types, and values from what a driver gives. Pure.

PostgreSQL   lines of CSV that the server makes: Arrow parses them by column
SQLite       cells, whose kind is looked at, since a column of SQLite may have any kind in any row
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from unistream.base.errors import ConfigError
from unistream.connector.common import parsed_times

UTC_US: Final = pa.timestamp("us", "UTC")
PLAIN_US: Final = pa.timestamp("us")
DIGITS_MAX: Final = 76  # of a decimal256
_OIDS: Final[Mapping[int, pa.DataType]] = {
    16: pa.bool_(),
    17: pa.binary(),
    18: pa.string(),  # "char"
    19: pa.string(),  # name
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    25: pa.string(),
    26: pa.uint32(),  # oid
    114: pa.string(),  # json
    700: pa.float32(),
    701: pa.float64(),
    1042: pa.string(),  # char(n)
    1043: pa.string(),
    1082: pa.date32(),
    1083: pa.time64("us"),
    1114: PLAIN_US,
    1184: UTC_US,
    2950: pa.string(),  # uuid
    3802: pa.string(),  # jsonb
}
NUMERIC: Final = 1700
TEXTS: Final = ("citext",)  # types of extensions
_BAD_CELL: Final = re.compile(r"In CSV column #(\d+): Row #(\d+): (.*)", re.DOTALL)
_SHOWN: Final = 60  # characters of a value in a message


class Described(NamedTuple):
    """A column, as the database describes it. `kind` None: rows have no type for it, because of `why`."""

    name: str
    kind: pa.DataType | None
    native: str
    why: str = ""


class SqlValueMisfit(Exception):
    """A value that its column cannot have. `row`: of the page."""

    def __init__(self, row: int, column: str, reason: str) -> None:
        super().__init__(f"column {column!r}: {reason}")
        self.row = row
        self.column = column
        self.reason = reason


def with_types(
    found: Sequence[Described], columns: Sequence[str] | None, types: Mapping[str, pa.DataType], where: str
) -> pa.Schema:
    """The columns of the rows.

    Args:
        found: All that there are.
        columns: Those that are read, in this order; None: all.
        types: Of columns for which the user has named one.
        where: Table and database, for the error.

    Raises:
        ConfigError: there is no such column, it is there twice, or rows have no type for it.
    """
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{where}: there is more than one column {twice[0]!r}; name each otherwise (AS …)")
    there = {one.name: one for one in found}
    for name in (*(columns or ()), *types):
        if name not in there:
            raise ConfigError(f"{where}: there is no column {name!r}; there are {', '.join(names)}")
    return pa.schema([pa.field(name, _kind(there[name], types, where)) for name in columns or names])


def _kind(column: Described, types: Mapping[str, pa.DataType], where: str) -> pa.DataType:
    given = types.get(column.name, column.kind)
    is_known = bool(column.native)  # of an expression SQLite says nothing
    if is_known and given is not None and is_bytes(given) and not (column.kind and is_bytes(column.kind)):
        raise ConfigError(f"{where}: column {column.name!r} {column.native} has no bytes")
    if given is None:
        native = f" {column.native}" if column.native else ""
        raise ConfigError(f"{where}: column {column.name!r}{native}: {column.why}")
    return given


def check_zones(found: Sequence[Described], types: Mapping[str, pa.DataType], where: str) -> None:
    """Checks the types of times in PostgreSQL, which say whether they have a zone. Raises ConfigError: the
    user says otherwise."""
    for column in found:
        given, kind = types.get(column.name), column.kind
        if given is None or kind not in (PLAIN_US, UTC_US) or not pa.types.is_timestamp(given):
            continue
        if (given.tz is None) is not (kind.tz is None):
            zone = 'pa.timestamp("us")' if kind.tz is None else 'pa.timestamp("us", "UTC")'
            raise ConfigError(
                f"{where}: column {column.name!r} is {kind}, and {given} is asked for; take it as it is, "
                f"types={{{column.name!r}: {zone}}}, or say its zone in a query=: … AT TIME ZONE 'UTC' AS …"
            )


def check_readable(types: Mapping[str, pa.DataType]) -> None:
    """Raises ConfigError: columns of a database are never of such a type."""
    for name, kind in types.items():
        if not any(test(kind) for test in _READABLE):
            raise ConfigError(
                f"SQL source: column {name!r} cannot be read as {kind}; read it as pa.string(), and convert "
                "it in the pipeline"
            )


_READABLE: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_decimal256,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
)


# --- PostgreSQL -----------------------------------------------------------------------------------


def of_postgresql(name: str, oid: int, precision: int | None, scale: int | None) -> Described | None:
    """Describes a column of PostgreSQL by the number of its type; None: a type that is not known by its
    number (`of_named`).

    >>> of_postgresql("n", 1700, 10, 2).kind, of_postgresql("n", 1700, None, None).kind
    (Decimal128Type(decimal128(10, 2)), None)
    """
    if oid != NUMERIC:
        kind = _OIDS.get(oid)
        return None if kind is None else Described(name, kind, str(kind))
    if precision is None or scale is None:
        return Described(name, None, "NUMERIC", _no_digits(name))
    return Described(name, _decimal(precision, scale), f"NUMERIC({precision}, {scale})", _too_long(name))


def of_named(name: str, native: str, *, is_enum: bool) -> Described:
    """Describes a column whose type the database has named."""
    if is_enum or native in TEXTS:
        return Described(name, pa.string(), native)
    return Described(name, None, native, _as_text(name))


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    digits = max(precision - min(scale, 0), scale)
    if digits > DIGITS_MAX:
        return None
    return pa.decimal128(digits, max(scale, 0)) if digits <= 38 else pa.decimal256(digits, max(scale, 0))


def _no_digits(name: str) -> str:
    return (
        "the database does not say how many digits it has; say it, such as "
        f"types={{{name!r}: pa.decimal128(38, 9)}}, or read it as text: types={{{name!r}: pa.string()}}"
    )


def _too_long(name: str) -> str:
    return f"it has more than {DIGITS_MAX} digits; read it as text: types={{{name!r}: pa.string()}}"


def _as_text(name: str) -> str:
    return f"rows have no type for it; read its text, types={{{name!r}: pa.string()}}, or cast it in a query="


def is_quoted(kind: pa.DataType) -> bool:
    """Whether a value is quoted in a line: its text may have any characters, and the empty one is not
    null."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a value is hexadecimal in a line."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def parse_lines(
    lines: bytes, schema: pa.Schema, others: Mapping[str, pa.DataType | None] | None = None
) -> pa.Table:
    """Lines of CSV without a header, of the columns of `schema`. `others`: of columns that have another type
    in the database.

    Raises:
        SqlValueMisfit: a text is no value of its column.
    """
    numbers = [str(i) for i in range(len(schema))]  # names of users may be alike to the parser
    kinds = {
        number: _parsed(field.type, (others or {}).get(field.name))
        for number, field in zip(numbers, schema, strict=True)
    }
    try:
        table = pa_csv.read_csv(
            pa.py_buffer(lines),
            read_options=pa_csv.ReadOptions(
                column_names=numbers, use_threads=False, block_size=len(lines) + 1
            ),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=kinds,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
    except pa.ArrowInvalid as error:
        bad_cell = _BAD_CELL.search(str(error))
        if bad_cell is None:
            raise
        at, row, reason = int(bad_cell[1]), int(bad_cell[2]) - 1, bad_cell[3]
        raise SqlValueMisfit(row, schema.names[at], reason[: 2 * _SHOWN]) from error
    columns = [_as(column, field) for column, field in zip(table.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def texts_of(lines: bytes, schema: pa.Schema) -> pa.Table:
    """Parses lines as `parse_lines`, with all values as text."""
    return parse_lines(lines, pa.schema([pa.field(name, pa.string()) for name in schema.names]))


def _parsed(kind: pa.DataType, other: pa.DataType | None) -> pa.DataType:
    """A number that is no exact float of fewer digits is found when it becomes one."""
    if pa.types.is_floating(kind) and other is not None:
        return other if pa.types.is_integer(other) or pa.types.is_float64(other) else kind
    return pa.string() if is_bytes(kind) or pa.types.is_decimal256(kind) else kind


def _as(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if is_bytes(field.type):
        return pa.chunked_array([_from_hexadecimal(part) for part in column.chunks], pa.binary()).cast(
            field.type
        )
    if column.type.equals(field.type):
        return column
    try:
        made = column.cast(field.type)
        _check_finite(column, made)
    except pa.ArrowInvalid as error:
        bad = _first_bad(column.to_pylist(), lambda one: _one(one, column.type, field.type))
        raise SqlValueMisfit(bad, field.name, str(error)[: 2 * _SHOWN]) from error
    return made


def _one(found: Any, of: pa.DataType, kind: pa.DataType) -> None:
    column = pa.array([found], of)
    _check_finite(column, column.cast(kind))


def _check_finite(column: pa.Array | pa.ChunkedArray, made: pa.Array | pa.ChunkedArray) -> None:
    """Arrow makes infinity of a double that is no float. Raises ArrowInvalid."""
    if pa.types.is_float32(made.type) and pa.types.is_float64(column.type):
        lost = pc.and_not(pc.is_inf(made), pc.is_inf(column))
        if pc.any(lost).as_py():
            raise pa.ArrowInvalid("a double is no float")


def _from_hexadecimal(column: pa.StringArray) -> pa.BinaryArray:
    """Bytes from a text of twice their number; all of them at once.

    >>> _from_hexadecimal(pa.array(["4142", None, ""])).to_pylist()
    [b'AB', None, b'']
    """
    column = pa.concat_arrays([column])  # its own offsets, from 0
    valid, places, data = column.buffers()
    bounds = np.frombuffer(places, np.int32)[column.offset : column.offset + len(column) + 1]
    whole = binascii.unhexlify(memoryview(data)[bounds[0] : bounds[-1]]) if data is not None else b""
    buffers = [valid, pa.py_buffer((bounds - bounds[0]) // 2), pa.py_buffer(whole)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers, offset=0)


# --- SQLite ---------------------------------------------------------------------------------------

_DECLARED: Final = re.compile(r"\s*([^(]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")
_EXACT: Final[Mapping[str, pa.DataType]] = {
    "BOOL": pa.bool_(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "DATETIME": PLAIN_US,
    "TIMESTAMP": PLAIN_US,
    "TIMESTAMPTZ": UTC_US,
    "TIMESTAMP WITH TIME ZONE": UTC_US,
    "JSON": pa.string(),
    "UUID": pa.string(),
    "STRING": pa.string(),
}
_BY_PART: Final = (
    (("INT",), pa.int64()),
    (("CHAR", "CLOB", "TEXT"), pa.string()),
    (("BLOB", "BINARY", "BYTEA"), pa.binary()),
    (("REAL", "FLOA", "DOUB"), pa.float64()),
)
"""Parts of a declared type -> its values, as SQLite itself derives how it stores them."""
_DECIMALS: Final = ("DECIMAL", "NUMERIC")
_UNTYPED: Final = (
    "SQLite has no type for it (an expression, or a column without one); say which, such as "
    "types={{{name!r}: pa.int64()}}"
)


def of_sqlite(name: str, declared: str) -> Described:
    """Describes a column of SQLite by the type that it was declared with.

    >>> of_sqlite("n", "UNSIGNED BIG INT").kind, of_sqlite("n", "varchar(20)").kind, of_sqlite("n", "").kind
    (DataType(int64), DataType(string), None)
    """
    found = _DECLARED.fullmatch(declared.upper())
    word = found[1] if found is not None else ""
    if word in _EXACT:
        return Described(name, _EXACT[word], declared)
    if word in _DECIMALS and found is not None:
        if found[2] is None:
            return Described(name, None, declared, _no_digits(name))
        return Described(name, _decimal(int(found[2]), int(found[3] or 0)), declared, _too_long(name))
    for parts, kind in _BY_PART:
        if any(part in word for part in parts):
            return Described(name, kind, declared)
    return Described(name, None, declared, _UNTYPED.format(name=name))


def column_of_cells(name: str, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Cells of SQLite as a column.

    Raises:
        SqlValueMisfit: a cell is none of its type.

    >>> column_of_cells("due", pa.timestamp("us"), ["2026-01-01 12:00:00", None]).null_count
    1
    """
    allowed = _allowed(kind)
    kinds = set(map(type, values)) - {type(None)}
    if not kinds <= allowed:
        bad = next(row for row, one in enumerate(values) if one is not None and type(one) not in allowed)
        raise SqlValueMisfit(bad, name, no_value(values[bad], kind))
    try:
        return _converted(values, kind, kinds)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        bad = _first_bad(values, lambda one: _converted([one], kind, {type(one)}))
        raise SqlValueMisfit(bad, name, no_value(values[bad], kind)) from error


def _converted(values: Sequence[Any], kind: pa.DataType, kinds: set[type]) -> pa.Array:
    if pa.types.is_boolean(kind):
        numbers = pa.array(values, pa.int64())
        if not set(values) <= {0, 1, None}:
            raise pa.ArrowInvalid("not 0 or 1")
        return numbers.cast(kind)
    if pa.types.is_decimal(kind):
        texts = [None if one is None else str(one) for one in values] if kinds - {str} else values
        return pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return parsed_times(pa.chunked_array([values], pa.string()), kind, "").combine_chunks()
    if pa.types.is_time(kind):  # Arrow parses times of a day behind a day only
        days = [None if one is None else f"1970-01-01 {one}" for one in values]
        return pa.array(days, pa.string()).cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.string()).cast(kind)
    converted = pa.array(values, kind)
    if pa.types.is_float32(kind):
        _check_finite(pa.array(values, pa.float64()), converted)
    return converted


def _allowed(kind: pa.DataType) -> set[type]:
    """Kinds of cells that can be values of the type, as far as they fit."""
    if pa.types.is_decimal(kind):
        return {int, float, str}
    if pa.types.is_floating(kind):
        return {int, float}
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return {int}
    return {bytes} if is_bytes(kind) else {str}


def _first_bad(values: Sequence[Any], convert: Callable[[Any], Any]) -> int:
    def bad() -> Iterator[int]:
        for row, one in enumerate(values):
            try:
                convert(one)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                yield row

    return next(bad(), 0)


def no_value(found: Any, kind: pa.DataType) -> str:
    """A clause that says which value is none of the type."""
    return f"{found!r:.{_SHOWN}} is no {kind}"
