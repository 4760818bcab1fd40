"""Where an expression over columns begins: a column, a value, a choice, texts that are joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model.expression import Expression, Operand, Truth, computed, literal
from unistream.model.no_value import NoTruth

__all__ = ["Expression", "When", "col", "concat", "lit", "when"]


def col(name: str) -> Expression:
    """The column `name`, for `filter`, `select` and `with_columns`.

    >>> str((col("delay") > 15) & ~col("cancelled"))
    '((delay > 15) & ~cancelled)'
    """
    if not isinstance(name, str):
        raise ConfigError(f"col takes the name of a column, not {name!r:.100}")
    return Expression(pc.field(name), name or "''")  # such a column has no name, and is one


def lit(value: Any) -> Expression:
    """A column that has the same value in each row.

    >>> str(col("n") < lit(5))
    '(n < 5)'
    """
    return literal(value)


def concat(*texts: Expression | str) -> Expression:
    """The texts of a row, joined; null if one of them is. Other values are cast: ``col("n").cast("string")``.

    >>> str(concat(col("origin"), "-", col("carrier")))
    "concat(origin, '-', carrier)"
    """
    if not texts:
        raise ConfigError("concat needs at least one text")
    every = [lit(text) for text in texts]
    joined = pc.binary_join_element_wise(*(one.arrow for one in every), pc.scalar(""))
    return computed(joined, f"concat({', '.join(one.text for one in every)})", *every)


def when(condition: Truth, value: Operand | None) -> When:
    """`value` in the rows for which `condition` is true; what it is in the others, `otherwise` says.

    >>> str(when(col("delay") > 15, "late").when(col("delay") < 0, "early").otherwise("on time"))
    "when((delay > 15), 'late').when((delay < 0), 'early').otherwise('on time')"
    """
    return When(((condition, value),))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class When(NoTruth):
    """A choice that `otherwise` ends; the first condition that is true has it, and null is not true. Before
    its end it has no value to compute with.

    Values are computed for all rows, and then chosen: a division by zero fails also where it is not chosen.
    """

    cases: tuple[tuple[Truth, Operand | None], ...]

    def when(self, condition: Truth, value: Operand | None) -> When:
        """`value`, if none of the conditions before is true and this one is."""
        return When((*self.cases, (condition, value)))

    def otherwise(self, value: Operand | None) -> Expression:
        """`value` in all other rows; None: null."""
        chosen = lit(value)
        arrow, text = chosen.arrow, ""
        parts = [chosen]
        for condition, one in reversed(self.cases):
            holds, taken = lit(condition), lit(one)
            parts += [holds, taken]
            arrow = pc.if_else(pc.coalesce(holds.arrow, pc.scalar(value=False)), taken.arrow, arrow)
            text = f".when({holds.text}, {taken.text}){text}"
        return computed(arrow, f"{text[1:]}.otherwise({chosen.text})", *parts)

    def __str__(self) -> str:
        return ".".join(f"when({one!s:.60}, {value!r:.60})" for one, value in self.cases)

    def __repr__(self) -> str:
        return f"<{self!s} without otherwise>"

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return "a choice has no value for the other rows before its end: write .otherwise(…), None is null"
