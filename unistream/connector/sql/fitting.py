"""Which columns a table of the user's would take and change in silence: refused before a job starts.

PostgreSQL casts what it is given to the type of the column, also where that loses something, as in
`INSERT INTO t (n) SELECT 2.5`. SQLite changes texts in columns for numbers to numbers, and refuses what a
STRICT table cannot hold with the first such row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import types as sql

from unistream.base.errors import ConfigError
from unistream.connector.sql.columns import sql_type
from unistream.connector.sql.statements import SqlTableName

_PLACES: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}  # digits of a second
_REAL_DIGITS: Final = 15  # that a number of 8 bytes keeps
_ANY: Final = "NUMERIC"  # as SQLAlchemy calls a type that it does not know
_STRICT: Final[Mapping[str, frozenset[str]]] = {
    "INTEGER": frozenset({"INTEGER", "REAL", _ANY}),
    "REAL": frozenset({"REAL", _ANY}),
    "TEXT": frozenset({"TEXT", _ANY}),
    "BLOB": frozenset({"BLOB", _ANY}),
}
"""How SQLite stores values of ours -> the types of columns of a STRICT table that take all of them."""


def check_types(
    target: SqlTableName, rows: pa.Schema, found: Mapping[str, Any], *, strict: bool | None
) -> None:
    """Checks that columns take the values of rows as they are. `found`: columns of the table as SQLAlchemy
    has found them, by name. `strict`: of a table of SQLite; None: PostgreSQL.

    Raises:
        ConfigError: a column would change values, or not take them.
    """
    for field in rows:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if field.name not in found:
            continue
        theirs = found[field.name]["type"]
        why = changed_by_postgresql(kind, theirs)
        if strict is not None:
            why = refused_if_strict(kind, str(theirs)) if strict else changed_by_sqlite(kind, theirs)
        if why:
            raise ConfigError(
                f"SQL sink: column {field.name!r} is {kind}, and in table {target} {theirs}: {why}; cast it "
                "before, or let the column of the table be another one"
            )


def changed_by_postgresql(kind: pa.DataType, theirs: Any) -> str:
    """What a cast to the type of the column would do; empty: nothing.

    >>> changed_by_postgresql(pa.float64(), sql.BigInteger())
    'numbers would be rounded to whole ones'
    """
    is_exact = isinstance(theirs, sql.Numeric) and not isinstance(theirs, sql.Float)
    if pa.types.is_floating(kind) and isinstance(theirs, sql.Integer):
        return "numbers would be rounded to whole ones"
    if pa.types.is_decimal(kind) and kind.scale > 0:
        places = 0 if isinstance(theirs, sql.Integer) else theirs.scale if is_exact else None
        if places is not None and kind.scale > places:
            return f"numbers would be rounded to {places} decimal places"
        if isinstance(theirs, sql.Float) and kind.precision > _REAL_DIGITS:
            return "numbers would be rounded to those of floating point"
    if pa.types.is_timestamp(kind) and isinstance(theirs, sql.Date):
        return "the time of the day would be cut off"
    if pa.types.is_timestamp(kind) and isinstance(theirs, sql.Time):
        return "the day would be cut off"
    if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and isinstance(
        theirs, sql.DateTime | sql.Time
    ):
        places = getattr(theirs, "precision", None)
        if places is not None and _PLACES[kind.unit] > places:
            return f"times would be rounded to {places} digits of a second"
    return ""


def changed_by_sqlite(kind: pa.DataType, theirs: Any) -> str:
    """Decimals and `uint64` are staged as text; a column for numbers makes what it can of it.

    >>> changed_by_sqlite(pa.decimal128(20, 2), sql.Numeric(20, 2))
    'numbers of more than 15 digits would be rounded'
    """
    digits = kind.precision if pa.types.is_decimal(kind) else 20 if pa.types.is_uint64(kind) else 0
    if not isinstance(theirs, sql.Numeric | sql.Integer):
        return ""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "texts such as '007' would become numbers"
    return f"numbers of more than {_REAL_DIGITS} digits would be rounded" if digits > _REAL_DIGITS else ""


def refused_if_strict(kind: pa.DataType, declared: str) -> str:
    """Why a STRICT table of SQLite, whose column is `declared` so, refuses the values; "": it does not.

    >>> refused_if_strict(pa.string(), "INTEGER")
    'a STRICT table takes no TEXT there'
    """
    stored = _stored_as(kind)
    return "" if declared.upper() in _STRICT[stored] else f"a STRICT table takes no {stored} there"


def _stored_as(kind: pa.DataType) -> str:
    """The storage class that values have in SQLite, as `columns` gives them to it."""
    if pa.types.is_decimal(kind) or pa.types.is_uint64(kind):
        return "TEXT"
    ours = sql_type("", kind)
    for types, stored in (
        ((sql.Integer, sql.Boolean), "INTEGER"),
        ((sql.Float,), "REAL"),
        ((sql.LargeBinary,), "BLOB"),
    ):
        if isinstance(ours, types):
            return stored
    return "TEXT"
