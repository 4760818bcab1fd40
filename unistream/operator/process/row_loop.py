"""The loop over rows around `process_element`, as code made for the columns.

The dict of a row is made where the function is called: no generator is resumed for each row, and no tuple is
made to hold the dict. That is some 30 ns of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from unistream.model.column_values import dict_display, row_tuples
from unistream.model.elements import Batch
from unistream.operator.common import check_returned_nothing

Loop = Callable[..., None]

_CODE: Final = """
def loop(rows, process, context, out):
    place = out.place
    for place.position, context.timestamp, {values} in rows:
        if (returned := process({row}, context, out)) is not None:
            check_returned_nothing(returned)

def loop_over_keys(rows, process, context, out, set_current):
    place = out.place
    for place.position, context.current, context.timestamp, {values} in rows:
        set_current(context.current)
        if (returned := process({row}, context, out)) is not None:
            check_returned_nothing(returned)
"""


def rows_of(batch: Batch, *keys: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """For each row its position, its key if `keys` are given, its event time or None, and its values."""
    size, columns = batch.num_rows, batch.records.columns
    if batch.timestamps is None:
        return row_tuples(columns, range(size), *keys, [None] * size)
    return row_tuples([batch.timestamps, *columns], range(size), *keys)


@lru_cache(maxsize=256)
def loops(names: tuple[str, ...]) -> tuple[Loop, Loop]:
    """Loops that call `process` for `rows_of` batches with these columns: of one key, which is the current
    one, and of any keys. They set position, event time and, for any keys, the key before each call.

    Args of the first: rows, process, context, out. Of the other: the same, and the backend's `set_current`.
    """
    values, row = dict_display(names)
    code = compile(_CODE.format(values=values, row=row), "<loop over rows>", "exec")
    found: dict[str, Any] = {"check_returned_nothing": check_returned_nothing}
    exec(code, found)  # noqa: S102 - reprs of texts
    return found["loop"], found["loop_over_keys"]
