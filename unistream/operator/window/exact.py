"""Sums that are exact whatever their size, and NaN as the largest float, as in SQL.

Arrow's sums wrap around in silence. Here a sum of integers or decimals is the true one: where it may leave
its type it is computed in a wider one, and stays there if it does not fit.

    values          sums as a rule      where one does not fit: all of its column are "wide"
    signed          int64               decimal128(37, 0)
    unsigned, bool  uint64              decimal128(36, 0)
    decimal128      decimal128(38, s)   decimal256(75, s)
    decimal256      decimal256(76, s)   refused: there is no wider type
    floats          float64             infinite, as in IEEE 754

The precision of a wide column says which type its sums have as a rule. Whether sums may leave it is known
from the least and the largest value and their number, or from the sum of all magnitudes, for about a
nanosecond per row; only where neither rules it out they are computed in the wide type.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import UserCodeError
from unistream.operator.common import group

SUM: Final = "hash_sum"
MAX: Final = "hash_max"

_WIDE: Final = {pa.int64(): pa.decimal128(37, 0), pa.uint64(): pa.decimal128(36, 0)}
_RULE: Final = {wide: rule for rule, wide in _WIDE.items()}
_DIGITS_OF_WIDE: Final = 75
_MARGIN: Final = 1 - 2.0**-20  # more than a sum of floats can be wrong


class Spec(NamedTuple):
    """One column of a grouping: `function` ("hash_sum", …) over `columns` makes `name`."""

    columns: list[str]
    function: str
    options: Any
    name: str


def exact_groups(
    table: pa.Table, keys: Sequence[str], specs: Sequence[Spec], wide: Collection[str] = ()
) -> pa.Table:
    """`group`, with exact sums, and NaN as the largest.

    Args:
        table: At least the named columns.
        keys: Columns of `table`.
        specs: What is computed.
        wide: Input columns of sums which may be wide already.

    Raises:
        UserCodeError: a sum of decimal256 may leave 76 digits.
    """
    given, sums, flags = list(specs), dict[str, pa.DataType](), dict[str, str]()
    for number, (columns, function, options, name) in enumerate(specs):
        extra = _free_name(table, number)
        if function == SUM:
            values = table.column(columns[0])
            rule = rule_type(values.type) if columns[0] in wide else None
            if rule is None and _may_leave(values):
                rule = _sum_type(values.type)
                table = table.append_column(extra, values.cast(wide_type(rule)))
                given[number] = Spec([extra], function, options, name)
            if rule is not None:
                sums[name] = rule
        elif function == MAX and _has_nan(table.column(columns[0])):
            is_nan = pc.fill_null(pc.is_nan(table.column(columns[0])), fill_value=False)
            table = table.append_column(extra, is_nan)
            given.append(Spec([extra], "hash_any", None, extra))
            flags[name] = extra
    found = group(table, keys, given)
    for name, rule in sums.items():
        found = _replaced(found, name, _settled(found.column(name), rule))
    for name, flag in flags.items():
        largest = found.column(name)
        nan = pa.scalar(float("nan"), largest.type)
        found = _replaced(found, name, pc.if_else(found.column(flag), nan, largest))
    return found


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of several with the same columns. Of these a sum may be wide in some: then it is in all."""
    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables[1:]):
        return pa.concat_tables(tables)
    return pa.concat_tables(tables, promote_options="permissive")


def rule_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that sums of a wide column have as a rule; None: it is none of a wide column."""
    if pa.types.is_decimal256(kind) and kind.precision == _DIGITS_OF_WIDE:
        return pa.decimal128(38, kind.scale)
    return _RULE.get(kind)


def wide_type(rule: pa.DataType) -> pa.DataType | None:
    """The inverse; None: there is none.

    >>> wide_type(pa.int64()), wide_type(pa.decimal128(38, 2)), wide_type(pa.float64())
    (Decimal128Type(decimal128(37, 0)), Decimal256Type(decimal256(75, 2)), None)
    """
    if pa.types.is_decimal128(rule):
        return pa.decimal256(_DIGITS_OF_WIDE, rule.scale)
    return _WIDE.get(rule)


def rule_schema(schema: pa.Schema, sums: Collection[str]) -> pa.Schema:
    """The columns with the types that `sums` have as a rule, names and types only."""
    types = [(f.name, (rule_type(f.type) if f.name in sums else None) or f.type) for f in schema]
    return pa.schema(types)


def kept_wide(rule: pa.Schema, stored: pa.Schema, sums: Collection[str]) -> pa.Schema:
    """`rule` with the wide types that columns of `stored` have."""
    kept = [
        field.with_type(stored.field(field.name).type)
        if field.name in sums and field.type == rule_type(stored.field(field.name).type)
        else field
        for field in rule
    ]
    return pa.schema(kept)


def fitting(sums: pa.ChunkedArray) -> pa.ChunkedArray:
    """Sums in their type as a rule; null where one does not fit."""
    rule = rule_type(sums.type)
    if rule is None:
        return sums
    low, high = _bounds(rule, sums.type)
    fits = pc.and_(pc.greater_equal(sums, low), pc.less_equal(sums, high))
    return pc.if_else(fits, sums, pa.scalar(None, sums.type)).cast(rule)


def as_floats(sums: pa.ChunkedArray) -> pa.ChunkedArray:
    """float64, by the value alone: the same whether the column is wide or not."""
    narrow = fitting(sums)
    # not a safe cast, which refuses sums above 2**53, such as that of 6,000 times in ms
    found = narrow.cast(pa.float64(), safe=False)
    return found if narrow is sums else pc.coalesce(found, sums.cast(pa.float64()))


def _free_name(table: pa.Table, number: int) -> str:
    """The name of a column that exists during a grouping only."""
    name = f"__{number}"
    while name in table.column_names:
        name = f"_{name}"
    return name


def _may_leave(values: pa.ChunkedArray) -> bool:
    """Some sum of the values may leave its type."""
    kind = values.type
    is_decimal = pa.types.is_decimal(kind)
    if not is_decimal and (not pa.types.is_integer(kind) or kind.bit_width < 64):
        return False  # of 32 bits it would take 2**31 rows in one grouping
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None:
        return False
    magnitude = max(abs(bounds["min"]), abs(bounds["max"]))
    if is_decimal:
        digits = 38 if pa.types.is_decimal128(kind) else 76
        may = float(magnitude) * 10.0**kind.scale * len(values) >= 10.0**digits * _MARGIN
        if may and digits > 38:
            raise UserCodeError(f"the sum of {kind} may have more than 76 digits; cast the column to fewer")
        return bool(may)
    largest = 2**64 - 1 if pa.types.is_unsigned_integer(kind) else 2**63 - 1
    if magnitude * len(values) <= largest:
        return False
    return bool(pc.sum(pc.abs(values.cast(pa.float64(), safe=False))).as_py() >= largest * _MARGIN)


def _sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of sums of integers of 64 bits, or of decimal128."""
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def _settled(sums: pa.ChunkedArray, rule: pa.DataType) -> pa.ChunkedArray:
    """Sums that were computed in the wide type: in the one of the rule, if all fit."""
    sums = sums.cast(wide_type(rule))  # Arrow makes the precision larger
    found = fitting(sums)
    return sums if found.null_count > sums.null_count else found


def _bounds(rule: pa.DataType, wide: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """The least and the largest value of `rule`."""
    if pa.types.is_decimal(rule):
        digits = (9,) * rule.precision
        pair = [Decimal((sign, digits, -rule.scale)) for sign in (1, 0)]
    else:
        bits = 64 if pa.types.is_unsigned_integer(rule) else 63
        pair = [Decimal(0 if bits == 64 else -(2**63)), Decimal(2**bits - 1)]
    return pa.scalar(pair[0], wide), pa.scalar(pair[1], wide)


def _has_nan(values: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
