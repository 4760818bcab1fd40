"""Rows as JSON objects, column by column: the text that `msgspec` would give for each row.

A row as a dictionary costs some microseconds. Here each column becomes text by itself, and the texts are
joined: numbers, booleans, times and text that needs no escape by Arrow's kernels, every other column by one
call of msgspec over all of its values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common.json_maps import as_objects
from unistream.connector.common.samples import sample
from unistream.model.columns.map_types import is_of_objects

_ESCAPED: Final = r'["\\\x00-\x1f]'
_FRACTION: Final = {"s": 0, "ms": 3, "us": 6}
_SECONDS: Final = 19  # characters of a time without its fraction
_REFUSALS: Final = (pa.ArrowException, OSError, LookupError, ArithmeticError, TypeError, ValueError)
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = pa.scalar("null", pa.large_string())


def json_rows(records: pa.RecordBatch, columns: Sequence[str] | None = None) -> pa.Array[Any]:
    r"""The rows as objects, one for each, as `pa.large_string()`. `columns`: which, in that order; None: all.

    >>> json_rows(pa.record_batch({"a": [1, None], "b": ["x", 'y"']})).to_pylist()
    ['{"a":1,"b":"x"}', '{"a":null,"b":"y\\""}']
    """
    return _objects(records, columns, "")


def json_lines(records: pa.RecordBatch) -> pa.Buffer:
    r"""The rows as the objects of `json_rows`, one on each line.

    >>> json_lines(pa.record_batch({"a": [1, 2]})).to_pybytes()
    b'{"a":1}\n{"a":2}\n'
    """
    if not records.num_rows:
        return pa.py_buffer(b"")
    lines = _objects(records, None, "\n")
    _, offsets, text = lines.buffers()
    bounds = np.frombuffer(offsets, np.int64)[[lines.offset, lines.offset + len(lines)]]
    return text.slice(int(bounds[0]), int(bounds[1] - bounds[0]))


def _objects(records: pa.RecordBatch, columns: Sequence[str] | None, end: str) -> pa.Array[Any]:
    names = list(records.schema.names if columns is None else columns)
    if not names:
        return pa.array(["{}" + end] * records.num_rows, pa.large_string())
    parts: list[Any] = []
    for place, name in enumerate(names):
        parts.append(_text(("," if place else "{") + json.dumps(name, ensure_ascii=False) + ":"))
        parts.append(json_column(records.column(records.schema.get_field_index(name))))
    return pc.binary_join_element_wise(*parts, _text("}" + end), _text(""))


def json_column(column: pa.Array[Any]) -> pa.Array[Any]:
    """The JSON of each value, as `pa.large_string()`."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        found = column.cast(pa.large_string())
    elif _is_text(kind) and not _needs_escapes(column):
        found = pc.binary_join_element_wise(_text('"'), column.cast(pa.large_string()), _text('"'), _text(""))
    elif pa.types.is_timestamp(kind) and kind.unit in _FRACTION and kind.tz in (None, "UTC"):
        found = _times(column)
    else:
        return _by_msgspec(column)
    return pc.fill_null(found, _NULL) if column.null_count else found


def json_misfit(kind: pa.DataType) -> str | None:
    """Why JSON cannot hold values of that type, as a clause; None: it can.

    >>> json_misfit(pa.timestamp("ns"))
    'its times end at microseconds'
    """
    if getattr(kind, "unit", "") == "ns":
        return "its times end at microseconds"
    values = sample(kind, 0), sample(kind, 1)
    try:
        first, second = (json_column(value) for value in values)
    except _REFUSALS as error:
        return str(error).partition("\n")[0]
    same = first == second and values[0] != values[1]
    return "values that differ by its smallest unit would be equal" if same else None


def _times(column: pa.Array[Any]) -> pa.Array[Any]:
    """Writes times such as ``"2026-01-01T00:00:00.250000Z"``; the fraction is left out if it is 0."""
    digits = _FRACTION[column.type.unit]
    end = "Z" if column.type.tz else ""
    text = column.cast(pa.timestamp(column.type.unit)).cast(pa.large_string())
    whole = pc.binary_replace_slice(text, 10, 11, "T")
    seconds = pc.utf8_slice_codeunits(whole, 0, _SECONDS)
    plain = pc.binary_join_element_wise(_text('"'), seconds, _text(f'{end}"'), _text(""))
    if not digits:
        return plain
    fraction = pc.utf8_slice_codeunits(whole, _SECONDS, _SECONDS + 1 + digits)
    full = pc.binary_join_element_wise(
        _text('"'), seconds, fraction, _text("0" * (6 - digits) + f'{end}"'), _text("")
    )
    is_whole = pc.equal(fraction, _text("." + "0" * digits))
    return pc.if_else(is_whole, plain, full)


def _by_msgspec(column: pa.Array[Any]) -> pa.Array[Any]:
    """A line for each value: JSON has no line end but escaped ones. A map whose keys are text is an object,
    any other map a list of pairs."""
    text = _ENCODER.encode_lines(as_objects(column) if is_of_objects(column.type) else column.to_pylist())
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 0x0A) + 1
    bounds = np.zeros(len(column) + 1, np.int64)
    bounds[1:] = ends
    lines = pa.LargeStringArray.from_buffers(len(column), pa.py_buffer(bounds), pa.py_buffer(text))
    return pc.utf8_slice_codeunits(lines, 0, -1)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _needs_escapes(column: pa.Array[Any]) -> bool:
    found: bool | None = pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py()
    return found is True


def _text(value: str) -> pa.Scalar[Any]:
    return pa.scalar(value, pa.large_string())
