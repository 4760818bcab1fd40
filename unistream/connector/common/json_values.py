"""Rejects what Arrow's JSON parser accepts by mistake: text that is not UTF-8, and numbers out of range.

The parser does not check the bytes of a text, and turns a number that its column cannot hold (of 400 digits,
or 1e39 in a float32) into an infinity. `NaN`, `Infinity` and `-Infinity`, which many programs write, are
accepted. Columns are checked as a whole; the text only of rows with an infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s: TypeAlias = npt.NDArray[np.int64]

_LITERAL: Final = "Inf"  # in "Inf", "Infinity" and "-Infinity"


def check_values(table: pa.Table, lines: Callable[[], pa.Array | None]) -> None:
    """Checks parsed rows.

    Args:
        table: The parsed rows.
        lines: Returns the text of each row (binary), or None if rows cannot be matched to lines.

    Raises:
        pyarrow.ArrowInvalid: a value differs from the text; the message names the field.
    """
    _check_text(table)
    found = {
        name: np.concatenate(
            [np.empty(0, np.int64), *_infinite(pa.concat_arrays(column.chunks), np.arange(len(column)))]
        )
        for name, column in zip(table.column_names, table.columns, strict=True)
        if column.num_chunks and _has_floats(column.type)
    }
    _check_numbers({name: rows for name, rows in found.items() if len(rows)}, lines)


def line_array(text: npt.NDArray[np.uint8], bounds: Int64s) -> pa.Array:
    """Line k is ``text[bounds[k]:bounds[k + 1]]``; shares the memory."""
    offsets = np.ascontiguousarray(bounds, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _check_text(table: pa.Table) -> None:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        named = next((name for name in table.column_names if not _is_valid(table.column(name))), "")
        raise pa.ArrowInvalid(f"field {named!r} has text that is not UTF-8") from error


def _is_valid(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _check_numbers(found: Mapping[str, Int64s], lines: Callable[[], pa.Array | None]) -> None:
    """Each infinity must be written as one in its line. `found`: field -> the row of each of its
    infinities."""
    texts = lines() if found else None
    if texts is None:
        return
    rows, counts = np.unique(np.concatenate(list(found.values())), return_counts=True)
    literal = pc.count_substring(texts.take(pa.array(rows)), _LITERAL).to_numpy(zero_copy_only=False)
    wrong = rows[literal < counts]
    if len(wrong):
        names = " or ".join(repr(name) for name in found if wrong[0] in found[name])
        raise pa.ArrowInvalid(f"field {names} has a number that its type cannot hold")


def _infinite(array: pa.Array, rows: Int64s) -> Iterator[Int64s]:
    """The rows of all infinities in `array`; value k belongs to row ``rows[k]``."""
    kind = array.type
    if pa.types.is_floating(kind):
        infinite = pc.fill_null(pc.is_inf(array), False)
        if pc.any(infinite).as_py():
            yield rows[infinite.to_numpy(zero_copy_only=False)]
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _infinite(child, rows)
    elif _is_list(kind):
        parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        yield from _infinite(array.flatten(), rows[parents])


def _has_floats(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return _has_floats(kind.value_type) if _is_list(kind) else bool(pa.types.is_floating(kind))


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
