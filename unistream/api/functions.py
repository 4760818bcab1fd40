"""Expressions over columns; the rest of their functions are in `pyarrow.compute`."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc


def col(name: str) -> pc.Expression:
    """The column `name`, for `filter`, `select` and `with_columns`.

    >>> str((col("delay") > 15) & ~col("cancelled"))
    '((delay > 15) and invert(cancelled))'
    """
    return pc.field(name)


def lit(value: Any) -> pc.Expression:
    """The same value in each row.

    >>> str(col("n") < lit(5))
    '(n < 5)'
    """
    return pc.scalar(value)
