"""Expressions over columns; the rest of their functions are in `pyarrow.compute`."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa


class Expression(Protocol):  # noqa: PLW1641  (nor has it a hash: two that are equal are an expression)
    """What `us.col` and `us.lit` return, for type checkers: a value of each row, computed from its columns.

    It is a `pyarrow.compute.Expression`, which the functions of `pyarrow.compute` take and return. Here is
    what it can do itself; `&`, `|` and `~` are Python's *and*, *or* and *not* of rows. An operator takes a
    plain value on its right only: ``us.col("n") * 2``, or ``us.lit(2) * us.col("n")``; remainders and
    negation are `pyarrow.compute.modulo` and `negate`.
    """

    def __add__(self, other: Operand, /) -> Expression: ...
    def __sub__(self, other: Operand, /) -> Expression: ...
    def __mul__(self, other: Operand, /) -> Expression: ...
    def __truediv__(self, other: Operand, /) -> Expression: ...
    def __and__(self, other: Expression, /) -> Expression: ...
    def __or__(self, other: Expression, /) -> Expression: ...
    def __invert__(self) -> Expression: ...
    def __lt__(self, other: Operand, /) -> Expression: ...
    def __le__(self, other: Operand, /) -> Expression: ...
    def __gt__(self, other: Operand, /) -> Expression: ...
    def __ge__(self, other: Operand, /) -> Expression: ...
    def __eq__(self, other: Operand, /) -> Expression: ...  # type: ignore[override]
    def __ne__(self, other: Operand, /) -> Expression: ...  # type: ignore[override]

    def is_null(self, nan_is_null: bool = False) -> Expression:
        """True where there is no value; with `nan_is_null` also where it is NaN."""

    def is_valid(self) -> Expression:
        """True where there is a value."""

    def is_nan(self) -> Expression:
        """True where a float is NaN."""

    def isin(self, values: Sequence[object]) -> Expression:
        """True where the value is one of these."""

    def cast(self, type: pa.DataType | str, safe: bool = True) -> Expression:
        """The value as another type. One that does not fit fails (`on_error` of the operator); not `safe`: it
        is cut, or wraps."""


Operand: TypeAlias = (
    Expression
    | bool
    | int
    | float
    | str
    | bytes
    | datetime.date
    | datetime.time
    | datetime.timedelta
    | decimal.Decimal
)
"""What stands on the right of an operator: an expression, or the same value in each row (a `datetime` is a
`date`)."""


def col(name: str) -> Expression:
    """The column `name`, for `filter`, `select` and `with_columns`.

    >>> str((col("delay") > 15) & ~col("cancelled"))
    '((delay > 15) and invert(cancelled))'
    """
    return cast(Expression, pc.field(name))


def lit(value: Any) -> Expression:
    """The same value in each row.

    >>> str(col("n") < lit(5))
    '(n < 5)'
    """
    return cast(Expression, pc.scalar(value))
