"""The loop over rows around `process_element`, as code made for the columns.

The dict of a row is made where the function is called: no generator is resumed for each row, and no tuple is
made to hold the dict. That is some 30 ns of a row. What few functions ask for, such as the event time, is
looked up by the row's position when they do; what rows have in common, such as the key of a bounded job, is
made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import compress
from operator import not_
from typing import Any, Final, TypeAlias

import pyarrow as pa

from unistream.model.columns.column_values import column_values, dict_display, row_tuples, targets
from unistream.model.elements import Batch
from unistream.operator.common import check_returned_nothing, positions

Loop = Callable[..., None]
KeyValues: TypeAlias = tuple[Any, ...]

_OF_ANY_KEYS: Final = """
def loop(rows, process, context, out, set_current):
    place = out.place
    for place.position, context.current, {values} in rows:
        set_current(context.current)
        if (returned := process({row}, context, out)) is not None:
            check_returned_nothing(returned)
"""

_OF_ONE_KEY: Final = """
def loop(rows, process, context, out, key_values):
    place = out.place
    {of_key} = key_values
    for place.position, {values} in rows:
        if (returned := process({row}, context, out)) is not None:
            check_returned_nothing(returned)
"""


def rows_of(batch: Batch, keys: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The position, the key and the values of each row, for `loop_over_keys`."""
    return row_tuples(batch.records.columns, positions(batch.num_rows), keys)


def loop_over_keys(names: Sequence[str]) -> Loop:
    """A loop that calls `process` for `rows_of` batches with these columns. It sets position and key before
    each call. Args of the loop: rows, process, context, out, and the backend's `set_current`."""
    return _compiled(_OF_ANY_KEYS, tuple(names), (False,) * len(names))


class RowsByKey:
    """Rows of which those of a key follow each other, with a loop for those of one key, the current one.

    Args:
        keys: The key columns. A row has the first row's value of them, unless they are changed in place.
        firsts: The first row of each key.

    >>> records = pa.record_batch({"k": ["a", "a", "b"], "n": [1, 2, 3]})
    >>> rows = RowsByKey(records, ["k"], records.take(pa.array([0, 2])))
    >>> rows.key_values, list(rows.others)
    ([('a',), ('b',)], [(0, 1), (1, 2), (2, 3)])

    Attributes:
        key_values: For each key what its rows have in common, for `loop`.
        others: For each row its position and its other values.
        loop: Calls `process` for some of `others`. It sets the position before each call. Args: the rows,
            process, context, out, and their `key_values`.
    """

    def __init__(self, records: pa.RecordBatch, keys: Sequence[str], firsts: pa.RecordBatch) -> None:
        common = [field.name in keys and not _is_changeable(field.type) for field in records.schema]
        of_key = [column_values(column) for column in compress(firsts.columns, common)]
        others = list(compress(records.columns, map(not_, common)))
        self.key_values: list[KeyValues] = list(zip(*of_key, strict=True)) or [()] * firsts.num_rows
        self.others = row_tuples(others, positions(records.num_rows))
        self.loop = _compiled(_OF_ONE_KEY, tuple(records.schema.names), tuple(common))


def _is_changeable(kind: pa.DataType) -> bool:
    """Values are lists or dicts."""
    return bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


@lru_cache(maxsize=256)
def _compiled(template: str, names: tuple[str, ...], common: tuple[bool, ...]) -> Loop:
    variables, row = dict_display(names)
    of_row = targets(compress(variables, map(not_, common)))
    of_key = targets(compress(variables, common)) or "()"
    code = template.format(values=of_row, of_key=of_key, row=row)
    found: dict[str, Any] = {"check_returned_nothing": check_returned_nothing}
    exec(compile(code, "<loop over rows>", "exec"), found)  # noqa: S102 - reprs of texts
    loop: Loop = found["loop"]
    return loop
