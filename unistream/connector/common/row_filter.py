"""Filters of rows: checked against a schema, compared with statistics, and applied to batches.

    [("day", ">=", "2026-01-01"), ("carrier", "in", ["AA", "UA"])]     all of these
    [[("delay", ">", 60)], [("delay", "is", None)]]                    any of these groups

As in SQL, a comparison with null selects nothing: only ``is`` and ``is not`` know null. A filter is data, so
that it travels in a job's options. Times are compared in UTC, as datetimes without a zone.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model.expression import with_both_zeros

_COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
OPERATORS: Final = (*_COMPARED, "in", "not in", "is", "is not")

Condition: TypeAlias = tuple[str, str, Any]
"""A condition: (column, operator, value); several values for ``in`` and ``not in``."""

Filter: TypeAlias = Sequence[Condition] | Sequence[Sequence[Condition]]
"""All conditions, or all conditions of any group."""

Plain: TypeAlias = list[list[tuple[str, str, Any]]]
"""A filter whose values are those of JSON."""


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """One condition. `values`: one; several of ``in`` and ``not in``; none of ``is`` and ``is not``."""

    column: str
    kind: pa.DataType
    op: str
    values: tuple[Any, ...]


RowFilter: TypeAlias = tuple[tuple[FilterTerm, ...], ...]
"""A checked filter: all terms of any group. Empty: all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of a column in some rows. Each may be None: not known. `least` and `greatest` are those of
    the values that are neither null nor NaN."""

    least: Any = None
    greatest: Any = None
    nulls: int | None = None
    rows: int | None = None


# --- checks ---------------------------------------------------------------------------------------


def groups_of(given: Filter | None, where: str) -> list[list[Condition]]:
    """The groups of a filter. Raises ConfigError if it has not the form of one."""
    if given is None:
        return []
    if not isinstance(given, list | tuple) or not given:
        raise _no_filter(where, given)
    groups = given if all(isinstance(one, list) for one in given) else [given]
    return [[_condition(one, where) for one in group] for group in groups]


def _condition(one: Any, where: str) -> Condition:
    match one:
        case (str(column), str(op), value):
            op = "=" if op == "==" else op
        case _:
            raise _no_filter(where, one)
    if op not in OPERATORS:
        operators = ", ".join(OPERATORS)
        raise ConfigError(f"{where}: {op!r} in {one!r} is no operator of a filter; there are {operators}")
    several = op in ("in", "not in")
    if several != isinstance(value, list | tuple | set | frozenset):
        raise ConfigError(
            f"{where}: {op!r} in {one!r} needs {'a list of values' if several else 'one value'}"
        )
    if several and not value:
        raise ConfigError(f"{where}: the list of values in {one!r} is empty")
    if (value is None) != (op in ("is", "is not")):
        raise ConfigError(f"{where}: null is compared by (column, 'is', None) or 'is not', not by {one!r}")
    return column, op, value


def _no_filter(where: str, given: Any) -> ConfigError:
    return ConfigError(
        f"{where}: a filter is a list of (column, operator, value), or a list of such lists of which one has "
        f"to hold, not {given!r}"
    )


def checked_filter(groups: Iterable[Iterable[Condition]], schema: pa.Schema, where: str) -> RowFilter:
    """Raises ConfigError: a column does not exist, or cannot be compared with its value."""
    return tuple(tuple(_term(one, schema, where) for one in group) for group in groups)


def _term(condition: Condition, schema: pa.Schema, where: str) -> FilterTerm:
    column, op, value = condition
    if column not in schema.names:
        raise ConfigError(f"{where}: the filter names column {column!r}; there are {', '.join(schema.names)}")
    kind = schema.field(column).type
    if op in ("is", "is not"):
        return FilterTerm(column, kind, op, ())
    try:
        values = tuple(comparable(one, kind) for one in (value if op in ("in", "not in") else [value]))
        pa.array([_exact(one, kind) for one in values], kind)
    except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
        raise ConfigError(
            f"{where}: the filter compares column {column!r}, which is {kind}, with {value!r}: {error}"
        ) from error
    return FilterTerm(column, kind, op, values)


def comparable(value: Any, kind: pa.DataType) -> Any:
    """A value in the Python type by which values of `kind` are compared.

    Raises:
        ValueError, InvalidOperation: it is none of `kind`, or `kind` has no order.
    """
    match value:
        case bool() if pa.types.is_boolean(kind):
            return value
        case int() if not isinstance(value, bool) and pa.types.is_integer(kind):
            return value
        case int() | float() | Decimal() if not isinstance(value, bool) and pa.types.is_floating(kind):
            if not math.isfinite(value):
                raise ValueError("it is no finite number")
            return pa.scalar(float(value), kind).as_py()  # in its precision
        case int() | str() | Decimal() if not isinstance(value, bool) and pa.types.is_decimal(kind):
            return Decimal(value)
        case str() if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return value
        case str() | dt.date() if pa.types.is_date(kind) and not isinstance(value, dt.datetime):
            return dt.date.fromisoformat(value) if isinstance(value, str) else value
        case str() | dt.datetime() if pa.types.is_timestamp(kind):
            at = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
            if at.tzinfo is not None and kind.tz is None:
                raise ValueError("it has a time zone, and the column has none")
            return at if at.tzinfo is None else at.astimezone(dt.UTC).replace(tzinfo=None)
        case _:
            raise ValueError(f"a {type(value).__name__} cannot be compared with it")


def lenient(value: Any, kind: pa.DataType) -> Any:
    """The value as `comparable` gives it; None if it cannot be compared: for statistics."""
    try:
        return comparable(value, kind)
    except (ValueError, TypeError, OverflowError, InvalidOperation):
        return None


def arrow_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A comparable value, or None, as a scalar of a column's type."""
    return pa.scalar(_exact(value, kind), kind)


def _exact(value: Any, kind: pa.DataType) -> Any:
    """The value with a zone where its column has one: Arrow takes a datetime without a zone for a local
    one."""
    zoned = isinstance(value, dt.datetime) and pa.types.is_timestamp(kind) and kind.tz is not None
    return value.replace(tzinfo=dt.UTC) if zoned else value


# --- as data --------------------------------------------------------------------------------------


def plain_filter(given: RowFilter) -> Plain:
    """The filter as a job's options have it; `checked_filter` reads it."""
    return [[(term.column, term.op, _plain_value(term)) for term in group] for group in given]


def _plain_value(term: FilterTerm) -> Any:
    values = [
        value.isoformat()
        if isinstance(value, dt.date)
        else str(value)
        if isinstance(value, Decimal)
        else value
        for value in term.values
    ]
    return values if term.op in ("in", "not in") else values[0] if values else None


def filter_columns(given: RowFilter) -> list[str]:
    """The columns of a filter, each once."""
    return list(dict.fromkeys(term.column for group in given for term in group))


# --- statistics -----------------------------------------------------------------------------------


def may_select(given: RowFilter, bounds_of: Callable[[str], ColumnStatistics]) -> bool:
    """Whether rows with these bounds may be selected. False: none of them is, as the bounds of the columns
    show."""
    return not given or any(all(_may_hold(term, bounds_of(term.column)) for term in group) for group in given)


def _may_hold(term: FilterTerm, bounds: ColumnStatistics) -> bool:
    if term.op == "is":
        return bounds.nulls != 0
    if bounds.nulls is not None and bounds.nulls == bounds.rows:
        return False
    least, greatest = bounds.least, bounds.greatest
    if term.op == "is not" or (term.op in ("!=", "not in") and pa.types.is_floating(term.kind)):
        return True  # NaN is in no bounds, and is another value than any
    above = least is None or any(least <= value for value in term.values)
    below = greatest is None or any(greatest >= value for value in term.values)
    match term.op:
        case "=" | "in":
            return any(
                (least is None or least <= value) and (greatest is None or greatest >= value)
                for value in term.values
            )
        case "!=" | "not in":
            return least is None or least != greatest or least not in term.values
        case "<":
            return above and least not in term.values
        case "<=":
            return above
        case ">":
            return below and greatest not in term.values
        case _:
            return below


# --- rows -----------------------------------------------------------------------------------------


def selected_rows(given: RowFilter, records: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that the filter selects, in their order."""
    if not given or not records.num_rows:
        return records
    groups = [reduce(pc.and_kleene, [_mask(term, records) for term in group]) for group in given]
    return records.filter(reduce(pc.or_kleene, groups))


def _mask(term: FilterTerm, records: pa.RecordBatch) -> pa.Array:
    column = records.column(records.schema.get_field_index(term.column))
    match term.op:
        case "is":
            return column.is_null()
        case "is not":
            return column.is_valid()
        case "in" | "not in":
            values = pa.array([_exact(value, term.kind) for value in term.values], term.kind)
            found = pc.is_in(column, value_set=with_both_zeros(values))
            return found if term.op == "in" else pc.and_(pc.invert(found), column.is_valid())
        case op:
            return _COMPARED[op](column, arrow_scalar(term.values[0], term.kind))
