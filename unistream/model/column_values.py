"""Columns as Python values and rows, faster than `to_pylist`, with the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa

# Rows that are Python values at the same time: they stay in the processor's cache, and their memory is used
# again instead of going back to the system and coming from there, page by page, for the next ones.
ROWS_AT_ONCE: Final = 4096


def column_values(column: pa.Array) -> list[Any]:
    """The result of `column.to_pylist()`.

    Numbers and texts are converted by numpy, about five times faster than by Arrow.

    >>> column_values(pa.array([1, None, 3])), column_values(pa.array(["a", None]))
    ([1, None, 3], ['a', None])
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_float32(kind):
        if column.null_count == 0:
            numbers: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
            return numbers
        raw = column.fill_null(0).to_numpy(zero_copy_only=False).tolist()
        valid = column.is_valid().to_numpy(zero_copy_only=False).tolist()
        return [value if there else None for value, there in zip(raw, valid, strict=True)]
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    found: list[Any] = column.to_pylist()
    return found


def row_values(records: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The result of `records.to_pylist()`, one row after the other: a dict that is not kept leaves its memory
    to the next one, and the collector of garbage has nothing to look at.

    >>> list(row_values(pa.record_batch({"k": ["a", "b"], "n": [1, None]})))
    [{'k': 'a', 'n': 1}, {'k': 'b', 'n': None}]
    """
    names = records.schema.names
    if not names:
        return iter([{} for _ in range(records.num_rows)])
    make, columns = _builder(tuple(names)), [each_value(column) for column in records.columns]
    return make(zip(*columns, strict=True))


def each_value(column: pa.Array) -> Iterator[Any]:
    """The values of `column_values`, one after the other.

    >>> list(each_value(pa.array([1, None, 3])))
    [1, None, 3]
    """
    starts = range(0, len(column), ROWS_AT_ONCE)
    return chain.from_iterable(column_values(column.slice(start, ROWS_AT_ONCE)) for start in starts)


@lru_cache(maxsize=256)
def _builder(names: tuple[str, ...]) -> Callable[[Iterable[tuple[Any, ...]]], Iterator[dict[str, Any]]]:
    """Values of rows -> dicts. A dict display in code made for these names, as `namedtuple` makes its own, is
    three times as fast as `dict(zip(...))`."""
    values = [f"v{number}" for number in range(len(names))]
    items = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    code = f"lambda rows: ({{{items}}} for {', '.join(values)}, in rows)"
    made: Callable[[Iterable[tuple[Any, ...]]], Iterator[dict[str, Any]]] = eval(code)  # noqa: S307 - texts
    return made
