"""Why a row of JSON is bad, as a clause for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.connector.common import json_codes as codes
from unistream.connector.common.buffers import Int64s, UInt8s
from unistream.connector.common.spans import binary_array

_ALONE: Final = {
    codes.NOT_AN_OBJECT: "it is not a JSON object",
    codes.TRAILING: "it is not exactly one complete JSON object",
    codes.CONTROL_CHARACTER: "it has an unescaped control character in a string",
    codes.BAD_ESCAPE: "it has an escape in a string that JSON does not know",
    codes.HALF_A_PAIR: "it has half of a surrogate pair in a string",
    codes.SYNTAX: "it is not valid JSON",
}
_OF_COLUMN: Final = {
    codes.TWICE: "field {name!r} comes twice",
    codes.NOT_UTF8: "field {name!r} has text that is not UTF-8",
    codes.MISSING: "field {name!r} is missing or null",
}
_JSON_TYPES: Final = ("number", "string", "boolean", "object", "array")
_FIRST_BYTES: Final = np.zeros(256, np.uint8)
for _index, _bytes in enumerate((b"", b'"', b"tf", b"{", b"[")):
    _FIRST_BYTES[list(_bytes)] = _index
_SHOWN: Final = 60  # bytes of a value
_UNPRINTABLE: Final = r"[\x00-\x1f\x7f]"


def reasons_of(  # noqa: PLR0917
    schema: pa.Schema,
    kinds: list[int],
    data: UInt8s,
    notes: Int64s,
    bad: Int64s,
    noted: Mapping[int, str],
) -> pa.Array[Any]:
    """One for each of the rows `bad`, by a loop over the kinds of reasons. `noted`: those of BY_PARSER."""
    verdicts = notes[codes.VERDICT, bad]
    columns = np.where(verdicts >= codes.TWICE, notes[codes.COLUMN, bad], 0)
    types = np.zeros(len(bad), np.int64)
    others = verdicts == codes.OTHER_TYPE
    types[others] = _FIRST_BYTES[data[notes[codes.PLACE, bad[others]]]]
    alike, groups = np.unique(np.stack([verdicts, columns, types]), axis=1, return_inverse=True)
    parts, places = [pa.array([], pa.large_string())], [np.empty(0, np.int64)]
    for group, (verdict, column, type_) in enumerate(alike.T.tolist()):
        rows = np.flatnonzero(groups.ravel() == group)
        places.append(rows)
        if verdict == codes.BY_PARSER:
            parts.append(pa.array([noted[int(row)] for row in bad[rows]], pa.large_string()))
        elif verdict == codes.MISFIT:
            parts.append(_misfits(schema.field(column).type, data, notes, bad[rows]))
        else:
            field = schema.field(column) if len(schema) else None
            text = _clause(verdict, field, kinds[column] if kinds else codes.TEXT, type_)
            parts.append(pa.repeat(pa.scalar(text, pa.large_string()), len(rows)))
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order)).cast(pa.string())


def _clause(verdict: int, field: pa.Field | None, kind: int, type_: int) -> str:
    if verdict in _ALONE or field is None:
        return _ALONE[verdict]
    if verdict in _OF_COLUMN:
        return _OF_COLUMN[verdict].format(name=field.name)
    needed = {codes.TEXT: "string", codes.BOOLEAN: "boolean"}.get(kind, "number")
    found = _JSON_TYPES[type_]
    return f"field {field.name!r} is of JSON type {found}, where the schema needs a {needed}"


def _misfits(kind: pa.DataType, data: UInt8s, notes: Int64s, rows: Int64s) -> pa.Array[Any]:
    """The clauses for values that the column cannot have, such as ``'yesterday' is not a timestamp[ms]``."""
    starts, sizes = notes[codes.PLACE, rows], notes[codes.BYTES, rows]
    quoted = (data[starts] == 0x22).astype(np.int64)
    starts, sizes = starts + quoted, np.minimum(sizes - 2 * quoted, _SHOWN)
    for _ in range(3):  # not in the middle of a character
        sizes = sizes - ((sizes == _SHOWN) & (data[starts + sizes] & 0xC0 == 0x80))
    texts = binary_array(data, starts, sizes)
    try:
        shown = texts.cast(pa.large_string())
    except pa.ArrowInvalid:
        shown = pc.cast(pc.replace_substring_regex(texts, r"[^\x20-\x7e]", "?"), pa.large_string())
    shown = pc.replace_substring_regex(shown, _UNPRINTABLE, "?")
    before, behind, between = (pa.scalar(text, pa.large_string()) for text in ("'", f"' is not a {kind}", ""))
    return pc.binary_join_element_wise(before, shown, behind, between)
